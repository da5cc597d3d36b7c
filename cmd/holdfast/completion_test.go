package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

func TestCandidates(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"":                             "demo serve top doctor bench enqueue task dead operation audit queue type key target gate limit topic schedule batch slice shard worker verify recover topology holding migrate export import config setting policy token completion version help",
		"ta":                           "task target",
		"task ":                        "list count get explain attempts output edit retry cancel undo wait",
		"tasks l":                      "list",
		"setting ":                     "set get list unset diff undo",
		"policy ":                      "simulate",
		"policy simulate --f":          "--from",
		"help dead ":                   "groups show note assign resolve reopen list retry archive restore purge",
		"nosuch ":                      "",
		"task get ":                    "",
		"worker drain --o":             "--output",
		"task list --st":               "--state",
		"queue ":                       "list count pause resume",
		"targets ":                     "get pause resume",
		"key ":                         "list pause resume",
		"type pause http --":           "--output --for --reason --as --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
		"gate ":                        "list",
		"limits ":                      "set unset",
		"key list --":                  "--output --dead --limit --sort --watch --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
		"limit set --type http --":     "--output --queue --type --key --target --per --rate --concurrency --reason --as --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
		"limit unset --per ":           "key target",
		"topics ":                      "list get set weights",
		"to":                           "top topic topology token",
		"schedules ":                   "create list get edit pause resume run backfill delete",
		"slice ":                       "source list backfill",
		"slices sources ":              "set get list delete",
		"slice source set a --o":       "--output --overlap",
		"shard ":                       "job map move drain",
		"shards job ":                  "set list get delete",
		"shard maps ":                  "get",
		"batches ":                     "start list get watch pause resume cancel retry result",
		"batch list --state ":          "running paused stopped done cancelled",
		"batch result 1 -o ":           "jsonl csv",
		"batch cancel 1 --w":           "--wait",
		"schedule edit a --o":          "--output --overlap --ordered",
		"topic list --":                "--output --queue --limit --after --sort --watch --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
		"topic set a --":               "--output --weight --reason --as --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
		"task list --state d":          "done dead",
		"task list -o ":                "table json jsonl",
		"task list -o json --lim":      "--limit",
		"--log-level d":                "debug",
		"--schema x version --log":     "--log-level --log-format",
		"enqueue --jsonl ":             "",
		"enqueue --t":                  "--type --topic --tag",
		"enqueue --tag ":               "",
		"help queue pause ":            "",
		"queue pause ":                 "a-queue",
		"queue pause mail ":            "",
		"type resume a":                "a-type",
		"dead show ":                   "a-group",
		"dead note 3f9ad0 ":            "",
		"dead retry --group ":          "a-group",
		"task list --queue ":           "a-queue",
		"enqueue --type a":             "a-type",
		"--schema x queue pause ":      "a-queue_--schema_x",
		"queue pause --set a=b ":       "a-queue_--set_a=b",
		"schedule get ":                "a-schedule",
		"schedule create ":             "",
		"slice source delete ":         "a-source",
		"slice list ":                  "a-source",
		"batch watch ":                 "a-batch",
		"operation get ":               "a-operation",
		"operations watch ":            "a-operation",
		"operation start ":             "",
		"audit list --operation ":      "a-operation",
		"task list --queue=a":          "--queue=a-queue",
		"task list --state=d":          "--state=done --state=dead",
		"task list -q=a":               "",
		"task list --nosuch=":          "",
		"--schema=x type pause --for=": "",
		"--schema=x task list --type=": "--type=a-type_--schema=x",
		"task list --limit=3 -":        "--output --state --query --type --queue --error --since --until --limit --before --sort --watch --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
	} {
		words := strings.Split(typed, " ")
		kindOf := func(kind string, global []string) []candidate {
			return []candidate{{word: strings.Join(append([]string{"a-" + kind}, global...), "_")}}
		}
		var got []string
		for _, one := range candidates(newProgram(&tool{}), words, kindOf) {
			got = append(got, one.word)
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}

// complete returns the candidates for the last word.
func complete(t *testing.T, environment []string, words ...string) []string {
	t.Helper()
	stdout, stderr := &bytes.Buffer{}, &bytes.Buffer{}
	one := &tool{terminal: terminal{stdin: strings.NewReader(""), stdout: stdout, stderr: stderr, env: environment}}
	if code := one.run(t.Context(), append([]string{"__complete", "--"}, words...)); code != exitOK || stderr.Len() > 0 {
		t.Errorf("%q: exit code %d, %s", words, code, stderr)
	}
	var got []string
	for line := range strings.Lines(stdout.String()) {
		word, _, _ := strings.Cut(line, "\t")
		got = append(got, word)
	}
	return got
}

// The names in the store are candidates.
func TestNamesInTheStore(t *testing.T) {
	t.Parallel()
	environment := newFile(t)
	want := func(want string, words ...string) {
		t.Helper()
		if got := strings.Join(complete(t, environment, words...), " "); got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
	want("", "queue", "pause", "") // there is no file
	for _, args := range [][]string{
		{"enqueue", "--type", "mail", "--queue", "letters", "--delay", "1h"},
		{"enqueue", "--type", "mail", "--queue", "letters", "--priority", "high", "--delay", "1h"},
		{"enqueue", "--type", "sms", "--queue", "later", "--delay", "1h"},
		{"schedule", "create", "nightly", "--type", "report", "--cron", "0 3 * * *"},
		{"slice", "source", "set", "shop", "--type", "orders.pull", "--every", "5m", "--start", "2020-01-01"},
	} {
		if code, out, errs := onTerminal(t, environment, args...); code != exitOK {
			t.Fatalf("%v: %d\n%s%s", args, code, out, errs)
		}
	}
	if code, out, errs := onTerminal(t, environment, "operation", "start", "cancel", "-q", "state:ready", "--plan", "--yes"); code != exitOK {
		t.Fatalf("%d\n%s%s", code, out, errs)
	}
	path := strings.TrimPrefix(environment[0], "DATABASE_URL=sqlite:")
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err == nil {
		_, err = s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "w", Queues: []string{"quiet"}, Types: []string{"push"}}, time.Hour)
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	want("quiet", "queue", "pause", "q") // it has no tasks
	want("push", "type", "pause", "p")
	want("1", "operation", "resume", "")
	want("--operation=1", "dead", "list", "--operation=")
	want("later letters", "queue", "pause", "l")
	want("letters", "task", "list", "--queue", "le")
	want("mail push sms", "type", "pause", "")
	want("nightly", "schedule", "get", "n")
	want("shop", "slice", "list", "")
	want("", "dead", "show", "")
	want("", "batch", "get", "")
	environment = append(environment, "DATABASE_URL=sqlite:"+t.TempDir()+"/other.db")
	want("", "queue", "pause", "")
}

// A file keeps the names for a second. It is the file of one store.
func TestNamesAreKept(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	one := &tool{terminal: terminal{env: []string{"XDG_CACHE_HOME=" + cache, "DATABASE_URL=sqlite:" + cache + "/none.db"}}}
	for _, home := range []string{"", t.TempDir()} {
		relative := &tool{terminal: terminal{env: []string{"XDG_CACHE_HOME=cache", "HOME=" + home}}}
		if path, _ := relative.namesFile("queue", nil); path != "" && !strings.HasPrefix(path, home+"/.cache/") || path == "" && home != "" {
			t.Errorf("with a relative XDG_CACHE_HOME and the home %q, the file is %q", home, path)
		}
	}
	path, key := one.namesFile("queue", []string{namesName, "queue"})
	writeNames(path, key+"kept\tby a file\n")
	if got := storedNames(t.Context(), one, "queue", nil); !slices.Equal(got, []candidate{{"kept", "by a file"}}) {
		t.Errorf("kept names: %q", got)
	}
	if got := storedNames(t.Context(), one, "queue", []string{"--schema", "x"}); len(got) > 0 {
		t.Errorf("the names of another store: %q", got)
	}
	writeNames(path, key+"kept\t\n")
	for _, at := range []time.Time{time.Now().Add(-time.Minute), time.Now().Add(time.Hour)} {
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if names, fresh := readNames(path, key); fresh {
			t.Errorf("names of %s are used: %q", at, names)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if found, err := filepath.Glob(filepath.Dir(path) + "/*"); err != nil || len(found) != 1 {
		t.Errorf("files: %q, %v", found, err)
	}
}

// If the store does not answer, the shell gets no names, and does not wait.
func TestNoNamesOfASilentStore(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections, and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	environment := []string{"DATABASE_URL=postgres://a:b@" + listener.Addr().String() + "/c?sslmode=disable", "AMQP_URL=amqp://127.0.0.1:1/"}
	one := &tool{terminal: terminal{env: environment}}
	if got := storedNames(ctx, one, "queue", nil); len(got) > 0 || ctx.Err() != nil {
		t.Errorf("%q, %v", got, ctx.Err())
	}
}
