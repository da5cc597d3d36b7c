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

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type taskCommands struct{ *tool }

func (t taskCommands) command() *cli.Command {
	return noun("task tasks", "list, follow, edit, retry, cancel and undo tasks",
		t.verb("list", "list tasks, newest first",
			`The list has no payloads; "task get" shows them. --sort sorts the tasks of one page. For the next page,
give --before with the last id of this page. -o json has that id as "next", which is null on the last page.

Example:
  holdfast task list --state ready,running --queue mail --limit 20`,
			plain(t.list), outputFlag(), stateFlag(), filterFlags(), listFlags()),
		t.verb("count", "count tasks by state",
			`Example:
  holdfast task count --type http -o json`,
			plain(t.count), outputFlag(), watchFlag(), filterFlags()),
		t.verb("get ID", "show one task with its payload, its values and its attempts",
			`For a task that failed, the command shows the error, the worker, the response of the target and the stack of a
panic. With -o json, "attempts" has all details of its recorded attempts. The values are the output, the progress, the
checkpoint and the steps that the handler has stored. A table shows only the beginning of long values of steps.

Example:
  holdfast task get 42`,
			reads(t.tool, openCheckedStore, t.get), outputFlag(), watchFlag()),
		t.verb("explain ID", "say why a task does not run, and what happens next",
			`The times and limits follow from the settings of the worker that runs the task, or of the newest worker that
may claim it. If no such worker publishes settings for the type, they follow from the settings of this command. A
policy in the code of a worker may decide differently.

Example:
  holdfast task explain 42`,
			reads(t.tool, openCheckedStore, t.explain), outputFlag(), watchFlag()),
		t.verb("attempts ID", "list the recorded attempts of a task, oldest first",
			`By default each attempt that did not succeed is recorded, and the success that follows it; see the setting
keep_attempts. With -o json each attempt has all stored details: the error, the stack and the response of the target.

Example:
  holdfast task attempts 42 -o json`,
			reads(t.tool, openCheckedStore, t.attempts), outputFlag(), sortFlag()),
		t.verb("output ID", "print the output of a task as JSON",
			`The output is what the handler has stored with the success of the task. The exit code is 3 if there is none.

Example:
  holdfast task output 42`,
			reads(t.tool, openCheckedStore, t.output)),
		t.editCommand(),
		t.verb("retry ID...", "make dead or cancelled tasks ready again, with all their attempts",
			`With several ids the command tries each of them. The exit code is 5 if it could retry only some.

Example:
  holdfast task retry 42 43`,
			t.act(store.ActionRetry), outputFlag()),
		t.verb("cancel ID...", "stop tasks that are ready, running or dead",
			`If the task is running, the worker cancels the context of its handler, on any machine. Effects of the handler
are not undone. With several ids the command tries each of them. The exit code is 5 if it could cancel only some.

Example:
  holdfast task cancel 42`,
			t.act(store.ActionCancel), outputFlag()),
		t.undoCommand(),
		t.verb("wait ID...", "wait until tasks are done, dead, cancelled or archived",
			`Prints the final state of each task. The exit code is 0 if every task is done, 1 if a task is dead, cancelled
or archived, and 124 if the timeout expires first.

Example:
  holdfast task wait 42 --timeout 30s`,
			reads(t.tool, openCheckedStore, t.wait), outputFlag()),
	)
}

func (t taskCommands) list(ctx context.Context, c *cli.Context) error {
	f, err := filter(c)
	if err != nil {
		return err
	}
	return listTasks(ctx, t.tool, c, f, "no tasks match",
		column[surface.ListedTask]{"state", func(task surface.ListedTask) string { return string(task.State) }},
		column[surface.ListedTask]{"failures", func(task surface.ListedTask) string { return failures(task.Task) }},
		column[surface.ListedTask]{"created", func(task surface.ListedTask) string { return t.stamp(task.CreatedAt) }},
		column[surface.ListedTask]{"due", func(task surface.ListedTask) string { return t.stamp(due(task.Task)) }},
		column[surface.ListedTask]{"note", note},
	)
}

func failures(task holdfast.Task) string {
	if task.MaxAttempts == 0 { // the worker has the limit
		return fmt.Sprint(task.Failures)
	}
	return fmt.Sprintf("%d/%d", task.Failures, task.MaxAttempts)
}

// due returns the due time of a ready task, and the zero time for any other task.
func due(task holdfast.Task) time.Time {
	if task.State != holdfast.Ready {
		return time.Time{}
	}
	return task.NextRunAt
}

