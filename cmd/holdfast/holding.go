package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/surface"
)

func (t holdingCommands) command() *cli.Command {
	return noun("holding", "list the holding queues, which contain the manifests of workers",
		t.verb("list", "list the depth of each holding queue and the open pages of each live worker",
			`For each page of tickets that a worker takes, it puts a manifest into a holding queue. With each lease
renewal it reports how many pages it has taken (TAKEN) and finished (SETTLED). OPEN is the difference.
The command does not read manifests, because it would have to take them from the janitors.

A manifest of a finished page stays in the queue until a janitor drops it. So MESSAGES may exceed the
sum of OPEN. It is a problem only if MESSAGES keeps growing. MESSAGES does not include messages that a
janitor has not acknowledged yet. If the tasks are in a file, the holding queues are inside holdfast
serve, and the command lists only workers.

Example:
  holdfast holding list`,
			reads(t.tool, app.Attach, t.list), outputFlag(), watchFlag()),
	)
}

// kindWorker is the kind of a worker in the list of holding queues.
const kindWorker = "worker"

// holdingRow is a holding queue or a live worker, as commands print it.
type holdingRow struct {
	Kind string `json:"kind"` // surface.KindHolding or kindWorker
	*queueDepth
	*workerPages
}

type queueDepth struct {
	AMQPQueue string `json:"amqp_queue"`
	Messages  *int   `json:"messages"`
	Consumers *int   `json:"consumers"`
}

type workerPages struct {
	Worker  holdfast.WorkerID `json:"worker"`
	Name    string            `json:"name"`
	Holding string            `json:"holding_queue"`
	Taken   int64             `json:"pages_taken"`
	Settled int64             `json:"pages_settled"`
	Open    int64             `json:"pages_open"`
	Running int               `json:"running"`
}

func (t holdingCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	var rows []surface.Queue
	if _, embedded := b.Embedded(); !embedded {
		for _, name := range b.Topology.HoldingQueueNames() {
			rows = append(rows, surface.Queue{Kind: surface.KindHolding, AMQPQueue: name})
		}
		t.warnDepths(ctx, surface.AddDepths(ctx, b, rows, brokerTimeout))
	}
	workers, err := b.Store.Workers(ctx, false)
	if err != nil {
		return err
	}
	var pages []workerPages
	for _, worker := range workers {
		pages = append(pages, workerPages{
			worker.ID, worker.Name, b.Topology.HoldingQueue(worker.ID), worker.Taken, worker.Settled, worker.Taken - worker.Settled, worker.Running,
		})
	}
	if chosen, _ := format(c); chosen != asTable {
		var all []holdingRow
		for _, q := range rows {
			all = append(all, holdingRow{q.Kind, &queueDepth{q.AMQPQueue, q.Messages, q.Consumers}, nil})
		}
		for i := range pages {
			all = append(all, holdingRow{kindWorker, nil, &pages[i]})
		}
		return list(t.tool, c, "holding", all, "")
	}
	return t.tables(c, rows, pages)
}

func (t holdingCommands) tables(c *cli.Context, rows []surface.Queue, pages []workerPages) error {
	if len(rows) > 0 {
		err := list(t.tool, c, "holding", rows, "",
			column[surface.Queue]{"holding queue", func(q surface.Queue) string { return q.AMQPQueue }},
			column[surface.Queue]{"messages", func(q surface.Queue) string { return orUnknown(q.Messages) }},
			column[surface.Queue]{"consumers", func(q surface.Queue) string { return orUnknown(q.Consumers) }})
		if err != nil {
			return err
		}
		if len(pages) > 0 {
			fmt.Fprintln(t.stdout)
		}
	}
	return list(t.tool, c, "holding", pages, "no live workers",
		column[workerPages]{"worker", func(w workerPages) string { return w.Worker.String() }},
		column[workerPages]{"name", func(w workerPages) string { return w.Name }},
		column[workerPages]{"holding queue", func(w workerPages) string { return w.Holding }},
		column[workerPages]{"taken", func(w workerPages) string { return fmt.Sprint(w.Taken) }},
		column[workerPages]{"settled", func(w workerPages) string { return fmt.Sprint(w.Settled) }},
		column[workerPages]{"open", func(w workerPages) string { return fmt.Sprint(w.Open) }},
		column[workerPages]{"running", func(w workerPages) string { return fmt.Sprint(w.Running) }})
}
