package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type operationCommands struct{ *tool }

func (t operationCommands) command() *cli.Command {
	control := func(name, usage, description string, to store.OperationState) *cli.Command {
		return t.verb(name+" ID", usage,
			description+"\n\nExample:\n  holdfast operation "+name+" 7",
			changes(t.tool, openCheckedStore, func(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r one[store.ID]) error {
				o, err := operate.SetState(ctx, b.Store, by, r.ID, to)
				if err != nil {
					return err
				}
				if to == store.OperationRunning && o.Failed > 0 {
					t.say("operation %s does not retry the tasks that failed again (%d); %s", o.ID, o.Failed, failedAgain(o.ID))
				}
				return stored(t.printOperation(c, o), "operation %s is %s", o.ID, o.State)
			}), outputFlag())
	}
	return noun("operation operations", "start and control long work on many tasks",
		t.verb("list", "list operations, newest first",
			`An operation applies one action to every task that a filter selects. It continues in the background until
it is done, and survives any crash.

Example:
  holdfast operation list --state running`,
			reads(t.tool, openCheckedStore, t.list), outputFlag(), watchFlag()),
		t.verb("get ID", "show one operation with its counts",
			`"audit list --operation ID --tasks" shows each task that the operation has changed.

Example:
  holdfast operation get 7`,
			reads(t.tool, openCheckedStore, t.get), outputFlag(), watchFlag()),
		t.verb("watch ID", "follow an operation until it ends or stops",
			`On a terminal, a bar shows the progress. Ctrl-C ends only this command. Meanwhile the command makes steps
of the operation itself, so no other process is needed. The exit code is 0 if the operation is done, 5 if it has
stopped, could not change some tasks, or retried tasks that failed again, 1 if it is paused or cancelled, and 124 if the
timeout expires first.

Example:
  holdfast operation watch 7 --timeout 10m`,
			reads(t.tool, openCheckedStore, t.watchOne), outputFlag()),
		t.startCommand(),
		control("pause", "pause a running operation", "No task is changed until the operation is resumed.", store.OperationPaused),
		control("resume", "start a planned operation, or continue a paused or stopped one",
			"An operation that stopped because of failures continues with its next tasks. It leaves the tasks that failed again as\nthey are; \"dead retry --all --operation ID\" retries those.", store.OperationRunning),
		control("cancel", "end an operation before its time", "Tasks that it has changed stay as they are.", store.OperationCancelled),
	)
}

func (t operationCommands) startCommand() *cli.Command {
	return t.verb("start ACTION", "apply an action to every task that matches a search",
		`The actions are retry, archive, restore, cancel, purge and edit. The search must name the states of the tasks.
An edit applies a JSON Patch to payload, queue, priority, max_attempts, run_at and tags of each task; a task that the
patch does not fit, or whose new payload does not fit its type, stays as it is, and is counted. The command tries an
edit on some of the tasks and says how many of them it does not fit. With --plan the operation waits for "operation
resume".

Example:
  holdfast operation start edit -q 'state:dead host:old.example.com' --patch @move.json --dry-run`,
		plain(t.start), outputFlag(), filterFlags()[:1], limitFlag(0), requestFlags[startRequest](), yesFlag(), operationFlags(store.ActionRetry), actorFlags())
}

// startRequest is the part of the request of "operation start" that other commands do not have.
type startRequest struct {
	Patch          string `json:"patch" flag:"JSON" doc:"For an edit: a JSON Patch (RFC 6902) of at most 1000 steps, as JSON, @FILE, or - for stdin."`
	SkipValidation bool   `json:"skip_validation" flag:"-" doc:"Accept a payload that does not fit its type; the audit log shows that."`
	DryRun         bool   `json:"dry_run" flag:"-" doc:"Change nothing; only print what would be done."`
	Plan           bool   `json:"plan" flag:"-" doc:"Store the operation, but do not start it."`
}

// operationStates is the value of the flag --state.
type operationStates []store.OperationState

// UnmarshalText implements encoding.TextUnmarshaler.
func (states *operationStates) UnmarshalText(text []byte) error {
	all := operationStates{
		store.OperationPlanned, store.OperationRunning, store.OperationPaused, store.OperationStopped, store.OperationDone, store.OperationCancelled,
	}
	for word := range strings.SplitSeq(string(text), ",") {
		if !slices.Contains(all, store.OperationState(word)) {
			return fmt.Errorf("%q is not one of %s", word, strings.Trim(fmt.Sprint(all), "[]"))
		}
		*states = append(*states, store.OperationState(word))
	}
	return nil
}

// operationRequest is the part of a request for an operation of any kind.
type operationRequest struct {
	Rate int  `json:"rate" flag:"N" minimum:"1" doc:"Change at most so many tasks per second; default no limit, and 1000 for a retry."`
	Wait bool `json:"wait" flag:"-" doc:"Wait until the operation ends or stops; for a retry, also for the first attempts."`
	timeout
}

