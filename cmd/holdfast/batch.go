package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type batchCommands struct{ *tool }

func (t batchCommands) command() *cli.Command {
	return noun("batch batches", "start many tasks with one end, and follow them",
		t.startCommand(),
		t.verb("list", "list batches, newest first",
			`DONE and FAILED count subtasks. STAGE is the stage that runs. If more subtasks are to come, DONE has a + after the
number of subtasks so far. LEFT is an estimate for the stage.

Example:
  holdfast batch list --state stopped`,
			lists(t.tool, "batches", "no batch matches", "more batches match; for the next page, add --before %s", t.columns(), surface.ListBatches), outputFlag(), sortFlag(), watchFlag()),
		t.verb("get ID", "show a batch with its stages and counts",
			`The line below the table names the commands to type next.

Example:
  holdfast batch get 7 -o json`,
			gets(t.tool, seeBatches, surface.GetBatch, t.describe), outputFlag(), watchFlag()),
		t.verb("watch ID", "follow a batch until it ends, stops or is paused",
			`On a terminal, a bar shows the progress; elsewhere the command prints a line now and then. Ctrl-C ends only this
command. The exit code is 0 if the batch is done, 5 if it has stopped or is done with failed subtasks, 1 if it is paused
or cancelled, and 124 if the timeout expires first.

Example:
  holdfast batch watch 7 --timeout 10m`,
			reads(t.tool, openCheckedStore, t.watchOne), outputFlag()),
		t.verb("pause ID", "store no more tasks of a batch until it is resumed",
			`Tasks that are stored run. A split waits, and the next stage does not begin.

Example:
  holdfast batch pause 7 --reason "the target is slow"`,
			alters(t.tool, seeBatches, "batch %s is paused", "to resume it: holdfast batch resume %s",
				(*app.Backend).PauseBatch, surface.BatchOf, t.columns()...), outputFlag()),
		t.verb("resume ID", "continue a batch that is paused or stopped",
			`A stopped batch continues without the tasks that have failed so far. To run these again, use "holdfast batch retry".

Example:
  holdfast batch resume 7 --reason "the rest is good enough"`,
			alters(t.tool, seeBatches, "batch %s is running", "to follow it: holdfast batch watch %s",
				(*app.Backend).ResumeBatch, surface.BatchOf, t.columns()...), outputFlag()),
		t.verb("cancel ID", "end a batch, and cancel its tasks",
			`The batch gets no more tasks at once. The command starts an operation that cancels the tasks that have not ended, and
prints its id. The batch ends when all of its tasks have ended. Its last stages do not run.

Example:
  holdfast batch cancel 7 --wait`,
			t.operate("is being cancelled", surface.CancelBatch), outputFlag()),
		t.verb("retry ID", "run the dead tasks of a batch again",
			`Starts an operation that retries the dead tasks, and prints its id. If they succeed, a stopped batch continues by
itself.

Example:
  holdfast batch retry 7 --wait`,
			t.operate("is being retried", surface.RetryBatch), outputFlag()),
		t.verb("result ID", "print the subtasks of a batch with their outputs",
			`Prints a line for each subtask of the first stage: its id, state, payload, output and last error. In CSV, an output
or a payload that is a text stays as it is, and anything else is JSON; a text that a spreadsheet would run as a formula
has an apostrophe in front, so use jsonl in programs. Done subtasks and their outputs exist until the batch has ended,
and then for janitor.keep_done after their own end. If some were deleted, the command prints the others and ends with
the exit code 3.

Example:
  holdfast batch result 7 -o csv > results.csv`,
			reads(t.tool, openCheckedStore, t.result), streamFlag()),
	)
}

// seeBatches is the hint if there is no batch.
const seeBatches = "see: holdfast batch list; a batch is deleted when it has ended longer ago than janitor.keep_done"

