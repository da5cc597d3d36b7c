package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

// taskCommands are the commands of the noun task.
type taskCommands struct{ *tool }

func (t taskCommands) command() *cli.Command {
	return &cli.Command{
		Name:    "task",
		Aliases: []string{"tasks"},
		Usage:   "list, follow, retry and cancel tasks",
		Subcommands: []*cli.Command{{
			Name:  "list",
			Usage: "list tasks, newest first",
			Description: `Payloads are not listed; "task get" shows them. --sort orders the tasks of a page. For the next page give
--before the last id of this one: -o json has it as "next", which is null on the last page.

Example:
  holdfast task list --state ready,running --lane mail --limit 20`,
			Flags:  append([]cli.Flag{outputFlag(), stateFlag()}, append(filterFlags(), listFlags()...)...),
			Action: t.do(t.list),
		}, {
			Name:  "count",
			Usage: "count tasks by state",
			Description: `Example:
  holdfast task count --type http -o json`,
			Flags:  append([]cli.Flag{outputFlag(), watchFlag()}, filterFlags()...),
			Action: t.do(t.count),
		}, {
			Name:      "get",
			Usage:     "show one task with its payload and attempts",
			ArgsUsage: "ID",
			Description: `For a task that has failed it shows why, on which worker, and what the target answered. With -o json the
attempts that did not succeed are in "attempts".

Example:
  holdfast task get 42`,
			Flags:  []cli.Flag{outputFlag(), watchFlag()},
			Action: t.do(t.get),
		}, {
			Name:      "attempts",
			Usage:     "list the attempts of a task that did not succeed, oldest first",
			ArgsUsage: "ID",
			Description: `With -o json each has everything that was kept: error, stack, the answer of the target.

Example:
  holdfast task attempts 42 -o json`,
			Flags:  []cli.Flag{outputFlag(), sortFlag()},
			Action: t.do(t.attempts),
		}, t.retryCommand(), t.cancelCommand(), t.waitCommand()},
	}
}

func (t taskCommands) list(ctx context.Context, c *cli.Context) error {
	return listTasks(ctx, t.tool, c, nil, "no tasks match",
		column[holdfast.Task]{"state", func(task holdfast.Task) string { return string(task.State) }},
		column[holdfast.Task]{"failures", failures},
		column[holdfast.Task]{"created", func(task holdfast.Task) string { return t.stamp(task.CreatedAt) }},
		column[holdfast.Task]{"due", func(task holdfast.Task) string { return t.stamp(due(task)) }},
		column[holdfast.Task]{"note", note},
	)
}

func failures(task holdfast.Task) string {
	if task.MaxAttempts == 0 { // the worker's settings decide
		return fmt.Sprint(task.Failures)
	}
	return fmt.Sprintf("%d/%d", task.Failures, task.MaxAttempts)
}

// due returns when a task that waits may run, and the zero time for any other one.
func due(task holdfast.Task) time.Time {
	if task.State != holdfast.Ready {
		return time.Time{}
	}
	return task.NextRunAt
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

func (t taskCommands) count(ctx context.Context, c *cli.Context) error {
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

func (t taskCommands) get(ctx context.Context, c *cli.Context) error {
	id, err := holdfast.ParseTaskID(c.Args().First())
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		task, err := b.Task(ctx, id)
		if err != nil {
			return err
		}
		attempts, err := b.Store.Attempts(ctx, id)
		if err != nil {
			return err
		}
		if chosen, _ := format(c); chosen != asTable {
			return jsonLines(t.stdout, []story{{task, append([]holdfast.Attempt{}, attempts...)}})
		}
		worker, err := workerOf(ctx, b, task, attempts)
		if err != nil {
			return err
		}
		if err := t.describe(task, attempts, worker); err != nil || len(attempts) == 0 {
			return err
		}
		fmt.Fprintln(t.stdout)
		return list(t.tool, c, attempts, "", t.attemptColumns()...)
	})
}

// story is a task with its attempts, as it is printed.
type story struct {
	holdfast.Task
	Attempts []holdfast.Attempt `json:"attempts"`
}

