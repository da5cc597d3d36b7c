package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/surface"
)

type holdingCommands struct{ *tool }

func (t holdingCommands) command() *cli.Command {
	return noun("holding", "list the holding queues, which contain the manifests of workers",
		t.verb("list", "list the depth of each holding queue and the open pages of each live worker",
			`For each page of tickets that a worker takes, it puts a manifest into a holding queue. With each lease
renewal it reports how many pages it has taken (TAKEN) and finished (SETTLED). OPEN is the difference. The command does
not read manifests, because it would have to take them from the janitors.

A manifest of a finished page stays in the queue until a janitor drops it. So MESSAGES may exceed the sum of OPEN. It is
a problem only if MESSAGES keeps growing. MESSAGES does not include messages that a janitor has not acknowledged yet. If
the tasks are in a file, the holding queues are inside holdfast serve, and the command lists only workers.

Example:
  holdfast holding list`,
			reads(t.tool, app.Attach, t.list), outputFlag(), watchFlag()),
	)
}

func (t holdingCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	queues, workers, unknown, err := surface.ListHolding(ctx, b, brokerTimeout)
	t.warnDepths(ctx, unknown)
	if err != nil {
		return err
	}
	if chosen, _ := format(c); chosen != asTable {
		return printList(t.tool, c, "holding", slices.Concat(queues, workers), "")
	}
	err = printTable(t.tool, queues, "", []column[surface.Holding]{
		{"holding queue", func(q surface.Holding) string { return q.AMQPQueue }},
		{"messages", func(q surface.Holding) string { return orUnknown(q.Messages) }},
		{"consumers", func(q surface.Holding) string { return orUnknown(q.Consumers) }},
	})
	if err != nil {
		return err
	}
	if len(queues) > 0 && len(workers) > 0 {
		fmt.Fprintln(t.stdout)
	}
	return printTable(t.tool, workers, "no live workers", []column[surface.Holding]{
		{"worker", func(w surface.Holding) string { return w.Worker.String() }},
		{"name", func(w surface.Holding) string { return w.Name }},
		{"holding queue", func(w surface.Holding) string { return w.Holding }},
		{"taken", func(w surface.Holding) string { return fmt.Sprint(w.Taken) }},
		{"settled", func(w surface.Holding) string { return fmt.Sprint(w.Settled) }},
		{"open", func(w surface.Holding) string { return fmt.Sprint(w.Open) }},
		{"running", func(w surface.Holding) string { return fmt.Sprint(w.Running) }},
	})
}
