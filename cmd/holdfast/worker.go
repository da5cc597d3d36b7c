package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// workerCommands are the commands of the noun worker.
type workerCommands struct{ *tool }

func (t workerCommands) command() *cli.Command {
	return &cli.Command{
		Name:    "worker",
		Aliases: []string{"workers"},
		Usage:   "list and drain workers",
		Subcommands: []*cli.Command{{
			Name:  "list",
			Usage: "list the runs of workers, newest first",
			Description: `A run is one life of one process. PAGES are the pages of tickets it has finished, of those it has
taken. Dead runs lost their lease; their tasks went to others.

Example:
  holdfast worker list --all`,
			Flags:  []cli.Flag{outputFlag(), &cli.BoolFlag{Name: "all", Usage: "also runs that are over"}, sortFlag(), watchFlag()},
			Action: t.do(t.list),
		}, {
			Name:      "drain",
			Usage:     "ask workers to finish what they have and stop",
			ArgsUsage: "RUN...",
			Description: `The same as SIGTERM, from anywhere. A worker hears of it with its next sign of life, within a
second or two. With several runs, the exit code is 5 if only some could be asked.

Example:
  holdfast worker drain 7`,
			Flags:  []cli.Flag{outputFlag()},
			Action: t.do(t.drain),
		}},
	}
}

// worker is a store.Run as it is printed.
type worker struct {
	Run         holdfast.RunID `json:"run"`
	Name        string         `json:"name"`
	Host        string         `json:"host"`
	PID         int            `json:"pid"`
	Version     string         `json:"version"`
	State       store.RunState `json:"state"`
	Draining    bool           `json:"draining"`
	Lanes       []string       `json:"lanes"` // empty means every lane
	Types       []string       `json:"types"` // null if the worker does not say
	Concurrency int            `json:"concurrency"`
	Running     int            `json:"running"`
	StartedAt   time.Time      `json:"started_at"`
	RenewedAt   time.Time      `json:"renewed_at"`
	LeaseUntil  time.Time      `json:"lease_until"`
	EndedAt     time.Time      `json:"ended_at,omitzero"`
	Taken       int64          `json:"pages_taken"`
	Settled     int64          `json:"pages_settled"`
}

func newWorker(r store.Run) worker {
	return worker{
		Run: r.ID, Name: r.Name, Host: r.Host, PID: r.PID, Version: r.Version, State: r.State, Draining: r.Draining,
		Lanes: append([]string{}, r.Lanes...), Types: r.Types, Concurrency: r.Concurrency, Running: r.Running,
		StartedAt: r.StartedAt.UTC(), RenewedAt: r.RenewedAt.UTC(), LeaseUntil: r.LeaseUntil.UTC(), EndedAt: r.EndedAt,
		Taken: r.Taken, Settled: r.Settled,
	}
}

func (w worker) lanes() string {
	if len(w.Lanes) == 0 {
		return "(all)"
	}
	return strings.Join(w.Lanes, ",")
}

func (w worker) pages() string { return fmt.Sprintf("%d/%d", w.Settled, w.Taken) }

func (t workerCommands) list(ctx context.Context, c *cli.Context) error {
	return t.withStore(ctx, c, func(b *app.Backend) error {
		runs, err := b.Store.Runs(ctx, c.Bool("all"))
		if err != nil {
			return err
		}
		workers := make([]worker, len(runs))
		for i, run := range runs {
			workers[i] = newWorker(run)
		}
		return list(t.tool, c, workers, "no worker is running",
			column[worker]{"run", func(w worker) string { return w.Run.String() }},
			column[worker]{"name", func(w worker) string { return w.Name }},
			column[worker]{"state", func(w worker) string { return string(w.State) }},
			column[worker]{"draining", func(w worker) string { return yes(w.Draining) }},
			column[worker]{"lanes", worker.lanes},
			column[worker]{"running", func(w worker) string { return fmt.Sprintf("%d of %d", w.Running, w.Concurrency) }},
			column[worker]{"pages", worker.pages},
			column[worker]{"started", func(w worker) string { return t.stamp(w.StartedAt) }},
			column[worker]{"renewed", func(w worker) string { return t.stamp(w.RenewedAt) }},
			column[worker]{"ended", func(w worker) string { return t.stamp(w.EndedAt) }},
		)
	})
}

// drained is a run after it was asked to drain.
type drained struct {
	Run      holdfast.RunID `json:"run"`
	Draining bool           `json:"draining"`
}

func (t workerCommands) drain(ctx context.Context, c *cli.Context) error {
	runs := make([]holdfast.RunID, c.NArg())
	for i, text := range c.Args().Slice() {
		if err := runs[i].UnmarshalText([]byte(text)); err != nil || runs[i] == 0 {
			return usage("run id %q is not a positive number", text)
		}
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		asked := []drained{}
		var failed []error
		for _, run := range runs {
			err := b.Store.Drain(ctx, run)
			switch {
			case errors.Is(err, holdfast.ErrUnavailable):
				return err
			case err != nil:
				failed = append(failed, err)
			default:
				asked = append(asked, drained{run, true})
			}
		}
		if chosen, _ := format(c); chosen != asTable || len(asked) > 0 {
			err := list(t.tool, c, asked, "",
				column[drained]{"run", func(d drained) string { return d.Run.String() }},
				column[drained]{"draining", func(d drained) string { return yes(d.Draining) }})
			if err != nil {
				return err
			}
		}
		return someFailed(failed, len(asked))
	})
}