// workerOf names the worker that runs the task, or else the one of the last attempt that did not succeed.
func workerOf(ctx context.Context, b *app.Backend, task holdfast.Task, attempts []holdfast.Attempt) (string, error) {
	if task.State != holdfast.Running {
		if len(attempts) == 0 || task.State == holdfast.Done {
			return "", nil
		}
		last := attempts[len(attempts)-1]
		return workerName(last.Worker, last.Run), nil
	}
	runs, err := b.Store.Runs(ctx, false)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(runs, func(r store.Run) bool { return r.ID == task.Run })
	if i < 0 {
		return workerName("", task.Run), nil // it is gone, and a janitor takes the task back
	}
	return workerName(runs[i].Name, task.Run), nil
}

func workerName(worker string, run holdfast.RunID) string {
	return strings.TrimSpace(fmt.Sprintf("%s (run %s)", worker, run))
}

// causeOfDeath says why a task is dead; nothing of any other one.
func causeOfDeath(task holdfast.Task, attempts []holdfast.Attempt) string {
	if task.State != holdfast.Dead || len(attempts) == 0 {
		return ""
	}
	last := attempts[len(attempts)-1]
	switch {
	case last.Class == "crash":
		return "its worker ended during " + several(task.Crashes, "attempt")
	case task.Failures >= task.MaxAttempts:
		return several(task.Failures, "attempt") + " failed, as many as allowed"
	}
	return "no further attempt is allowed after the last error (" + last.Class + ")"
}

// labelWidth is the width of the names in what describeTask prints.
const labelWidth = 17

// describeTask prints a task for people, a line for each thing there is to say.
func (t taskCommands) describe(task holdfast.Task, attempts []holdfast.Attempt, worker string) error {
	var details json.RawMessage // what the handler kept of the last failure
	if len(attempts) > 0 && task.State != holdfast.Done {
		details = attempts[len(attempts)-1].Details
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
		{"failures", strings.Replace(failures(task), "/", " of ", 1)},
		{"crashes", nonzero(task.Crashes)},
		{"deferrals", nonzero(task.Deferrals)},
		{"worker", worker},
		{"created", t.both(task.CreatedAt)},
		{"due", t.both(due(task))},
		{"started", t.both(task.StartedAt)},
		{"finished", t.both(task.FinishedAt)},
		{"cause of death", causeOfDeath(task, attempts)},
		{"last error", singleLine(task.LastError)},
		{"response", indented(readable(details))},
		{"payload", indented(task.Payload)},
	} {
		if line.text != "" {
			fmt.Fprintf(&b, "%-*s%s\n", labelWidth, line.name, printable(line.text))
		}
	}
	_, err := t.stdout.Write([]byte(b.String()))
	return err
}

// readable undoes the escapes that encoding/json writes for browsers.
func readable(text json.RawMessage) json.RawMessage {
	return json.RawMessage(strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(text)))
}

// indented returns JSON on several lines, which stand below its label.
func indented(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, text, strings.Repeat(" ", labelWidth), "  ") != nil {
		return string(text)
	}
	return b.String()
}

func nonzero(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func (t taskCommands) attemptColumns() []column[holdfast.Attempt] {
	return []column[holdfast.Attempt]{
		{"attempt", func(a holdfast.Attempt) string { return fmt.Sprint(a.Attempt) }},
		{"event", func(a holdfast.Attempt) string { return string(a.Event) }},
		{"class", func(a holdfast.Attempt) string { return a.Class }},
		{"finished", func(a holdfast.Attempt) string { return t.stamp(a.FinishedAt) }},
		{"took", took},
		{"worker", func(a holdfast.Attempt) string { return a.Worker }},
		{"error", func(a holdfast.Attempt) string { return clipped(a.Error, 80) }},
	}
}

func took(a holdfast.Attempt) string {
	if a.StartedAt.IsZero() {
		return ""
	}
	return duration(max(time.Duration(0), a.FinishedAt.Sub(a.StartedAt))).String()
}

func (t taskCommands) attempts(ctx context.Context, c *cli.Context) error {
	id, err := holdfast.ParseTaskID(c.Args().First())
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		attempts, err := b.Store.Attempts(ctx, id)
		if err != nil {
			return err
		}
		return list(t.tool, c, attempts, fmt.Sprintf("no attempt of task %s has failed", id), t.attemptColumns()...)
	})
}