func note(task surface.ListedTask) string {
	if task.Gate != nil {
		return task.Gate.String()
	}
	if task.Doomed {
		return "doomed: " + doomReason(task.Task)
	}
	if task.Parked != "" {
		return "parked: " + task.Parked
	}
	return task.LastError
}

// doomReason returns why a task will die without an attempt, and "" if it will not.
func doomReason(task holdfast.Task) string {
	if !task.Doomed {
		return ""
	}
	return "an earlier ordered task of its key is dead"
}

func (t taskCommands) count(ctx context.Context, c *cli.Context) error {
	f, err := filter(c)
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		f, err := b.KnownFilter(ctx, f)
		if err != nil {
			return err
		}
		by, err := b.Store.Count(ctx, f)
		if err != nil {
			return err
		}
		return printItem(t.tool, c, surface.CountsOf(by), func() error {
			err := printTable(t.tool, holdfast.States(), "", []column[holdfast.State]{
				{"state", func(state holdfast.State) string { return string(state) }},
				{"tasks", func(state holdfast.State) string { return fmt.Sprint(by.By[state]) }},
			})
			if by.Next != 0 {
				t.say("the scan stopped after a second, at task %s: these are the newer tasks", by.Next)
			}
			return err
		})
	})
}

func (t taskCommands) get(ctx context.Context, c *cli.Context, b *app.Backend, r one[holdfast.TaskID]) error {
	details, err := surface.Task(ctx, b, r.ID)
	if err != nil {
		return err
	}
	return printItem(t.tool, c, details, func() error {
		task, attempts := details.ListedTask, details.Attempts
		name, err := workerOf(ctx, b, task.Task, attempts)
		if err != nil {
			return err
		}
		err = errors.Join(t.describe(task, attempts, name, details.KeptUntil), t.describeValues(details.Values, task.Attempt))
		if err != nil || len(attempts) == 0 {
			return err
		}
		fmt.Fprintln(t.stdout)
		return printList(t.tool, c, "attempts", attempts, "", t.attemptColumns()...)
	})
}

// workerOf returns the name of the worker that runs the task, or of the worker of the last attempt that did not
// succeed.
func workerOf(ctx context.Context, b *app.Backend, task holdfast.Task, attempts []holdfast.Attempt) (string, error) {
	if task.State != holdfast.Running {
		if len(attempts) == 0 || task.State == holdfast.Done {
			return "", nil
		}
		last := attempts[len(attempts)-1]
		return workerName(last.WorkerName, last.Worker), nil
	}
	workers, err := b.Store.Workers(ctx, false)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(workers, func(w store.Worker) bool { return w.ID == task.Worker })
	if i < 0 {
		return workerName("", task.Worker), nil // the worker has ended, and a janitor will hand the task back
	}
	name := workerName(workers[i].Name, task.Worker)
	stuck := workers[i].Report.Stuck
	if at := slices.IndexFunc(stuck, func(s store.StuckTask) bool { return s.Task == task.ID && s.Attempt == task.Attempt }); at >= 0 {
		name += fmt.Sprintf(", stuck: the handler has ignored the end of its context for %s", surface.Duration(stuck[at].For))
	}
	return name, nil
}

func workerName(name string, worker holdfast.WorkerID) string {
	return strings.TrimSpace(fmt.Sprintf("%s (worker %s)", name, worker))
}

// causeOfDeath returns why a task is dead, and "" for a task in another state.
func causeOfDeath(task holdfast.Task, attempts []holdfast.Attempt) string {
	if task.State != holdfast.Dead || len(attempts) == 0 {
		return ""
	}
	last := attempts[len(attempts)-1]
	switch {
	case last.Class == "once":
		return "its type runs at most once, and an attempt had started"
	case last.Class == "crash":
		return "its worker crashed during " + plural(task.Crashes, "attempt")
	case task.Failures >= task.MaxAttempts:
		return plural(task.Failures, "attempt") + " failed, which is the limit"
	}
	return "the last error (" + last.Class + ") allows no further attempt"
}

// groupOf returns the fingerprint of a dead task, and "" for a task in another state.
func groupOf(task holdfast.Task, attempts []holdfast.Attempt) string {
	if task.State != holdfast.Dead || len(attempts) == 0 {
		return ""
	}
	return holdfast.Fingerprint(task.Type, attempts[len(attempts)-1].Report())
}

// labelWidth is the width of the labels that describe prints.
const labelWidth = 17

// field is a label and its text.
type field struct{ name, text string }

