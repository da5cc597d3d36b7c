package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/surface"
)

type workerCommands struct{ *tool }

func (t workerCommands) command() *cli.Command {
	return noun("worker workers", "list and drain workers",
		t.verb("list", "list workers, newest first",
			`A worker is one registration of a process. A process that loses its lease registers again, as a new worker.
PAGES has two numbers: the pages of tickets that the worker has finished and the pages that it has taken. STUCK is the
number of handlers that ignore the end of their contexts; -o json names their tasks. A worker is dead if it lost its
lease; other workers then run its tasks.

Example:
  holdfast worker list --all`,
			reads(t.tool, openCheckedStore, t.list), outputFlag(), sortFlag(), watchFlag()),
		t.verb("drain [WORKER...]", "stop workers after they have finished their running tasks",
			`Has the effect of SIGTERM, from any machine. A worker reads the request at its next lease renewal, within a
second or two. WORKER is an id from "worker list". With several ids, the exit code is 5 if only some workers could be
drained. When its worker has drained, the process ends, with its janitor and its HTTP API. For tasks in a file, that is
the only process. --all drains the workers that are live now; tasks wait until a process starts. On a terminal, --all
asks for confirmation; elsewhere it needs --yes. To keep tasks from starting for a while, see "queue pause" instead.

Example:
  holdfast worker drain 7`,
			reads(t.tool, openCheckedStore, t.drain), outputFlag(), yesFlag()),
	)
}

func takes(w surface.Worker) string {
	if len(w.Queues) == 0 {
		return "(all)"
	}
	return strings.Join(w.Queues, ",")
}

// stuckHandlers returns the number of stuck handlers, and the number of abandoned ones if there are any.
func stuckHandlers(w surface.Worker) string {
	if w.Abandoned == 0 {
		return unlessZero(len(w.Stuck))
	}
	return fmt.Sprintf("%d, %d abandoned", len(w.Stuck), w.Abandoned)
}

func pages(w surface.Worker) string { return fmt.Sprintf("%d/%d", w.Settled, w.Taken) }

func (t workerCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, r surface.WorkerQuery) error {
	workers, err := b.Store.Workers(ctx, r.All)
	if err != nil {
		return err
	}
	none := "no live workers"
	if r.All {
		none = "no workers"
	}
	return printList(t.tool, c, "workers", surface.Each(workers, surface.WorkerOf), none,
		column[surface.Worker]{"worker", func(w surface.Worker) string { return w.Worker.String() }},
		column[surface.Worker]{"name", func(w surface.Worker) string { return w.Name }},
		column[surface.Worker]{"state", func(w surface.Worker) string { return string(w.State) }},
		column[surface.Worker]{"draining", func(w surface.Worker) string { return yes(w.Draining) }},
		column[surface.Worker]{"queues", takes},
		column[surface.Worker]{"running", func(w surface.Worker) string { return fmt.Sprintf("%d of %d", w.Running, w.Concurrency) }},
		column[surface.Worker]{"stuck", func(w surface.Worker) string { return stuckHandlers(w) }},
		column[surface.Worker]{"pages", pages},
		column[surface.Worker]{"started", func(w surface.Worker) string { return t.stamp(w.StartedAt) }},
		column[surface.Worker]{"renewed", func(w surface.Worker) string { return t.stamp(w.RenewedAt) }},
		column[surface.Worker]{"ended", func(w surface.Worker) string { return t.stamp(w.EndedAt) }},
	)
}

// drainQuestion says what a drain of all workers does; see confirm.
func drainQuestion(b *app.Backend, workers int) string {
	if path, embedded := b.Embedded(); embedded {
		return "end the process that serves " + path + ", with its janitor and its API"
	}
	if workers == 1 {
		return "end the process of 1 worker, with its janitor and its API"
	}
	return "end " + plural(workers, "process") + ", each with its worker, janitor and API"
}

// drainRequest is the request of "worker drain".
type drainRequest struct {
	All     bool                `json:"all" flag:"-" doc:"Drain every live worker."`
	Workers []holdfast.WorkerID `arg:"..."`
}

// Check returns an error if the request names both workers and all of them, or neither.
func (r drainRequest) Check() error {
	switch {
	case r.All == (len(r.Workers) > 0):
		return fmt.Errorf("%w: worker drain needs either workers or --all", holdfast.ErrInvalid)
	case slices.Contains(r.Workers, 0):
		return fmt.Errorf("%w: worker id \"0\" is not a positive number", holdfast.ErrInvalid)
	}
	return nil
}

func (t workerCommands) drain(ctx context.Context, c *cli.Context, b *app.Backend, r drainRequest) error {
	if r.All {
		live, err := b.Store.Workers(ctx, false)
		if err != nil {
			return err
		}
		for _, w := range live {
			r.Workers = append(r.Workers, w.ID)
		}
		if len(live) == 0 {
			t.say("no live workers")
		} else if err := t.confirm(c, drainQuestion(b, len(live))); err != nil {
			return err
		}
	}
	drained, failed := forEach(r.Workers, func(worker holdfast.WorkerID) (surface.DrainedWorker, error) {
		return surface.DrainedWorker{Worker: worker, Draining: true}, b.Store.Drain(ctx, worker)
	})
	err := printList(t.tool, c, "workers", drained, "",
		column[surface.DrainedWorker]{"worker", func(d surface.DrainedWorker) string { return d.Worker.String() }},
		column[surface.DrainedWorker]{"draining", func(d surface.DrainedWorker) string { return yes(d.Draining) }})
	if err != nil {
		return stored(err, "requested the drain of %s", plural(len(drained), "worker"))
	}
	return someFailed(failed, len(drained))
}