func (t taskCommands) retryCommand() *cli.Command {
	return &cli.Command{
		Name:      "retry",
		Usage:     "send dead or cancelled tasks again, with a fresh budget of attempts",
		ArgsUsage: "ID...",
		Description: `With several ids each is tried, and the exit code is 5 if only some could be moved.

Example:
  holdfast task retry 42 43`,
		Flags:  []cli.Flag{outputFlag()},
		Action: t.do(t.move(holdfast.EventRequeue)),
	}
}

func (t taskCommands) cancelCommand() *cli.Command {
	return &cli.Command{
		Name:      "cancel",
		Usage:     "stop tasks that are ready, running or dead",
		ArgsUsage: "ID...",
		Description: `A running task's handler is told to stop, on whichever machine it runs; what it did until
then is not undone. With several ids each is tried, and the exit code is 5 if only some could be
moved.

Example:
  holdfast task cancel 42`,
		Flags:  []cli.Flag{outputFlag()},
		Action: t.do(t.move(holdfast.EventCancel)),
	}
}

// move is a command that does what a person asks of the tasks named as arguments.
func (t taskCommands) move(event holdfast.Event) action {
	return func(ctx context.Context, c *cli.Context) error {
		ids, err := taskIDs(c)
		if err != nil {
			return err
		}
		return t.withStore(ctx, c, func(b *app.Backend) error {
			return each(t.tool, c, ids, func(id holdfast.TaskID) (standing, error) {
				task, err := b.Move(ctx, id, event)
				return standing{task.ID, task.State}, err
			})
		})
	}
}

func (t taskCommands) waitCommand() *cli.Command {
	return &cli.Command{
		Name:      "wait",
		Usage:     "wait until tasks are finished",
		ArgsUsage: "ID...",
		Description: `Prints the state each task ended in. The exit code is 0 if every one is done, 1 if one is dead,
cancelled or archived, and 124 if the time is over first.

Example:
  holdfast task wait 42 --timeout 30s`,
		Flags: []cli.Flag{
			outputFlag(),
			&cli.DurationFlag{Name: "timeout", Usage: "give up after `DURATION`, for example 30s; default never"},
		},
		Action: t.do(t.wait),
	}
}

func (t taskCommands) wait(ctx context.Context, c *cli.Context) error {
	ids, err := taskIDs(c)
	if err != nil {
		return err
	}
	limit := c.Duration("timeout")
	if c.IsSet("timeout") && limit <= 0 {
		return usageOf(commandName(c), "--timeout %s must be more than 0", limit)
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		waiting, cancel := ctx, context.CancelFunc(func() {})
		if limit > 0 {
			waiting, cancel = context.WithTimeout(ctx, limit)
		}
		defer cancel()
		ended := []standing{}
		var failed []error
		for _, id := range ids {
			task, err := b.Await(waiting, id)
			switch {
			case err != nil && ctx.Err() == nil && waiting.Err() != nil:
				err = timedOut(task, id, limit)
				fallthrough
			case err != nil:
				return errors.Join(standings(t.tool, c, ended), errors.Join(failed...), err)
			case task.State != holdfast.Done:
				failed = append(failed, notDone(task))
			}
			ended = append(ended, standing{task.ID, task.State})
		}
		return errors.Join(standings(t.tool, c, ended), errors.Join(failed...))
	})
}

func timedOut(task holdfast.Task, id holdfast.TaskID, limit time.Duration) error {
	state := "not finished"
	if task.ID != 0 {
		state = "still " + string(task.State)
	}
	return &failure{err: fmt.Errorf("task %s is %s after %s", id, state, limit), code: exitTimeout}
}

func notDone(task holdfast.Task) error {
	text := fmt.Sprintf("task %s is %s", task.ID, task.State)
	if task.LastError != "" {
		text += ": " + clipped(task.LastError, 200)
	}
	return errors.New(text)
}
