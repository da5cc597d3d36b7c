package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

func (t *tool) taskCommand() *cli.Command {
	return &cli.Command{
		Name:    "task",
		Aliases: []string{"tasks"},
		Usage:   "list, follow, retry and cancel tasks",
		Subcommands: []*cli.Command{{
			Name:  "list",
			Usage: "list tasks, newest first",
			Description: `Payloads are not listed; "task get" shows them. For the next page give --before the last id.

Example:
  holdfast task list --state ready,running --lane mail --limit 20`,
			Flags:  append([]cli.Flag{outputFlag(), stateFlag()}, append(filterFlags(), limitFlag(50), beforeFlag())...),
			Action: t.do(t.taskList),
		}, {
			Name:  "count",
			Usage: "count tasks by state",
			Description: `Example:
  holdfast task count --type http -o json`,
			Flags:  append([]cli.Flag{outputFlag()}, filterFlags()...),
			Action: t.do(t.taskCount),
		}, {
			Name:      "get",
			Usage:     "show one task with its payload and attempts",
			ArgsUsage: "ID",
			Description: `With -o json, the task without the attempts: see "task attempts".

Example:
  holdfast task get 42`,
			Flags:  []cli.Flag{outputFlag()},
			Action: t.do(t.taskGet),
		}, {
			Name:      "attempts",
			Usage:     "list the attempts of a task that did not succeed, oldest first",
			ArgsUsage: "ID",
			Description: `With -o json each has everything that was kept: error, stack, the answer of the target.

Example:
  holdfast task attempts 42 -o json`,
			Flags:  []cli.Flag{outputFlag()},
			Action: t.do(t.taskAttempts),
		}, t.taskRetryCommand(), t.taskCancelCommand(), t.taskWaitCommand()},
	}
}

func stateFlag() cli.Flag {
	return &cli.StringFlag{Name: "state", Usage: "only tasks in one of the states `STATE,...`: " + strings.Join(stateNames(), ", ")}
}

func filterFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "type", Usage: "only tasks of the `TYPE`"},
		&cli.StringFlag{Name: "lane", Usage: "only tasks of the `LANE`"},
		&cli.StringFlag{Name: "error", Usage: "only tasks whose last error contains `TEXT`, in any case"},
	}
}

func limitFlag(standard int) cli.Flag {
	f := &cli.IntFlag{Name: "limit", Value: standard, Usage: "at most `N` tasks"}
	if standard > 0 {
		f.Usage += fmt.Sprintf("; default %d", standard)
	} else {
		f.Usage += "; default all"
	}
	return f
}

func beforeFlag() cli.Flag {
	return &cli.StringFlag{Name: "before", Usage: "only tasks with an id smaller than `ID`"}
}

func stateNames() []string {
	var names []string
	for _, state := range holdfast.States() {
		names = append(names, string(state))
	}
	return names
}

// filter reads the flags of filterFlags, stateFlag, limitFlag and beforeFlag, those that the
// command has.
func filter(c *cli.Context) (store.Filter, error) {
	f := store.Filter{Type: c.String("type"), Lane: c.String("lane"), Error: c.String("error"), Limit: c.Int("limit")}
	for _, name := range []string{"type", "lane", "error", "state"} {
		if c.IsSet(name) && c.String(name) == "" { // an empty variable in a script must not mean everything
			return f, usageOf(commandName(c), "--%s is empty; leave it out to mean any", name)
		}
	}
	if c.IsSet("limit") && f.Limit < 1 {
		return f, usageOf(commandName(c), "--limit %d must be at least 1", f.Limit)
	}
	for name := range strings.SplitSeq(c.String("state"), ",") {
		state := holdfast.State(strings.TrimSpace(name))
		switch {
		case state == "":
		case !state.Valid():
			return f, usageOf(commandName(c), "unknown state %q; use %s", name, strings.Join(stateNames(), ", "))
		case !slices.Contains(f.States, state):
			f.States = append(f.States, state)
		}
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

func (t *tool) taskList(ctx context.Context, c *cli.Context) error {
	return t.listTasks(ctx, c, nil, "no tasks match",
		column[holdfast.Task]{"state", func(task holdfast.Task) string { return string(task.State) }},
		column[holdfast.Task]{"failures", failures},
		column[holdfast.Task]{"created", func(task holdfast.Task) string { return stamp(task.CreatedAt) }},
		column[holdfast.Task]{"due", due},
		column[holdfast.Task]{"note", note},
	)
}

// listTasks lists what the filter's flags choose. states, if any, are the only ones.
func (t *tool) listTasks(ctx context.Context, c *cli.Context, states []holdfast.State, none string, columns ...column[holdfast.Task]) error {
	f, err := filter(c)
	if err != nil {
		return err
	}
	if states != nil {
		f.States = states
	}
	columns = append([]column[holdfast.Task]{
		{"id", func(task holdfast.Task) string { return task.ID.String() }},
		{"type", func(task holdfast.Task) string { return task.Type }},
		{"lane", func(task holdfast.Task) string { return task.Lane }},
	}, columns...)
	return t.withStore(ctx, c, func(b *app.Backend) error {
		tasks, err := b.Store.List(ctx, f)
		if err != nil {
			return err
		}
		if err := list(t, c, tasks, none, columns...); err != nil {
			return err
		}
		if len(tasks) == f.Limit {
			t.say("there may be more: add --before %s for the next page", tasks[len(tasks)-1].ID)
		}
		return nil
	})
}

func failures(task holdfast.Task) string {
	return fmt.Sprintf("%d/%d", task.Failures, task.MaxAttempts)
}

func due(task holdfast.Task) string {
	if task.State != holdfast.Ready {
		return ""
	}
	return stamp(task.NextRunAt)
}

func note(task holdfast.Task) string {
	if task.Parked != "" {
		return clipped("parked: "+task.Parked, 60)
	}
	return clipped(task.LastError, 60)
}

// counts has the states in the order people list them.
type counts struct {
	Ready     int64 `json:"ready"`
	Running   int64 `json:"running"`
	Done      int64 `json:"done"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`
	Archived  int64 `json:"archived"`
}

func (t *tool) taskCount(ctx context.Context, c *cli.Context) error {
	f, err := filter(c)
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		by, err := b.Store.Count(ctx, f)
		if err != nil {
			return err
		}
		if chosen, _ := format(c); chosen != asTable {
			return jsonLines(t.stdout, []counts{{
				by[holdfast.Ready], by[holdfast.Running], by[holdfast.Done],
				by[holdfast.Dead], by[holdfast.Cancelled], by[holdfast.Archived],
			}})
		}
		var rows []table.Row
		for _, state := range holdfast.States() {
			rows = append(rows, table.Row{string(state), fmt.Sprint(by[state])})
		}
		return t.table(table.Row{"state", "tasks"}, rows)
	})
}

