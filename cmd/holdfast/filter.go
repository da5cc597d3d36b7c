package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

func stateFlag() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "state", Usage: "only tasks in one of the states `STATE,...`: " + strings.Join(search.StateNames(), ", ")}}
}

func filterFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "query", Aliases: []string{"q"}, Usage: "only tasks that match the `SEARCH`, such as: type:http error:\"connection refused\" since:2h; see: holdfast help search"},
		&cli.StringFlag{Name: "type", Usage: "only tasks of the `TYPE`"},
		&cli.StringFlag{Name: "queue", Usage: "only tasks of the `QUEUE`"},
		&cli.StringFlag{Name: "error", Usage: "only tasks whose last error contains `TEXT`; the case does not matter"},
		&cli.StringFlag{Name: "since", Usage: "only tasks that finished, or else were created, at or after `TIME`: " +
			"2h (ago), 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z"},
		&cli.StringFlag{Name: "until", Usage: "only tasks that finished, or else were created, before `TIME`"},
	}
}

func groupFlag() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "group", Usage: "only tasks of the group with the `FINGERPRINT`, or its first digits; see \"dead groups\""},
		&cli.StringFlag{Name: "operation", Usage: "only tasks that the operation with the `ID` has changed, such as those that failed again after a retry"},
	}
}

func limitFlag(standard int) []cli.Flag {
	text := "all"
	if standard > 0 {
		text = strconv.Itoa(standard)
	}
	return []cli.Flag{&cli.IntFlag{Name: "limit", Value: standard, Usage: "at most `N` tasks; default " + text}}
}

func beforeFlag() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "before", Usage: "only tasks with an id less than `ID`; for the next page, give the last id of this page"}}
}

// listFlags returns the flags of commands that list tasks page by page.
func listFlags() []cli.Flag {
	return slices.Concat(limitFlag(50), beforeFlag(), sortFlag(), watchFlag())
}

// filter returns the filter that the flags of filterFlags, stateFlag, groupFlag, limitFlag and beforeFlag describe. A
// command need not have all of these flags.
func filter(c *cli.Context) (store.Filter, error) {
	b := search.Builder{Now: time.Now()}
	for _, name := range []string{"query", "type", "queue", "error", "group", "operation", "state", "since", "until"} {
		value := c.String(name)
		switch {
		case !c.IsSet(name):
			continue
		case strings.TrimSpace(value) == "": // an empty variable in a script must not select all tasks
			return b.Filter, usageOf(commandName(c), "--%s is empty; leave it out to match any", name)
		case name == "query":
			if err := b.Parse(value); err != nil {
				syntax, _ := errors.AsType[*search.SyntaxError](err)
				return b.Filter, &failure{err: fmt.Errorf("--query: %w", err), code: exitUsage, hint: "see: holdfast help search", at: syntax}
			}
			continue
		case b.Has(name):
			return b.Filter, usageOf(commandName(c), "--%s and the field %s of --query exclude each other", name, name)
		}
		if err := b.Set(name, value); err != nil {
			return b.Filter, usageOf(commandName(c), "--%s: %w", name, err)
		}
	}
	f := b.Filter
	f.Limit = c.Int("limit")
	if c.IsSet("limit") && f.Limit < 1 {
		return f, usageOf(commandName(c), "--limit %d must be at least 1", f.Limit)
	}
	if c.IsSet("before") {
		id, err := holdfast.ParseTaskID(c.String("before"))
		if err != nil {
			return f, fmt.Errorf("--before: %w", err)
		}
		f.Before = id
	}
	return f, nil
}

// deadFilter returns the filter for a command about dead tasks.
func deadFilter(c *cli.Context) (store.Filter, error) {
	f, err := filter(c)
	if err == nil && len(f.States) > 0 {
		err = usageOf(commandName(c), "this command selects dead tasks only; leave the field state out")
	}
	f.States = []holdfast.State{holdfast.Dead}
	return f, err
}

// listTasks lists the tasks that a filter selects.
func listTasks(ctx context.Context, t *tool, c *cli.Context, f store.Filter, none string, columns ...column[surface.ListedTask]) error {
	columns = append([]column[surface.ListedTask]{
		{"id", func(task surface.ListedTask) string { return task.ID.String() }},
		{"type", func(task surface.ListedTask) string { return task.Type }},
		{"queue", func(task surface.ListedTask) string { return task.Queue }},
	}, columns...)
	return t.withStore(ctx, c, func(b *app.Backend) error {
		f, err := b.KnownFilter(ctx, f)
		if err != nil {
			return err
		}
		page, err := surface.List(ctx, b, f)
		if err != nil {
			return err
		}
		more := "more tasks match; for the next page, add --before %s"
		if len(page.Tasks) < f.Limit {
			more = "the scan stopped after a second, at task %[1]s; to continue, add --before %[1]s"
		}
		return printPage(t, c, "tasks", page.Tasks, page.Next, none, more, columns...)
	})
}

// printPage writes a page as printList does. next is the cursor of the next page, or nil on the last page. JSON has it
// under the name next. Otherwise printPage prints it with the format more.
func printPage[T, C any](t *tool, c *cli.Context, name string, items []T, next *C, none, more string, columns ...column[T]) error {
	if chosen, _ := format(c); chosen == asJSON {
		items, err := sorted(c, items, columns)
		if err != nil {
			return err
		}
		cursor, err := json.Marshal(next)
		if err != nil {
			return err
		}
		return jsonObject(t.stdout, name, items, fmt.Sprintf(",\n\"next\": %s", cursor))
	}
	if err := printList(t, c, name, items, none, columns...); err != nil || next == nil {
		return err
	}
	if c.IsSet("sort") {
		t.say("--sort has sorted this page only")
	}
	t.say(more, *next)
	return nil
}
