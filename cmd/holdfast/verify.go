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
)

// verifyCommands implements the command verify and its subcommands.
type verifyCommands struct{ *tool }

func (t verifyCommands) command() *cli.Command {
	return &cli.Command{
		Name:  "verify",
		Usage: "look for tasks that break an invariant",
		Subcommands: []*cli.Command{{
			Name:  "tasks",
			Usage: "look for lost, duplicated, zombie and overdue tasks",
			Description: `Reads every task in short steps and changes none. If the command finds something, it looks again after
ten seconds, and counts only what it finds twice.

  lost        nothing leads a worker to the task
  duplicated  the same attempt exists twice
  zombie      the task is running, but its worker has ended
  overdue     the task has been due for a minute, although a worker is idle

Each fault has a code, a number of tasks, some of their ids, and a remedy. A number of 10000 means that
many or more. Running janitors check the open tasks four times a minute and repair most faults; the metric
holdfast_verify_tasks has their result.

The exit code is 0 if nothing was found, and 7 if something was found.

Example:
  holdfast verify tasks
  holdfast verify tasks -o json`,
			Flags:  []cli.Flag{outputFlag()},
			Action: t.do(t.tasks),
		}},
	}
}

// faultRow is a fault as the command prints it.
type faultRow struct {
	Kind        store.FaultKind   `json:"kind"`
	Code        store.FaultCode   `json:"code"`
	Tasks       int               `json:"tasks"`
	Samples     []holdfast.TaskID `json:"samples"`
	Description string            `json:"description"`
	Remedy      string            `json:"remedy"`
}

func (t verifyCommands) tasks(ctx context.Context, c *cli.Context) error {
	return t.withStore(ctx, c, func(b *app.Backend) error {
		stop := t.showProgress()
		report, err := b.VerifyTasks(ctx, stop.step)
		stop.end()
		if err != nil {
			return err
		}
		rows, tasks := []faultRow{}, 0
		for _, result := range report.Results {
			for _, found := range result.Counts {
				fault, _ := store.FaultOf(found.Code)
				rows = append(rows, faultRow{fault.Kind, found.Code, found.Tasks, found.Samples, fault.Description, hintText(fault.Remedy)})
				tasks += found.Tasks
			}
		}
		err = list(t.tool, c, "faults", rows, "no task breaks an invariant",
			column[faultRow]{"kind", func(r faultRow) string { return string(r.Kind) }},
			column[faultRow]{"code", func(r faultRow) string { return string(r.Code) }},
			column[faultRow]{"tasks", func(r faultRow) string { return fmt.Sprint(r.Tasks) }},
			column[faultRow]{"samples", func(r faultRow) string { return sampleIDs(r.Samples) }},
			column[faultRow]{"description", func(r faultRow) string { return r.Description }},
			column[faultRow]{"remedy", func(r faultRow) string { return r.Remedy }})
		if err == nil && tasks > 0 {
			err = &failure{err: errors.New(plural(tasks, "task") + " found that break an invariant"), code: exitCheck}
		}
		return err
	})
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

// verifyProgress shows on a terminal which tasks a check has read.
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
			if through == math.MaxInt64 { // the part has no end that is known
				bar.Describe(fmt.Sprintf("verify %s", part))
				return
			}
			bar.Describe(fmt.Sprintf("verify %s, task %s", part, through))
		},
		end: func() { _ = bar.Finish() }, // an error of the bar does not matter
	}
}
