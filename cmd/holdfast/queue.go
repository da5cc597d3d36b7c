package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/broker"
)

// queueCommands are the commands of the noun queue.
type queueCommands struct{ *tool }

func (t queueCommands) command() *cli.Command {
	return &cli.Command{
		Name:    "queue",
		Aliases: []string{"queues"},
		Usage:   "list the lanes and their queues",
		Subcommands: []*cli.Command{{
			Name:  "list",
			Usage: "show what waits and runs in each lane, and what is in the broker for it",
			Description: `READY, DUE, OLDEST and RUNNING are counted in the store: tasks that wait, those of them that could
run now, for how long the first of them could, and tasks in work. MESSAGES and CONSUMERS are the
broker's figures, a few seconds old; one message may stand for several tasks, and those in all
queues of the lane are counted. WORKERS are the live workers that take tasks of the lane. In the rescue queue
is what the broker would have dropped, until a janitor has explained it; in the quarantine, malformed
messages that wait for a person. A file has no figures of a broker, which is in the memory of holdfast serve.

Example:
  holdfast queue list -o json`,
			Flags:  []cli.Flag{outputFlag(), sortFlag(), watchFlag()},
			Action: t.do(t.list),
		}},
	}
}

// The kinds of queues in lists.
const (
	kindLane       = "lane"
	kindRescue     = "rescue"
	kindQuarantine = "quarantine"
	kindHold       = "hold"
)

// queue is a lane, or another queue, as it is printed.
type queue struct {
	Kind  string `json:"kind"`
	Lane  string `json:"lane,omitempty"`
	Queue string `json:"queue"`
	*laneCounts
	// What the broker says; nil if it does not, or there is no such queue.
	Messages  *int `json:"messages"`
	Consumers *int `json:"consumers"`

	beside []string // further queues of the lane, whose messages count too
}

// laneCounts is what the store says of a lane.
type laneCounts struct {
	Ready   int64    `json:"ready"`
	Due     int64    `json:"due"`
	Oldest  duration `json:"oldest_due"`
	Running int64    `json:"running"`
	Workers int      `json:"workers"` // live ones that take tasks of the lane
}

func (q *queue) see(depths map[string]broker.Depth) {
	depth, ok := depths[q.Queue]
	if !ok {
		return
	}
	for _, name := range q.beside {
		depth.Ready += depths[name].Ready
	}
	q.Messages, q.Consumers = &depth.Ready, &depth.Consumers
}

// label is the name of a queue for people.
func (q queue) label() string {
	if q.Kind == kindLane {
		return q.Lane
	}
	return "(" + q.Kind + ")"
}

// counted is a column of figures from the store.
func counted(head string, cell func(laneCounts) string) column[queue] {
	return column[queue]{head, func(q queue) string {
		if q.laneCounts == nil {
			return ""
		}
		return cell(*q.laneCounts)
	}}
}

// known shows a figure of the broker's.
func known(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}

func (t queueCommands) list(ctx context.Context, c *cli.Context) error {
	return t.withServers(ctx, c, func(b *app.Backend) error {
		queues, err := lanesOf(ctx, b)
		if err != nil {
			return err
		}
		columns := []column[queue]{
			{"lane", queue.label},
			counted("ready", func(l laneCounts) string { return fmt.Sprint(l.Ready) }),
			counted("due", func(l laneCounts) string { return fmt.Sprint(l.Due) }),
			counted("oldest", func(l laneCounts) string { return l.Oldest.String() }),
			counted("running", func(l laneCounts) string { return fmt.Sprint(l.Running) }),
			counted("workers", func(l laneCounts) string { return fmt.Sprint(l.Workers) }),
		}
		if _, embedded := b.Embedded(); embedded {
			if err := b.Ping(ctx, brokerPatience); err != nil {
				t.sayError("warning: tasks wait", err)
			}
			return list(t.tool, c, queues, "", columns...)
		}
		queues = append(queues,
			queue{Kind: kindRescue, Queue: b.Topology.Rescue()},
			queue{Kind: kindQuarantine, Queue: b.Topology.Quarantine()})
		addDepths(ctx, t.tool, b, queues)
		return list(t.tool, c, queues, "", append(columns,
			column[queue]{"messages", func(q queue) string { return known(q.Messages) }},
			column[queue]{"consumers", func(q queue) string { return known(q.Consumers) }},
		)...)
	})
}

// lanesOf describes the lanes as the store knows them.
func lanesOf(ctx context.Context, b *app.Backend) ([]queue, error) {
	lanes, err := b.Store.Lanes(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := b.Store.Runs(ctx, false)
	if err != nil {
		return nil, err
	}
	var queues []queue
	for _, lane := range lanes {
		workers := 0
		for _, run := range runs {
			if !run.Draining && (len(run.Lanes) == 0 || slices.Contains(run.Lanes, lane.Name)) {
				workers++
			}
		}
		names := b.Topology.Lane(lane.Name)
		queues = append(queues, queue{
			Kind: kindLane, Lane: lane.Name, Queue: names[0], beside: names[1:],
			laneCounts: &laneCounts{lane.Ready, lane.Due, duration(lane.OldestDue), lane.Running, workers},
		})
	}
	return queues, nil
}

// addDepths asks the broker for the figures of the queues. A broker that does not answer is
// worth a warning only: what the store says is still of use.
func addDepths(ctx context.Context, t *tool, b *app.Backend, queues []queue) {
	err := b.Ping(ctx, brokerPatience)
	var depths map[string]broker.Depth
	if err == nil {
		var names []string
		for _, q := range queues {
			names = append(append(names, q.Queue), q.beside...)
		}
		depths, err = b.Broker.Depths(ctx, names)
	}
	if err != nil && ctx.Err() == nil {
		t.sayError("warning: the broker's figures are missing", err)
	}
	for i := range queues {
		queues[i].see(depths)
	}
}