// retryRequest is the part of a request for an operation that retries tasks.
type retryRequest struct {
	Ramp        percents      `json:"ramp" flag:"PERCENT,..." doc:"Ends of the steps of a retry; each step waits for the first attempts of the tasks; default 1,5,25,100 from 2 tasks on, without steps that have no tasks; 100 means one step."`
	StopAbove   *int          `json:"stop_above" flag:"PERCENT" minimum:"1" most:"100" doc:"Stop a retry if more than this percentage of the first attempts of a step failed; default 50; 100 means never."`
	StepTimeout time.Duration `json:"step_timeout" flag:"DURATION" doc:"Wait at most so long for the first attempts of a step; default 10m."`
}

// percents is the value of the flag --ramp.
type percents []int

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *percents) UnmarshalText(text []byte) error {
	for word := range strings.SplitSeq(string(text), ",") {
		percent, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return fmt.Errorf("%q must be percentages such as 1,5,25,100", text)
		}
		*p = append(*p, percent)
	}
	return nil
}

// String returns the percentages for a sentence.
func (p percents) String() string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint([]int(p)), "[]"), " ", ", ")
}

// operationFlags returns the flags of a command that starts an operation.
func operationFlags(requested store.Action) []cli.Flag {
	flags := requestFlags[operationRequest]()
	if requested == store.ActionRetry {
		flags = append(flags, requestFlags[retryRequest]()...)
	}
	return flags
}

// readOperation sets the members of r from the flags of operationFlags. It also returns the part of the request with
// the flags --wait and --timeout.
func readOperation(c *cli.Context, r *operate.Request) (operationRequest, error) {
	var how struct {
		operationRequest
		retryRequest
	}
	if err := readRequest(c, &how); err != nil {
		return how.operationRequest, err
	}
	if how.Timeout > 0 && !how.Wait {
		return how.operationRequest, usageOf(commandName(c), "--timeout needs --wait")
	}
	if how.StopAbove != nil {
		r.StopAbove = new(float64(*how.StopAbove) / 100)
	}
	r.Limit, r.Rate, r.Ramp, r.StepTimeout = int64(c.Int("limit")), how.Rate, how.Ramp, how.StepTimeout
	return how.operationRequest, nil
}

// queryText returns the filter of a command as one search.
func queryText(c *cli.Context, state holdfast.State) string {
	words := []string{"state:" + string(state)}
	for _, name := range []string{"type", "queue", "group", "operation", "error", "since", "until"} {
		if value := c.String(name); c.IsSet(name) {
			if strings.ContainsAny(value, " \t\"") {
				value = strconv.Quote(value)
			}
			words = append(words, name+":"+value)
		}
	}
	return strings.Join(append(words, strings.Fields(c.String("query"))...), " ")
}

func (t operationCommands) start(ctx context.Context, c *cli.Context) error {
	by, err := t.actor(c)
	if err != nil {
		return err
	}
	f, err := filter(c)
	if err != nil {
		return err
	}
	var start startRequest
	if err := readRequest(c, &start); err != nil {
		return err
	}
	r := operate.Request{Action: store.Action(c.Args().First()), Query: c.String("query"), Filter: f, SkipValidation: start.SkipValidation}
	if start.Patch != "" {
		if r.Patch, err = t.input("patch", start.Patch, holdfast.DefaultMaxPayload); err != nil {
			return err
		}
	}
	return t.startOperation(ctx, c, by, r)
}

// startOperation plans an operation, asks for confirmation and starts it. With --wait it waits for the end.
func (t *tool) startOperation(ctx context.Context, c *cli.Context, by store.Actor, r operate.Request) error {
	how, err := readOperation(c, &r)
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		plan, err := b.PlanOperation(ctx, r)
		if err != nil {
			return err
		}
		total := int(plan.Operation.Total)
		what := string(r.Action) + " " + tasksOf(plan)
		switch {
		case c.Bool("dry-run"):
			return printItem(t, c, surface.PlanOf(plan), func() error { return t.describePlan(c, plan) })
		case total == 0 && !plan.AtLeast:
			t.say("no tasks match")
			return printList(t, c, "operations", []surface.Operation{}, "", t.operationColumns()...)
		}
		t.sayRefused(plan)
		if err := t.confirm(c, what); err != nil {
			return err
		}
		o, err := b.StartOperation(ctx, by, plan.Operation, c.Bool("plan"))
		if err != nil {
			return err
		}
		if c.Bool("plan") {
			t.say("operation %s is %s: %s; to start it: holdfast operation resume %s", o.ID, o.State, what, o.ID)
			return t.printOperation(c, o)
		}
		t.say("operation %s is %s: %s; to follow it: holdfast operation watch %s", o.ID, o.State, what, o.ID)
		if how.Wait {
			return t.awaitOperation(ctx, c, b, o.ID, how.timeout)
		}
		workers, err := b.Store.Workers(ctx, false)
		if err != nil {
			return err
		}
		if len(workers) == 0 {
			t.say("warning: no worker is running, so the operation waits; start one with: holdfast serve")
		}
		return t.printOperation(c, o)
	})
}