// fields prints labels and texts on one line each, so that no value can look like another field. It leaves out the
// labels without a text.
func (t *terminal) fields(lines []field) error {
	for _, line := range lines {
		if err := t.block(line.name, singleLine(line.text)); err != nil {
			return err
		}
	}
	return nil
}

// block prints a label and a text, whose lines the caller has indented.
func (t *terminal) block(name, text string) error {
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintf(t.stdout, "%-*s%s\n", labelWidth, name, printable(text))
	return err
}

// describe prints a task as lines with a label and a text. It leaves out lines without a text.
func (t taskCommands) describe(listed surface.ListedTask, attempts []holdfast.Attempt, name string, keptUntil time.Time) error {
	task, gate := listed.Task, ""
	if listed.Gate != nil {
		gate = listed.Gate.String()
	}
	var details json.RawMessage // the details that the handler stored at the latest failure with details
	var stack string            // the stack of the latest panic
	if task.State != holdfast.Done {
		for _, a := range attempts {
			if len(a.Details) > 0 {
				details = a.Details
			}
			if a.Stack != "" {
				stack = a.Stack
			}
		}
	}
	err := t.fields([]field{
		{"id", task.ID.String()},
		{"type", task.Type},
		{"queue", task.Queue},
		{"priority", unlessNormal(task.Priority)},
		{"state", string(task.State)},
		{"gate", gate},
		{"parked", task.Parked},
		{"unique", task.Unique},
		{"key", task.Key},
		{"ordered", yes(task.Ordered)},
		{"doomed", doomReason(task)},
		{"topic", task.Topic},
		{"batch", unlessZero(task.Batch)},
		{"tags", strings.Join(task.Tags, " ")},
		{"idempotency key", task.ImportedKey},
		{"trace", task.Trace},
		{"attempt", fmt.Sprint(task.Attempt)},
		{"failures", strings.Replace(failures(task), "/", " of ", 1)},
		{"crashes", unlessZero(task.Crashes)},
		{"deferrals", unlessZero(task.Deferrals)},
		{"worker", name},
		{"created", t.absoluteAndRelative(task.CreatedAt)},
		{"due", t.absoluteAndRelative(due(task))},
		{"started", t.absoluteAndRelative(task.StartedAt)},
		{"finished", t.absoluteAndRelative(task.FinishedAt)},
		{"kept until", t.absoluteAndRelative(keptUntil)},
		{"cause of death", causeOfDeath(task, attempts)},
		{"group", groupOf(task, attempts)},
		{"last error", task.LastError},
	})
	return errors.Join(err,
		t.block("stack", hanging(stack)),
		t.block("response", indented(unescaped(details))),
		t.block("payload", indented(task.Payload)))
}

// hanging returns a text whose lines after the first one are aligned with the texts that describe prints.
func hanging(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", labelWidth))
}

// unescaped undoes the HTML escapes of encoding/json.
func unescaped(text json.RawMessage) json.RawMessage {
	return json.RawMessage(strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(text)))
}

// indented returns JSON on several lines, aligned with the texts that describe prints.
func indented(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, text, strings.Repeat(" ", labelWidth), "  ") != nil {
		return singleLine(string(text))
	}
	return b.String()
}

// unlessNormal returns the name of a priority, or "" for the usual one.
func unlessNormal(p holdfast.Priority) string {
	if p == holdfast.PriorityNormal {
		return ""
	}
	return p.String()
}

func (t taskCommands) attemptColumns() []column[holdfast.Attempt] {
	return []column[holdfast.Attempt]{
		{"attempt", func(a holdfast.Attempt) string { return fmt.Sprint(a.Attempt) }},
		{"event", func(a holdfast.Attempt) string { return string(a.Event) }},
		{"class", func(a holdfast.Attempt) string { return a.Class }},
		{"finished", func(a holdfast.Attempt) string { return t.stamp(a.FinishedAt) }},
		{"took", took},
		{"worker", func(a holdfast.Attempt) string { return a.WorkerName }},
		{"error", func(a holdfast.Attempt) string { return a.Error }},
	}
}

func took(a holdfast.Attempt) string {
	if a.StartedAt.IsZero() {
		return ""
	}
	return surface.Duration(max(time.Duration(0), a.FinishedAt.Sub(a.StartedAt))).String()
}

