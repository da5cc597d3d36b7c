package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

const (
	namesName    = "__names"   // the hidden command that reads names in the store
	namesTimeout = time.Second // a person waits for the shell, so no names are better than late ones
	namesAge     = time.Second // a shell may ask again after each key, so a file keeps the names for so long
	maxNames     = 100         // of groups, schedules, sources, batches and operations
)

// kindOfFlag has the kinds of the names that are values of flags.
var kindOfFlag = map[string]string{"queue": "queue", "type": "type", "then": "type", "group": "group", "operation": "operation"}

// kindOfArgument returns the kind of the names that are arguments of the command parsed so far, or "".
func (a *arranger) kindOfArgument() string {
	path := a.line.path
	if len(path) < 2 || a.line.help {
		return ""
	}
	noun, verb := path[len(path)-2].Name, path[len(path)-1]
	word, _, _ := strings.Cut(strings.Trim(verb.ArgsUsage, "[].")+" ", " ")
	switch {
	case len(a.words) > 0 && !strings.Contains(verb.ArgsUsage, "..."), verb.Name == "create":
		return ""
	case word == "NAME" && slices.Contains([]string{"queue", "type", "schedule", "source"}, noun), word == "ID" && slices.Contains([]string{"batch", "operation"}, noun):
		return noun
	case slices.Contains([]string{"QUEUE", "TYPE", "GROUP", "SOURCE"}, word):
		return strings.ToLower(word)
	}
	return ""
}

// storedNames returns the names of a kind. It executes namesCommand with the global flags. If that fails, or takes longer
// than namesTimeout, there are no names. Then the command may go on: to open a FIFO, for example, waits for a writer.
func storedNames(ctx context.Context, t *tool, kind string, global []string) []candidate {
	ctx, cancel := context.WithTimeout(ctx, namesTimeout)
	defer cancel()
	args := append(slices.Clone(global), namesName, kind)
	file, key := t.namesFile(kind, args)
	text, cached := readNames(file, key)
	if !cached {
		read := make(chan string, 1)
		go func() {
			var out bytes.Buffer
			one := &tool{terminal: terminal{stdin: strings.NewReader(""), stdout: &out, stderr: io.Discard, env: t.env}}
			if one.run(ctx, args) != exitOK {
				out.Reset()
			}
			read <- out.String()
		}()
		select {
		case text = <-read:
		case <-ctx.Done():
		}
		writeNames(file, key+text)
	}
	var all []candidate
	for line := range strings.Lines(text) {
		word, about, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		all = append(all, candidate{word, about})
	}
	return all
}

// namesFile returns the path of the file that keeps the names of a kind, and the first line of the file, which identifies
// the store. Without a directory for such files the path is "".
func (t *tool) namesFile(kind string, args []string) (path, key string) {
	home := t.variable("HOME")
	if home != "" {
		home = filepath.Join(home, ".cache")
	}
	directory := t.variable("XDG_CACHE_HOME")
	if !filepath.IsAbs(directory) { // the XDG specification ignores a relative path
		directory = home
	}
	if directory == "" {
		return "", ""
	}
	here, _ := os.Getwd() // without it, other variables still identify the store
	key = fmt.Sprintf("%x\n", sha256.Sum256([]byte(strings.Join(slices.Concat(args, t.env, []string{here}), "\x00"))))
	return filepath.Join(directory, "holdfast", "names-"+kind), key
}

// readNames returns the names in a file with the given key, unless the file is too old.
func readNames(path, key string) (names string, fresh bool) {
	info, err := os.Stat(path)
	if err != nil {
		return "", false
	}
	if age := time.Since(info.ModTime()); age < 0 || age > namesAge {
		return "", false
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", false
	}
	if names, fresh = strings.CutPrefix(string(text), key); !fresh {
		return "", false // of another store
	}
	return names, true
}

// writeNames replaces the text of a file. Without the file the names are read again, so errors do not matter.
func writeNames(path, text string) {
	if path == "" || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(path), "names-*")
	if err != nil {
		return
	}
	_, err = f.WriteString(text)
	if f.Close() != nil || err != nil || os.Rename(f.Name(), path) != nil {
		_ = os.Remove(f.Name())
	}
}

func (t completionCommands) namesCommand() *cli.Command {
	command := t.verb(namesName+" KIND", "list names in the store for the last word",
		`KIND is queue, type, group, schedule, source, batch or operation. Each line is a name, a tab and a description.

Example:
  holdfast `+namesName+` queue`,
		plain(func(ctx context.Context, c *cli.Context) error {
			return t.withStore(ctx, c, func(b *app.Backend) error {
				all, err := names(ctx, b, c.Args().First())
				if err != nil {
					return err
				}
				return writeCandidates(t.stdout, all)
			})
		}))
	command.Hidden = true
	return command
}

// names reads the names of a kind.
func names(ctx context.Context, b *app.Backend, kind string) (all []candidate, err error) {
	add := func(name, text string) { all = append(all, candidate{singleLine(name), clipped(text, 60)}) }
	switch kind {
	case "queue":
		var found []store.Queue
		found, err = b.Store.Queues(ctx)
		for _, q := range found {
			add(q.Name, "")
		}
		all = distinct(all)
	case "type":
		found, failed := b.Store.CountGroups(ctx)
		for _, g := range found {
			add(g.Type, "")
		}
		handlers, alsoFailed := b.Store.Handlers(ctx)
		for _, h := range handlers {
			add(h.Type, "")
		}
		all, err = distinct(all), errors.Join(failed, alsoFailed)
	case "group":
		var found []store.DeathGroup
		found, err = b.Store.DeathGroups(ctx, store.DeathFilter{Limit: maxNames})
		for _, g := range found {
			add(g.Fingerprint, fmt.Sprintf("%d dead: %s", g.Tasks, surface.GroupTitle(g)))
		}
	case "schedule":
		var found []app.Schedule
		found, err = b.Schedules(ctx, "", maxNames)
		for _, s := range found {
			add(s.Name, "")
		}
	case "source":
		var found []app.Source
		found, err = b.Sources(ctx, "", maxNames)
		for _, s := range found {
			add(s.Name, "")
		}
	case "batch":
		var found []surface.Listed[surface.Batch, app.Batch]
		found, _, err = surface.ListBatches(ctx, b, surface.BatchQuery{Limit: maxNames})
		for _, one := range found {
			add(one.Form.ID.String(), strings.TrimSpace(batchState(one.Form)+" "+one.Form.Name))
		}
	case "operation":
		var found []store.Operation
		found, err = b.Store.ListOperations(ctx, store.OperationFilter{Limit: maxNames})
		for _, o := range found {
			add(o.ID.String(), fmt.Sprintf("%s %s %d/%d", o.Action, o.State, o.Changed, o.Total))
		}
	default:
		err = usage("no names are of kind %q", kind)
	}
	return all, err
}

// distinct returns candidates in the order of their words, each word once.
func distinct(all []candidate) []candidate {
	slices.SortFunc(all, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	return slices.Compact(all)
}
