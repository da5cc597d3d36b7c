package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/surface"
)

// onTerminal executes a command on a terminal with 80 columns, on a new file unless the environment names one.
func onTerminal(t *testing.T, environment []string, args ...string) (code int, out, errs string) {
	t.Helper()
	stdout, stderr := &frame{terminal: true}, &bytes.Buffer{}
	one := &tool{terminal: terminal{stdin: strings.NewReader(""), stdout: stdout, stderr: stderr, env: environment}}
	code = one.run(context.Background(), append([]string{"--no-color"}, args...))
	return code, stdout.String(), stderr.String()
}

// newFile returns the environment of a backend in a new file.
func newFile(t *testing.T) []string {
	return []string{"DATABASE_URL=sqlite:" + t.TempDir() + "/app.db", "AMQP_URL=inproc:", "COLUMNS=80"}
}

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a long text 生命 ", 30)
	for name, head := range map[string]table.Row{
		"groups":    {"group", "state", "tasks", "last hour", "type", "class", "first", "last", "owner", "note", "error"},
		"gates":     {"gate", "kind", "subject", "state", "by", "since", "until", "blocked", "reason"},
		"limits":    {"limit", "rate", "concurrency", "in use", "blocked", "set by", "since", "reason"},
		"schedules": {"schedule", "state", "when", "next", "last", "runs", "type"},
		"sources":   {"source", "type", "every", "done through", "behind", "open", "dead"},
		"shards":    {"job", "type", "every", "shards", "zones", "open", "map"},
		"batches":   {"batch", "name", "state", "stage", "done", "failed", "left", "started", "actor", "note"},
		"queues":    {"queue", "priority", "ready", "due", "oldest", "running", "workers", "paused", "messages", "consumers"},
		"tasks":     {"id", "type", "queue", "state", "failures", "created", "due", "note"},
		"workers":   {"worker", "name", "state", "draining", "queues", "running", "stuck", "pages", "started", "renewed", "ended"},
		"audit":     {"id", "at", "actor", "surface", "action", "subject", "reason", "changes"},
		"counts":    {"queue", "ready", "due", "oldest", "running", "blocked", "longest", "parked", "done", "dead", "cancelled", "archived", "workers", "paused"},
		"checks":    {"check", "result", "detail"},
	} {
		row := make(table.Row, len(head))
		for i := range row {
			if row[i] = long; slices.Contains(wholeCells, fmt.Sprint(head[i])) {
				row[i] = "3f9ad02c41b7e685" // the longest id
			}
		}
		numbers := make(table.Row, len(head))
		for i := range numbers {
			numbers[i] = "1234567"
		}
		var out bytes.Buffer
		screen := &frame{terminal: true}
		one := &terminal{stdout: screen, stderr: &out, env: []string{"COLUMNS=80"}, plain: true}
		if err := one.table(head, []table.Row{row, numbers}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(screen.String()) {
			if n := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		if !strings.Contains(screen.String(), strings.ToUpper(fmt.Sprint(head[0]))) {
			t.Errorf("%s has lost its first column:\n%s", name, screen)
		}
	}
}

// An empty value is not shown as an old or a new one.
func TestAChangeOfAnEmptyValue(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ before, after, want string }{
		{`{"owner":""}`, `{"owner":"anna"}`, "owner: anna"},
		{`{"owner":"anna"}`, `{"owner":""}`, "owner: no longer anna"},
		{`{}`, `{"owner":"anna"}`, "owner: anna"},
		{`{"owner":"anna"}`, `{"owner":"ben"}`, "owner: anna to ben"},
	} {
		e := surface.AuditEntryOf(store.AuditEntry{Before: json.RawMessage(one.before), After: json.RawMessage(one.after)})
		if got := auditChanges(e); got != one.want {
			t.Errorf("%s to %s: %q, want %q", one.before, one.after, got, one.want)
		}
	}
	for want, r := range map[string]surface.OperationResult{
		"stopped, 1 of 12 changed":                    {State: store.OperationStopped, Total: 12, Changed: 1},
		"done, 9 of 12 changed, 2 skipped, 1 refused": {State: store.OperationDone, Total: 12, Changed: 9, Skipped: 2, Refused: 1},
	} {
		if got := auditChanges(surface.AuditEntry{Result: &r}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The summary of "queue count" counts a draining worker apart from the live ones.
func TestTheSummaryOfQueueCount(t *testing.T) {
	t.Parallel()
	environment := newFile(t)
	run := func(args ...string) string {
		t.Helper()
		code, out, errs := onTerminal(t, environment, args...)
		if code != exitOK {
			t.Fatalf("%v: %d\n%s%s", args, code, out, errs)
		}
		return out + errs
	}
	run("enqueue", "--type", "mail", "--queue", "a-queue-with-a-long-name")
	run("queue", "pause", "a-queue-with-a-long-name", "--for", "1h", "--as", "a.person.with.a.long.name@example.com")
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: strings.TrimPrefix(environment[0], "DATABASE_URL=sqlite:")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, drains := range []bool{false, true} {
		id, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "worker", Concurrency: 1}, time.Hour)
		if err == nil && drains {
			err = s.Drain(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := run("queue", "count")
	for _, want := range []string{"1 live worker, 1 draining; ", "BLOCKED", "PAUSED", " by a.person"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

// A text of which a part is useless is wrapped. A table that fits has everything, and so has a table outside a
// terminal.
func TestOnlyWideTablesOnTerminalsAreShortened(t *testing.T) {
	t.Parallel()
	const advice = "word of advice "
	long := strings.Repeat(advice, 20)
	rows := []table.Row{{"1", "", long, long}}
	head := table.Row{"id", "note", "error", "remedy"}
	var stderr bytes.Buffer
	screen, file := &frame{terminal: true}, &bytes.Buffer{}
	err := errors.Join(
		(&terminal{stdout: screen, stderr: &stderr, env: []string{"COLUMNS=80"}, plain: true}).table(head, rows),
		(&terminal{stdout: file, stderr: &stderr, env: []string{"COLUMNS=80"}}).table(head, rows))
	if err != nil {
		t.Fatal(err)
	}
	if got := screen.String(); strings.Contains(got, "NOTE") || !strings.Contains(got, "…") || strings.Count(got, "of") < 20 {
		t.Errorf("on a terminal:\n%s", got)
	}
	if got := file.String(); !strings.Contains(got, "NOTE") || strings.Contains(got, "…") || strings.Count(got, advice) < 38 {
		t.Errorf("in a file:\n%s", got)
	}
	if stderr.Len() > 0 {
		t.Errorf("a column without a text was reported as left out: %s", &stderr)
	}
}

func TestACommandOnATerminalOf80Columns(t *testing.T) {
	t.Parallel()
	environment := newFile(t)
	for _, args := range [][]string{
		{"enqueue", "--type", "mail", "--key", "tenant-7", "--tag", "a", "--delay", "1h"},
		{"slice", "source", "set", "a-platform-with-a-long-name", "--type", "orders.pull", "--every", "5m", "--start", "2020-01-01"},
		{"queue", "pause", "default", "--reason", strings.Repeat("a deploy that takes long ", 5), "--as", "a.person.with.a.long.name@example.com"},
		{"operation", "start", "cancel", "-q", "state:ready", "--plan", "--yes", "--reason", strings.Repeat("the tasks are obsolete ", 5)},
		{"limit", "set", "--type", "mail", "--key", "tenant-7", "--rate", "100/s", "--reason", strings.Repeat("fair shares ", 8)},
	} {
		if code, out, errs := onTerminal(t, environment, args...); code != exitOK {
			t.Fatalf("%v: %d\n%s%s", args, code, out, errs)
		}
	}
	for _, args := range [][]string{
		{"queue", "list"}, {"gate", "list"}, {"limit", "list"}, {"task", "list"}, {"task", "get", "1"}, {"task", "explain", "1"},
		{"operation", "get", "1"}, {"queue", "count"}, {"audit", "list"}, {"token", "list"}, {"setting", "list", "--all"}, {"config", "show"}, {"doctor"}, {"dead", "groups"},
		{"slice", "source", "list"}, {"slice", "source", "get", "a-platform-with-a-long-name"}, {"slice", "source", "set", "--help"},
		{"help", "search"}, {"help", "flags"}, {"dead", "retry", "--help"}, {"limit", "set", "--help"}, {"serve", "--help"}, {"--help"},
	} {
		_, out, _ := onTerminal(t, environment, args...)
		examples := false
		for line := range strings.Lines(out) {
			line = strings.TrimSuffix(line, "\n")
			examples = examples && line != "" || line == "Example:" // an example is not wrapped
			if n := text.StringWidthWithoutEscSequences(line); n > 80 && !examples {
				t.Errorf("%v: %d columns: %s", args, n, line)
			}
		}
	}
}

// A value with line breaks cannot look like another line of the output.
func TestAValueForgesNoLine(t *testing.T) {
	t.Parallel()
	environment := newFile(t)
	const forged = "x\nstate            done"
	if code, _, errs := onTerminal(t, environment, "enqueue", "--type", "mail", "--delay", "1h", "--unique", forged); code != exitOK {
		t.Fatal(errs)
	}
	for _, args := range [][]string{{"task", "get", "1"}, {"task", "explain", "1"}, {"task", "list"}} {
		code, out, errs := onTerminal(t, environment, args...)
		if code != exitOK || strings.Contains(out, "\nstate            done") {
			t.Errorf("%v: %d\n%s%s", args, code, out, errs)
		}
	}
}

// interruption is a stderr that cancels a context when a text is written to it.
type interruption struct {
	bytes.Buffer
	at     string
	cancel context.CancelFunc
}

func (i *interruption) Write(p []byte) (int, error) {
	n, err := i.Buffer.Write(p)
	if strings.Contains(i.String(), i.at) {
		i.cancel()
	}
	return n, err
}

// After Ctrl-C, a command that waits for an operation says which one continues.
func TestAnInterruptedWaitNamesItsOperation(t *testing.T) {
	t.Parallel()
	environment := newFile(t)
	for range 3 {
		if code, _, errs := onTerminal(t, environment, "enqueue", "--type", "mail", "--delay", "1h"); code != exitOK {
			t.Fatal(errs)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	stderr := &interruption{at: "to follow it", cancel: cancel}
	one := &tool{terminal: terminal{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: stderr, env: environment}}
	code := one.run(ctx, []string{"operation", "start", "cancel", "-q", "state:ready", "--yes", "--rate", "1", "--wait"})
	if got := stderr.String(); code != exitInterrupted ||
		!strings.Contains(got, "operation 1 is running: cancel 3 ready tasks; to follow it: holdfast operation watch 1\n") ||
		!strings.Contains(got, "interrupted\noperation 1 continues while holdfast serve runs; ") {
		t.Errorf("exit code %d:\n%s", code, got)
	}
}

// "task get" shows the stack of a panic and the response of the target in its text form too.
func TestATaskIsShownWithStackAndResponse(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]holdfast.Attempt{
		"the last attempt":   {Attempt: 2, Event: holdfast.EventGiveUp, Class: "panic", Stack: "goroutine 1\nmain.f()\n\t/x.go:1", Details: json.RawMessage(`{"status":410}`)},
		"an earlier attempt": {Attempt: 2, Event: holdfast.EventRetry, Class: "crash"},
	} {
		first := holdfast.Attempt{Attempt: 1, Event: holdfast.EventRetry, Stack: "goroutine 1\nmain.f()\n\t/x.go:1", Details: json.RawMessage(`{"status":410}`)}
		var out bytes.Buffer
		one := taskCommands{&tool{terminal: terminal{stdout: &out}}}
		if err := one.describe(surface.ListedTask{Task: holdfast.Task{ID: 1, State: holdfast.Dead}}, []holdfast.Attempt{first, last}, "ann", time.Time{}); err != nil {
			t.Fatal(err)
		}
		indent := strings.Repeat(" ", labelWidth)
		for _, want := range []string{
			"stack            goroutine 1\n" + indent + "main.f()\n" + indent + " /x.go:1\n",
			"response         {\n" + indent + "  \"status\": 410\n" + indent + "}\n",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q is missing in\n%s", name, want, &out)
			}
		}
	}
}

// Ids, fingerprints and states are whole in every table, even if all other texts are as long as they may be.
func TestTablesKeepIdsAndStates(t *testing.T) {
	t.Parallel()
	name, id := strings.Repeat("orders.import.", 20)[:holdfast.MaxNameLength], "1234567"
	who, why := "a.person.with.a.long.name@example.com", strings.Repeat("because ", 60)
	for what, one := range map[string]struct {
		head  table.Row
		row   table.Row
		whole []string // cells
		heads []string // columns that a table keeps
	}{
		"groups": {
			table.Row{"group", "state", "tasks", "last hour", "type", "class", "first", "last", "owner", "note", "error"},
			table.Row{"3f9ad02c41b7e685", "returned", id, id, name, name, "119m ago", "119m ago", who, why, why},
			[]string{"3f9ad02c41b7e685", "returned", id}, []string{"TYPE", "LAST", "ERROR"},
		},
		"limits among gates": {
			table.Row{"gate", "kind", "subject", "state", "by", "since", "until", "in use", "blocked", "reason"},
			table.Row{id, "limit", "type " + name + " key tenant-7", "1000000/s and 10 at a time", who, "119m ago", "in 119m", id, id, why},
			[]string{id, "limit", "1000000/s and 10 at a time", "ant-7", "119m ago"}, []string{"STATE", "BY", "SINCE"},
		},
		"breakers": {
			table.Row{"gate", "kind", "subject", "state", "by", "since", "until", "in use", "blocked", "reason"},
			table.Row{id, "breaker", "target " + name + ".example.com:8443", "half-open", who, "119m ago", "in 119m", "", id, why},
			[]string{id, "breaker", "half-open", ":8443"}, []string{"STATE", "BY", "SINCE"},
		},
		"tasks": {
			table.Row{"id", "type", "queue", "state", "failures", "created", "due", "note"},
			table.Row{id, name, name, "cancelled", "12 of 25", "119m ago", "in 119m", why},
			[]string{id, "cancelled", "because because because"}, []string{"TYPE"},
		},
		"audit of a task": {
			table.Row{"id", "at", "actor", "surface", "action", "subject", "reason", "changes"},
			table.Row{id, "119m ago", "anna", "console", "retry", "task " + id, why, strings.Repeat("x", 31) + "y" + strings.Repeat("z", 99)},
			[]string{id, "anna", "task " + id, strings.Repeat("x", 31)}, []string{"AT", "ACTOR", "CHANGES"},
		},
		"audit of a group": {
			table.Row{"id", "at", "actor", "surface", "action", "subject", "reason", "changes"},
			table.Row{id, "119m ago", who, "console", "reopen", "group 3f9ad02c41b7e685", why, why},
			[]string{id, "group 3f9ad02c41b7e685", "a.perso", "because because"}, []string{"AT", "ACTOR", "CHANGES"},
		},
		"counts": {
			table.Row{"queue", "ready", "due", "oldest", "running", "blocked", "longest", "parked", "done", "dead", "cancelled", "archived", "workers", "paused"},
			table.Row{"(all)", "12345", "12345", "2h", "10", "100000+", "2h", "0", "12345", "12345", id, id, "4", "by anna, until 10:00"},
			[]string{"100000+", "by anna"}, []string{"BLOCKED", "DONE", "DEAD", "PAUSED"},
		},
		"counts without a pause": {
			table.Row{"queue", "ready", "due", "oldest", "running", "blocked", "longest", "parked", "done", "dead", "cancelled", "archived", "workers", "paused"},
			table.Row{"(all)", "12345", "12345", "2h", "10", "100000+", "2h", "0", "12345", "12345", id, id, "4", ""},
			[]string{"100000+", "2h"}, []string{"OLDEST", "BLOCKED", "WORKERS"},
		},
		"operations": {
			table.Row{"id", "action", "state", "changed", "skipped", "failed", "created", "actor", "query"},
			table.Row{id, "archive", "cancelled", id + " of " + id, id, id, "119m ago", who, why},
			[]string{id, "cancelled", id + " of " + id}, nil,
		},
		"batches": {
			table.Row{"batch", "name", "state", "stage", "done", "failed", "left", "started", "actor", "note"},
			table.Row{id, name, "cancelling", "10/12", id + "/" + id, id, id, "119m ago", who, why},
			[]string{id, "cancelling", id + "/" + id}, []string{"NAME", "LEFT"},
		},
		"keys": {
			table.Row{"key", "active", "state", "since", "waiting", "doomed"},
			table.Row{name, id, "cancelled", "119m ago", id, "yes"},
			[]string{id, "cancelled", "119m ago", "yes"}, nil,
		},
		"attempts": {
			table.Row{"attempt", "event", "class", "finished", "took", "worker", "error"},
			table.Row{"25", "interrupted", name, "119m ago", "1.234s", id, why},
			[]string{"25", id}, []string{"ERROR"},
		},
		"workers": {
			table.Row{"worker", "name", "state", "draining", "queues", "running", "stuck", "pages", "started", "renewed", "ended"},
			table.Row{id, name, "fenced", "yes", name, "100 of 100", "10", id, "119m ago", "119m ago", "119m ago"},
			[]string{id, "fenced"}, []string{"NAME"},
		},
	} {
		screen := &frame{terminal: true}
		if err := (&terminal{stdout: screen, stderr: &bytes.Buffer{}, env: []string{"COLUMNS=80"}, plain: true}).table(one.head, []table.Row{one.row}); err != nil {
			t.Fatal(err)
		}
		for _, text := range append(one.whole, one.heads...) {
			if !strings.Contains(screen.String(), text) {
				t.Errorf("%s without %q:\n%s", what, text, screen)
			}
		}
		for line := range strings.Lines(screen.String()) {
			if n := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", what, n, line)
			}
		}
	}
}
