package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type verifyCommands struct{ *tool }

func (t verifyCommands) command() *cli.Command {
	return noun("verify", "look for tasks that break an invariant",
		t.verb("tasks", "look for lost, duplicated, zombie and overdue tasks",
			`Reads every task in short steps and changes none. If the command finds faults, it checks these tasks again
after ten seconds, and reports the faults that it finds twice.

  lost        nothing leads a worker to the task
  duplicated  the same attempt exists twice
  zombie      the task is running, but its worker has ended
  overdue     the task has been due for a minute, although a worker is idle

Each fault has a code, a number of tasks, some of their ids, and a remedy. A number of 10000 means that many or more.
Running janitors check the open tasks four times a minute and repair most faults; the metric holdfast_verify_tasks has
their result.

The exit code is 0 if nothing was found, and 7 if something was found.

Example:
  holdfast verify tasks
  holdfast verify tasks -o json`,
			reads(t.tool, openCheckedStore, t.tasks), outputFlag()),
	)
}

func (t verifyCommands) tasks(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	stop := t.showProgress()
	rows, tasks, err := surface.VerifyTasks(ctx, b, hintText, stop.step)
	stop.end()
	if err != nil {
		return err
	}
	err = printList(t.tool, c, "faults", rows, "no task breaks an invariant",
		column[surface.Fault]{"kind", func(r surface.Fault) string { return string(r.Kind) }},
		column[surface.Fault]{"code", func(r surface.Fault) string { return string(r.Code) }},
		column[surface.Fault]{"tasks", func(r surface.Fault) string { return fmt.Sprint(r.Tasks) }},
		column[surface.Fault]{"samples", func(r surface.Fault) string { return sampleIDs(r.Samples) }},
		column[surface.Fault]{"description", func(r surface.Fault) string { return r.Description }},
		column[surface.Fault]{"remedy", func(r surface.Fault) string { return r.Remedy }})
	if err == nil && tasks > 0 {
		err = &failure{err: errors.New(plural(tasks, "task") + " found that break an invariant"), code: exitCheck}
	}
	return err
}

// sampleIDs returns the first few ids.
func sampleIDs(ids []holdfast.TaskID) string {
	const most = 3
	var texts []string
	for _, id := range ids[:min(most, len(ids))] {
		texts = append(texts, id.String())
	}
	if len(ids) > most {
		texts = append(texts, "…")
	}
	return strings.Join(texts, " ")
}

// verifyProgress shows the progress of a check on a terminal.
type verifyProgress struct {
	step func(store.VerifyPart, holdfast.TaskID)
	end  func()
}

func (t verifyCommands) showProgress() verifyProgress {
	bar := t.bar(-1, "verify")
	if bar == nil {
		return verifyProgress{step: nil, end: func() {}}
	}
	return verifyProgress{
		step: func(part store.VerifyPart, through holdfast.TaskID) {
			if through == math.MaxInt64 { // the end of the part is unknown
				bar.Describe(fmt.Sprintf("verify %s", part))
				return
			}
			bar.Describe(fmt.Sprintf("verify %s, task %s", part, through))
		},
		end: func() { _ = bar.Finish() }, // an error of the bar does not matter
	}
}
