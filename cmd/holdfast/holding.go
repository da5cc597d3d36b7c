package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
)

// holdingCommands are the commands of the noun holding.
type holdingCommands struct{ *tool }

func (t holdingCommands) command() *cli.Command {
	return &cli.Command{
		Name:  "holding",
		Usage: "show the holding queues, which mirror the work in flight",
		Subcommands: []*cli.Command{{
			Name:  "list",
			Usage: "show the depth of each holding queue and the open pages of each live run",
			Description: `A worker lists each page of tickets it takes in a manifest in a holding queue, and says with every
sign of life how many pages it has taken and finished. A manifest cannot be read without taking it from
the janitors, so what is shown are depths and these cursors: OPEN pages are taken and not yet finished.

Manifests of finished pages stay in the queue until a janitor drops them: a depth above the sum of open
pages is normal, one that only grows is not. MESSAGES do not count those in the hands of a janitor.
The holding queues of a file are in the memory of holdfast serve: only the runs are shown.

Example:
  holdfast holding list`,
			Flags:  []cli.Flag{outputFlag(), watchFlag()},
			Action: t.do(t.list),
		}},
	}
}

// held is a holding queue or a live run.
type held struct {
	Kind string `json:"kind"` // hold or run
	*queueDepth
	*runPages
}

type queueDepth struct {
	Queue     string `json:"queue"`
	Messages  *int   `json:"messages"`
	Consumers *int   `json:"consumers"`
}

type runPages struct {
	Run     holdfast.RunID `json:"run"`
	Name    string         `json:"name"`
	Holding string         `json:"holding_queue"`
	Taken   int64          `json:"pages_taken"`
	Settled int64          `json:"pages_settled"`
	Open    int64          `json:"pages_open"`
	Running int            `json:"running"`
}

func (t holdingCommands) list(ctx context.Context, c *cli.Context) error {
	return t.withServers(ctx, c, func(b *app.Backend) error {
		var queues []queue
		if _, embedded := b.Embedded(); !embedded {
			for _, name := range b.Topology.Holds() {
				queues = append(queues, queue{Kind: kindHold, Queue: name})
			}
			addDepths(ctx, t.tool, b, queues)
		}
		runs, err := b.Store.Runs(ctx, false)
		if err != nil {
			return err
		}
		var pages []runPages
		for _, run := range runs {
			pages = append(pages, runPages{
				run.ID, run.Name, b.Topology.Hold(run.ID), run.Taken, run.Settled, run.Taken - run.Settled, run.Running,
			})
		}
		if chosen, _ := format(c); chosen != asTable {
			var all []held
			for _, q := range queues {
				all = append(all, held{q.Kind, &queueDepth{q.Queue, q.Messages, q.Consumers}, nil})
			}
			for i := range pages {
				all = append(all, held{"run", nil, &pages[i]})
			}
			return list(t.tool, c, all, "")
		}
		return t.tables(c, queues, pages)
	})
}

func (t holdingCommands) tables(c *cli.Context, queues []queue, pages []runPages) error {
	if len(queues) > 0 {
		err := list(t.tool, c, queues, "",
			column[queue]{"holding queue", func(q queue) string { return q.Queue }},
			column[queue]{"messages", func(q queue) string { return known(q.Messages) }},
			column[queue]{"consumers", func(q queue) string { return known(q.Consumers) }})
		if err != nil {
			return err
		}
		if len(pages) > 0 {
			fmt.Fprintln(t.stdout)
		}
	}
	return list(t.tool, c, pages, "no worker is running",
		column[runPages]{"run", func(r runPages) string { return r.Run.String() }},
		column[runPages]{"name", func(r runPages) string { return r.Name }},
		column[runPages]{"holding queue", func(r runPages) string { return r.Holding }},
		column[runPages]{"taken", func(r runPages) string { return fmt.Sprint(r.Taken) }},
		column[runPages]{"settled", func(r runPages) string { return fmt.Sprint(r.Settled) }},
		column[runPages]{"open", func(r runPages) string { return fmt.Sprint(r.Open) }},
		column[runPages]{"running", func(r runPages) string { return fmt.Sprint(r.Running) }})
}