func (t taskCommands) attempts(ctx context.Context, c *cli.Context, b *app.Backend, r one[holdfast.TaskID]) error {
	attempts, err := b.Store.Attempts(ctx, r.ID)
	if err != nil {
		return err
	}
	none := fmt.Sprintf("no attempt of task %s is recorded; it did not fail, or keep_attempts is none", r.ID)
	return printList(t.tool, c, "attempts", attempts, none, t.attemptColumns()...)
}

// act returns an action that retries or cancels the tasks whose ids are the arguments.
func (t taskCommands) act(requested store.Action) action {
	return t.change(func(b *app.Backend, ctx context.Context, by store.Actor, id holdfast.TaskID) (holdfast.Task, error) {
		return b.Act(ctx, by, id, requested)
	})
}

// tasks is the request of a command about several tasks.
type tasks struct {
	IDs []holdfast.TaskID `arg:"..."`
}

// change returns an action that changes each of the tasks whose ids are the arguments.
func (t taskCommands) change(request func(*app.Backend, context.Context, store.Actor, holdfast.TaskID) (holdfast.Task, error)) action {
	return changes(t.tool, openCheckedStore, func(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r tasks) error {
		return changeEach(t.tool, c, r.IDs, func(id holdfast.TaskID) (surface.TaskState, error) {
			task, err := request(b, ctx, by, id)
			return surface.TaskState{ID: task.ID, State: task.State}, err
		})
	})
}

// timeout is the part of a request that limits a wait.
type timeout struct {
	Timeout time.Duration `json:"timeout" flag:"DURATION" doc:"Stop waiting after this duration, for example 30s; default never."`
}

// context returns a context that ends with ctx or with the timeout.
func (r timeout) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, r.Timeout)
}

// waitRequest is the request of "task wait".
type waitRequest struct {
	tasks
	timeout
}

func (t taskCommands) wait(ctx context.Context, c *cli.Context, b *app.Backend, r waitRequest) error {
	waiting, cancel := r.context(ctx)
	defer cancel()
	ended := []surface.TaskState{}
	var failed []error
	for _, id := range r.IDs {
		task, err := b.Await(waiting, id)
		switch {
		case err != nil && ctx.Err() == nil && waiting.Err() != nil:
			err = timedOut(task, id, r.Timeout)
			fallthrough
		case err != nil:
			return errors.Join(printStates(t.tool, c, ended), errors.Join(failed...), err)
		case task.State != holdfast.Done:
			failed = append(failed, notDone(task))
		}
		ended = append(ended, surface.TaskState{ID: task.ID, State: task.State})
	}
	return errors.Join(printStates(t.tool, c, ended), errors.Join(failed...))
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

func (t taskCommands) explain(ctx context.Context, c *cli.Context, b *app.Backend, r one[holdfast.TaskID]) error {
	e, err := b.Explain(ctx, r.ID)
	if err != nil {
		return err
	}
	return printItem(t.tool, c, e, func() error { return t.describeExplanation(e) })
}

// describeExplanation prints an explanation as lines with a label and a text, and the attempts as a table.
func (t taskCommands) describeExplanation(e explain.Explanation) error {
	var text strings.Builder
	paragraph := func(label string, lines []string) {
		for _, line := range lines {
			for part := range strings.SplitSeq(t.wrapped(singleLine(line)), "\n") {
				fmt.Fprintf(&text, "%-*s%s\n", labelWidth, label, strings.TrimSpace(part))
				label = ""
			}
		}
	}
	var causes []string
	for _, cause := range e.Causes {
		causes = append(causes, cause.Text)
	}
	paragraph("state", []string{string(e.State)})
	paragraph("why", causes)
	if !e.NextStart.IsZero() {
		paragraph("due", []string{t.absoluteAndRelative(e.NextStart)})
	}
	next := slices.Clone(e.Next)
	if i := slices.Index(next, explain.RetriesOnce); i >= 0 {
		next[i] += fmt.Sprintf(": holdfast task retry %s", e.Task)
	}
	paragraph("next", next)
	paragraph("limits", e.Limits)
	if e.Schedule != nil {
		paragraph("schedule", []string{e.Schedule.Text})
	}
	if e.Slice != nil {
		paragraph("slice", []string{e.Slice.Text})
	}
	if e.Pass != nil {
		paragraph("shard job", []string{e.Pass.Text})
	}
	if e.Batch != nil {
		paragraph("batch", []string{e.Batch.Text})
	}
	if _, err := t.stdout.Write([]byte(text.String())); err != nil || len(e.Attempts) == 0 {
		return err
	}
	fmt.Fprintln(t.stdout)
	return printTable(t.tool, e.Attempts, "", t.attemptColumns())
}