func (t *tool) taskGet(ctx context.Context, c *cli.Context) error {
	id, err := holdfast.ParseTaskID(c.Args().First())
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		task, err := b.Task(ctx, id)
		if err != nil {
			return err
		}
		if chosen, _ := format(c); chosen != asTable {
			return jsonLines(t.stdout, []holdfast.Task{task})
		}
		attempts, err := b.Store.Attempts(ctx, id)
		if err != nil {
			return err
		}
		if err := t.describeTask(task); err != nil || len(attempts) == 0 {
			return err
		}
		fmt.Fprintln(t.stdout)
		return list(t, c, attempts, "", attemptColumns...)
	})
}

// labelWidth is the width of the names in what describeTask prints.
const labelWidth = 17

// describeTask prints a task for people, a line for each thing there is to say.
func (t *tool) describeTask(task holdfast.Task) error {
	var payload bytes.Buffer
	if json.Indent(&payload, task.Payload, strings.Repeat(" ", labelWidth), "  ") != nil {
		payload.Reset()
		payload.Write(task.Payload)
	}
	var b strings.Builder
	for _, line := range []struct{ name, text string }{
		{"id", task.ID.String()},
		{"type", task.Type},
		{"lane", task.Lane},
		{"state", string(task.State)},
		{"parked", task.Parked},
		{"unique", task.Unique},
		{"idempotency key", task.Key},
		{"attempt", fmt.Sprint(task.Attempt)},
		{"failures", fmt.Sprintf("%d of %d", task.Failures, task.MaxAttempts)},
		{"crashes", nonzero(task.Crashes)},
		{"deferrals", nonzero(task.Deferrals)},
		{"run", nonzero(int(task.Run))},
		{"created", stamp(task.CreatedAt)},
		{"due", due(task)},
		{"started", stamp(task.StartedAt)},
		{"finished", stamp(task.FinishedAt)},
		{"last error", singleLine(task.LastError)},
		{"payload", payload.String()},
	} {
		if line.text != "" {
			fmt.Fprintf(&b, "%-*s%s\n", labelWidth, line.name, printable(line.text))
		}
	}
	_, err := t.stdout.Write([]byte(b.String()))
	return err
}

func nonzero(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

var attemptColumns = []column[holdfast.Attempt]{
	{"attempt", func(a holdfast.Attempt) string { return fmt.Sprint(a.Attempt) }},
	{"event", func(a holdfast.Attempt) string { return string(a.Event) }},
	{"class", func(a holdfast.Attempt) string { return a.Class }},
	{"finished", func(a holdfast.Attempt) string { return stamp(a.FinishedAt) }},
	{"took", took},
	{"worker", func(a holdfast.Attempt) string { return a.Worker }},
	{"error", func(a holdfast.Attempt) string { return clipped(a.Error, 80) }},
}

func took(a holdfast.Attempt) string {
	if a.StartedAt.IsZero() {
		return ""
	}
	return duration(max(time.Duration(0), a.FinishedAt.Sub(a.StartedAt))).String()
}

func (t *tool) taskAttempts(ctx context.Context, c *cli.Context) error {
	id, err := holdfast.ParseTaskID(c.Args().First())
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		attempts, err := b.Store.Attempts(ctx, id)
		if err != nil {
			return err
		}
		return list(t, c, attempts, fmt.Sprintf("no attempt of task %s has failed", id), attemptColumns...)
	})
}