func (t batchCommands) columns() []column[surface.Batch] {
	return []column[surface.Batch]{
		{"batch", func(b surface.Batch) string { return b.ID.String() }},
		{"name", func(b surface.Batch) string { return b.Name }},
		{"state", batchState},
		{"stage", func(b surface.Batch) string { return fmt.Sprintf("%d/%d", b.Stage, len(b.Stages)) }},
		{"done", func(b surface.Batch) string { return fmt.Sprintf("%d/%s", b.Done, totalOf(b)) }},
		{"failed", func(b surface.Batch) string { return unlessZero(b.Failed()) }},
		{"left", leftOf},
		{"started", func(b surface.Batch) string { return t.stamp(b.StartedAt) }},
		{"actor", func(b surface.Batch) string { return b.Actor }},
		{"note", func(b surface.Batch) string { return b.Note }},
	}
}

// batchState returns the state of a batch for people.
func batchState(b surface.Batch) string {
	if b.Cancelling {
		return "cancelling"
	}
	return string(b.State)
}

// totalOf returns the number of subtasks, with a + if more are to come.
func totalOf(b surface.Batch) string {
	text := fmt.Sprint(b.Total)
	if !b.Sealed && !b.State.Ended() && !b.Cancelling {
		text += "+"
	}
	return text
}

// leftOf returns the time that the stage still takes, or "".
func leftOf(b surface.Batch) string {
	if b.LeftSeconds == nil {
		return ""
	}
	return unit(time.Duration(math.Ceil(*b.LeftSeconds)) * time.Second)
}