// tasksOf returns the number of tasks of a plan, such as "3 dead tasks".
func tasksOf(p app.Plan) string {
	kind := "task"
	if states := p.Operation.Filter.States; len(states) == 1 {
		kind = string(states[0]) + " task"
	}
	text := plural(int(p.Operation.Total), kind)
	if p.AtLeast {
		return "at least " + text
	}
	return text
}

// sayRefused prints how many samples of a plan an edit does not fit, if there are any.
func (t *tool) sayRefused(plan app.Plan) {
	if plan.Refused > 0 {
		t.say("the edit does not fit %d of %s, and would leave them as they are; the first: %s", plan.Refused, plural(len(plan.Samples), "sample"), plan.Refusal)
	}
}

func (t *tool) describePlan(c *cli.Context, plan app.Plan) error {
	o := plan.Operation
	t.say("would %s %s", o.Action, tasksOf(plan))
	t.sayRefused(plan)
	if o.Rate > 0 {
		t.say("at most %d per second: at least %s", o.Rate, surface.Duration(plan.Expected.Round(time.Second)))
	}
	if len(o.Ramp) > 0 {
		t.say("in steps of %s percent; stops if more than %.0f %% of the first attempts of a step fail", percents(o.Ramp), 100*o.StopAbove)
	}
	return printList(t, c, "samples", plan.Samples, "",
		column[holdfast.Task]{"sample", func(task holdfast.Task) string { return task.ID.String() }},
		column[holdfast.Task]{"type", func(task holdfast.Task) string { return task.Type }},
		column[holdfast.Task]{"queue", func(task holdfast.Task) string { return task.Queue }},
		column[holdfast.Task]{"state", func(task holdfast.Task) string { return string(task.State) }},
		column[holdfast.Task]{"error", func(task holdfast.Task) string { return task.LastError }},
	)
}

func (t *tool) operationColumns() []column[surface.Operation] {
	return []column[surface.Operation]{
		{"id", func(o surface.Operation) string { return fmt.Sprint(o.ID) }},
		{"action", func(o surface.Operation) string { return string(o.Action) }},
		{"state", func(o surface.Operation) string { return string(o.State) }},
		{"changed", func(o surface.Operation) string { return fmt.Sprintf("%d/%d", o.Changed, o.Total) }},
		{"skipped", func(o surface.Operation) string { return unlessZero(o.Skipped + o.Refused) }},
		{"failed", func(o surface.Operation) string { return unlessZero(o.Failed) }},
		{"created", func(o surface.Operation) string { return t.stamp(o.CreatedAt) }},
		{"actor", func(o surface.Operation) string { return o.Actor.Name }},
		{"query", func(o surface.Operation) string { return o.Query }},
	}
}

func (t *tool) printOperation(c *cli.Context, o store.Operation) error {
	return printRow(t, c, surface.OperationOf(o), t.operationColumns()...)
}

// awaitOperation waits for the end of an operation and prints it.
func (t *tool) awaitOperation(ctx context.Context, c *cli.Context, b *app.Backend, id store.ID, limit timeout) error {
	waiting, cancel := limit.context(ctx)
	defer cancel()
	bar := t.countProgress(-1, fmt.Sprintf("operation %s", id))
	o, err := b.AwaitOperation(waiting, id, func(o store.Operation) {
		if bar != nil { // an error of the bar does not matter
			bar.ChangeMax64(max(o.Total, o.Visited(), 1))
			bar.Describe(fmt.Sprintf("operation %s: %s %s", id, o.Action, o.State))
			_ = bar.Set64(o.Visited())
		}
	})
	if bar != nil {
		_ = bar.Finish()
	}
	switch {
	case err != nil && ctx.Err() == nil && waiting.Err() != nil:
		why, gates, err := surface.WaitsFor(ctx, b, o)
		if err == nil && why != "" {
			why = ", and waits for " + why
		}
		late := &failure{err: fmt.Errorf("operation %s is %s after %s; it continues%s", id, o.State, limit.Timeout, why), code: exitTimeout}
		if gates {
			late.hint = gatesHint
		}
		return late
	case err != nil && ctx.Err() != nil:
		return interrupted(fmt.Sprintf("operation %[1]s continues while holdfast serve runs; to follow it: holdfast operation watch %[1]s; to end it: holdfast operation cancel %[1]s", id))
	case err != nil:
		return err
	}
	if err := t.printOperation(c, o); err != nil {
		return err
	}
	switch {
	case o.State == store.OperationStopped:
		return &failure{err: fmt.Errorf("operation %s has stopped: %s", id, o.Note), code: exitPartly, hint: fmt.Sprintf("to continue without them: holdfast operation resume %s; %s", id, failedAgain(id))}
	case o.State != store.OperationDone:
		return fmt.Errorf("operation %s is %s", id, o.State)
	case o.Failed > 0:
		return &failure{err: fmt.Errorf("operation %s is done, but %s", id, o.Note), code: exitPartly, hint: failedAgain(id)}
	case o.Refused > 0:
		return &failure{err: fmt.Errorf("the patch did not fit %s; the first: %s", plural(int(o.Refused), "task"), o.Note), code: exitPartly}
	}
	return nil
}