// describe prints a batch as lines with a label and a text, and its stages as a table.
func (t batchCommands) describe(b surface.Batch, _ app.Batch) error {
	total := fmt.Sprint(b.Total)
	if strings.HasSuffix(totalOf(b), "+") {
		total += " so far, because the stage is not sealed"
	}
	rate := ""
	if b.Rate > 0 {
		rate = fmt.Sprintf("%.1f tasks per second", b.Rate)
	}
	err := t.fields([]field{
		{"batch", b.ID.String()},
		{"name", b.Name},
		{"note", b.Note},
		{"state", batchState(b)},
		{"stopped", b.Stopped},
		{"last failure", b.LastFailure()},
		{"progress", batchBar(b.StageCounts)},
		{"subtasks", total},
		{"open", unlessZero(b.Open)},
		{"done", fmt.Sprint(b.Done)},
		{"dead", unlessZero(b.Dead)},
		{"cancelled", unlessZero(b.Cancelled)},
		{"gone", unlessZero(b.Gone)},
		{"duplicate", unlessZero(b.Duplicate)},
		{"allow failed", b.AllowFailed.String()},
		{"rate", rate},
		{"left", leftOf(b)},
		{"started", t.absoluteAndRelative(b.StartedAt)},
		{"ended", t.absoluteAndRelative(b.EndedAt)},
		{"by", b.Actor},
		{"reason", b.Reason},
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(t.stdout)
	if err := t.printStages(b); err != nil {
		return err
	}
	t.hint(nextCommand(b))
	return nil
}

// batchBar returns a bar that shows how many tasks have ended.
func batchBar(c surface.BatchCounts) string {
	const width = 30
	if c.Total == 0 {
		return ""
	}
	ended := c.Total - c.Open
	full := int(width * ended / c.Total)
	return fmt.Sprintf("[%s%s] %d %% of the stage", strings.Repeat("#", full), strings.Repeat("-", width-full), 100*ended/c.Total)
}

// numberedStage is a stage with its number.
type numberedStage struct {
	surface.BatchStage
	number int
}

// printStages prints the stages as a table.
func (t batchCommands) printStages(b surface.Batch) error {
	var stages []numberedStage
	own := 0 // stages with subtasks
	for i, stage := range b.Stages {
		stages = append(stages, numberedStage{stage, i + 1})
		if !stage.After {
			own++
		}
	}
	ended := b.State == store.PlanDone
	return printTable(t.tool, stages, "", []column[numberedStage]{
		{"stage", func(s numberedStage) string { return fmt.Sprint(s.number) }},
		{"tasks", func(s numberedStage) string {
			switch {
			case s.number == b.Stage:
				return fmt.Sprint(b.StageCounts.Total)
			case s.number < b.Stage && !s.After && own == 1:
				return fmt.Sprint(b.Total)
			case s.Split != "" || s.Open:
				return ""
			}
			return fmt.Sprint(s.Tasks)
		}},
		{"stage is", func(s numberedStage) string {
			switch {
			case s.number < b.Stage, ended:
				return "done"
			case s.number == b.Stage:
				return batchState(b)
			case b.State.Ended():
				return "left out"
			}
			return "waiting"
		}},
		{"types", func(s numberedStage) string {
			types := s.Types
			if s.Split != "" {
				types = append(types, s.Split+" stores subtasks")
			}
			if s.Open {
				types = append(types, "programs store subtasks")
			}
			return strings.Join(types, ", ")
		}},
	})
}

// nextCommand returns which command may come next.
func nextCommand(b surface.Batch) string {
	switch {
	case b.Cancelling:
		return "to see the tasks that have not ended: holdfast task list --state ready,running -q batch:" + b.ID.String()
	case b.State == store.PlanStopped:
		return fmt.Sprintf("to run the failed tasks again: holdfast batch retry %[1]s; to go on without them: holdfast batch resume %[1]s; "+
			"to see them: holdfast dead list -q batch:%[1]s; to end the batch: holdfast batch cancel %[1]s", b.ID)
	case b.State == store.PlanPaused:
		return "to resume it: holdfast batch resume " + b.ID.String()
	case b.State == store.PlanRunning && !b.Sealed && b.Stages[b.Stage-1].Open:
		return "the batch waits for more subtasks, and stops after " + shortDuration(plan.Duration(plan.PushLimit)) +
			" without any; to end it: holdfast batch cancel " + b.ID.String()
	case b.State == store.PlanRunning:
		return "to follow it: holdfast batch watch " + b.ID.String()
	case b.Total > 0:
		return "to see its results: holdfast batch result " + b.ID.String()
	}
	return ""
}

// operateBatch is a request of a command that starts an operation on the tasks of a batch.
type operateBatch struct {
	one[holdfast.BatchID]
	Wait bool `json:"wait" flag:"-" doc:"Wait until the operation ends or stops."`
	timeout
}

// Check returns an error if the request is invalid.
func (r operateBatch) Check() error { return r.check(r.Wait) }

// check returns an error if there is a timeout without a wait.
func (r timeout) check(wait bool) error {
	if r.Timeout > 0 && !wait {
		return usage("--timeout needs --wait")
	}
	return nil
}

// operate returns an action that starts an operation on the tasks of a batch. what says what happens to the batch.
func (t batchCommands) operate(what string, start func(context.Context, *app.Backend, store.Actor, holdfast.BatchID, ...func(*app.Batch) error) (surface.BatchOperation, app.Batch, error)) action {
	return changes(t.tool, openCheckedStore, func(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r operateBatch) error {
		started, _, err := start(ctx, b, by, r.ID)
		if err != nil {
			return notFound(err, seeBatches)
		}
		o := started.Operation
		t.say("batch %s %s: operation %s has %s; to follow it: holdfast operation watch %s", r.ID, what, o.ID, plural(int(o.Total), "task"), o.ID)
		if r.Wait {
			return t.awaitOperation(ctx, c, b, o.ID, r.timeout)
		}
		return stored(printText(t.tool, c, started, o.ID.String()), "operation %s is started", o.ID)
	})
}

// watchBatch is the request of "batch watch".
type watchBatch struct {
	one[holdfast.BatchID]
	timeout
}

func (t batchCommands) watchOne(ctx context.Context, c *cli.Context, b *app.Backend, r watchBatch) error {
	return t.await(ctx, c, b, r.ID, r.timeout)
}

// lineEvery is the time between two lines of progress while nothing but numbers changes.
const lineEvery = 10 * time.Second

// await waits for the end of a batch, and prints the batch.
func (t batchCommands) await(ctx context.Context, c *cli.Context, b *app.Backend, id holdfast.BatchID, limit timeout) error {
	waiting, cancel := limit.context(ctx)
	defer cancel()
	bar := t.bar(-1, fmt.Sprintf("batch %s", id), progressbar.OptionShowCount(), progressbar.OptionSetWidth(10),
		progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false))
	var said string
	var at time.Time
	newest, err := b.AwaitBatch(waiting, id, func(read app.Batch) {
		batch := surface.BatchOf(read)
		if bar != nil { // an error of the bar does not matter
			counts := batch.StageCounts
			bar.ChangeMax64(max(counts.Total, 1))
			bar.Describe(shortProgress(batch))
			_ = bar.Set64(counts.Total - counts.Open)
			return
		}
		place := fmt.Sprint(batch.Stage, batchState(batch), batch.Sealed)
		if text := progressOf(batch); place != said || time.Since(at) >= lineEvery {
			t.say("%s", text)
			said, at = place, time.Now()
		}
	})
	if bar != nil {
		_ = bar.Finish()
	}
	switch {
	case err != nil && ctx.Err() == nil && waiting.Err() != nil:
		return &failure{err: fmt.Errorf("batch %s is %s after %s; it continues", id, cmp.Or(newest.State, "not ended"), limit.Timeout), code: exitTimeout}
	case err != nil && ctx.Err() != nil:
		return interrupted(fmt.Sprintf("batch %[1]s continues while holdfast serve runs; to follow it: holdfast batch watch %[1]s; to end it: holdfast batch cancel %[1]s", id))
	case err != nil:
		return notFound(err, seeBatches)
	}
	form := surface.BatchOf(newest)
	if err := printRow(t.tool, c, form, t.columns()...); err != nil {
		return err
	}
	return batchOutcome(form)
}

// progressOf returns how far a batch is.
func progressOf(b surface.Batch) string {
	counts := b.StageCounts
	text := fmt.Sprintf("batch %s: %s, stage %d of %d, %d of %d done", b.ID, batchState(b), b.Stage, len(b.Stages), counts.Done, counts.Total)
	if counts.Failed() > 0 {
		text += fmt.Sprintf(", %d failed", counts.Failed())
	}
	if b.Rate > 0 && counts.Open > 0 {
		text += fmt.Sprintf(", %.1f per second", b.Rate)
	}
	if left := leftOf(b); left != "" && counts.Open > 0 {
		text += ", " + left + " left"
	}
	return text
}

// shortProgress returns how far a batch is, for the place before a bar that shows the number of tasks that have ended.
func shortProgress(b surface.Batch) string {
	counts := b.StageCounts
	text := fmt.Sprintf("stage %d/%d", b.Stage, len(b.Stages))
	if counts.Failed() > 0 {
		text += fmt.Sprintf(", %d failed", counts.Failed())
	}
	if b.Rate > 0 && counts.Open > 0 {
		text += fmt.Sprintf(", %.0f/s", b.Rate)
	}
	if left := leftOf(b); left != "" && counts.Open > 0 {
		text += ", " + left + " left"
	}
	return text
}

// batchOutcome returns the error of a command that has waited for a batch, or nil if the batch is done without failures.
func batchOutcome(b surface.Batch) error {
	switch {
	case b.State == store.PlanStopped:
		return &failure{err: fmt.Errorf("batch %s has stopped: %s", b.ID, b.Stopped), code: exitPartly, hint: nextCommand(b)}
	case b.State != store.PlanDone:
		return &failure{err: fmt.Errorf("batch %s is %s", b.ID, b.State), code: exitFailure, hint: nextCommand(b)}
	case b.Failed() > 0:
		return &failure{err: fmt.Errorf("batch %s is done, but %d of %d subtasks have failed", b.ID, b.Failed(), b.Total), code: exitPartly, hint: nextCommand(b)}
	}
	return nil
}