// gatesHint says how to see what blocks the tasks of an operation.
const gatesHint = "to see what blocks tasks: holdfast gate list"

// failedAgain returns how to list and to retry the tasks that an operation has retried and that are dead again.
func failedAgain(id store.ID) string {
	return fmt.Sprintf("to list those that are dead: holdfast dead list --operation %[1]s; to retry them: holdfast dead retry --all --operation %[1]s", id)
}

// operationQuery is the request of "operation list".
type operationQuery struct {
	State  operationStates `query:"state" flag:"STATE,..." doc:"Only operations in one of the states: planned, running, paused, stopped, done, cancelled."`
	Limit  int             `query:"limit" flag:"N" default:"50" minimum:"1" doc:"At most so many operations."`
	Before store.ID        `query:"before" flag:"ID" doc:"Only operations with a smaller id; for the next page, give the last id of this page."`
}

func (t operationCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, r operationQuery) error {
	page, err := surface.Operations(ctx, b, store.OperationFilter{States: r.State, Before: r.Before, Limit: r.Limit})
	if err != nil {
		return err
	}
	return printPage(t.tool, c, "operations", page.Operations, page.Next, "no operations match",
		"more operations match; for the next page, add --before %s", t.operationColumns()...)
}

func (t operationCommands) get(ctx context.Context, c *cli.Context, b *app.Backend, r one[store.ID]) error {
	o, err := surface.GetOperation(ctx, b, r.ID)
	if err != nil {
		return err
	}
	return printItem(t.tool, c, o, func() error {
		err := t.describeOperation(o)
		if o.Blocked {
			t.say("%s", gatesHint)
		}
		return err
	})
}

// describeOperation prints an operation as lines with a label and a text.
func (t *tool) describeOperation(o surface.Operation) error {
	limit := func(text string, set bool) string {
		if !set {
			return ""
		}
		return text
	}
	retry := o.Action == store.ActionRetry
	return errors.Join(t.fields([]field{
		{"id", fmt.Sprint(o.ID)},
		{"action", string(o.Action)},
		{"state", string(o.State)},
	}), t.paragraph("note", o.Note), t.paragraph("waits for", o.WaitsFor), t.fields([]field{
		{"query", o.Query},
		{"actor", o.Actor.Name},
	}), t.paragraph("reason", o.Reason), t.fields([]field{
		{"total", fmt.Sprint(o.Total)},
		{"changed", fmt.Sprint(o.Changed)},
		{"skipped", unlessZero(o.Skipped)},
		{"refused", unlessZero(o.Refused)},
		{"succeeded", limit(fmt.Sprintf("%d first attempts", o.Succeeded), retry)},
		{"failed", limit(fmt.Sprintf("%d first attempts", o.Failed), retry)},
		{"rate", limit(fmt.Sprintf("at most %d per second", o.Rate), o.Rate > 0)},
		{"step", limit(fmt.Sprintf("%d of %d (%s percent)%s", o.Step+1, len(o.Ramp), percents(o.Ramp), stepEnd(o.Operation)), len(o.Ramp) > 0)},
		{"stops", limit(fmt.Sprintf("if more than %.0f %% of the first attempts of a step fail", 100*o.StopAbove), retry && o.StopAbove < 1)},
		{"created", t.absoluteAndRelative(o.CreatedAt)},
		{"started", t.absoluteAndRelative(o.StartedAt)},
		{"finished", t.absoluteAndRelative(o.FinishedAt)},
	}), t.block("patch", indented(o.Patch)))
}

// stepEnd returns ", ended" if the present step of a ramp has ended.
func stepEnd(o store.Operation) string {
	if o.State == store.OperationDone {
		return ", ended"
	}
	return ""
}

// watchRequest is the request of "operation watch".
type watchRequest struct {
	one[store.ID]
	timeout
}

func (t operationCommands) watchOne(ctx context.Context, c *cli.Context, b *app.Backend, r watchRequest) error {
	return t.awaitOperation(ctx, c, b, r.ID, r.timeout)
}
