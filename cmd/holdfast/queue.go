package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/broker"
)

// queueCommands implements the command queue and its subcommands.
type queueCommands struct{ *tool }

func (t queueCommands) command() *cli.Command {
	return &cli.Command{
		Name:    "queue",
		Aliases: []string{"queues"},
		Usage:   "list queues",
		Subcommands: []*cli.Command{{
			Name:  "list",
			Usage: "list queues with their tasks, workers and messages",
			Description: `The store counts these columns:

  READY    tasks that wait
  DUE      ready tasks whose time has come
  OLDEST   how long the first of the due tasks has been due
  RUNNING  tasks that a worker is running
  WORKERS  live workers that take tasks of the queue

The broker counts these columns, with a delay of a few seconds:

  MESSAGES   messages in the main queue and the requeue queue; a message may contain several tickets
  CONSUMERS  consumers of the main queue

The rescue queue contains messages that the broker would otherwise have dropped; a janitor processes
them. The quarantine contains malformed messages, which wait for an operator. If the tasks are in a
file, the broker is inside holdfast serve, and its columns are left out.

Example:
  holdfast queue list -o json`,
			Flags:  []cli.Flag{outputFlag(), sortFlag(), watchFlag()},
			Action: t.do(t.list),
		}},
	}
}

// The kinds of queues in lists. All but the first are AMQP queues.
const (
	kindQueue      = "queue"
	kindRescue     = "rescue"
	kindQuarantine = "quarantine"
	kindUnread     = "unread"
	kindHolding    = "holding"
)

// queueRow is a queue, or an AMQP queue that belongs to no queue, as commands print it.
type queueRow struct {
	Kind      string `json:"kind"`
	Queue     string `json:"queue,omitempty"`
	AMQPQueue string `json:"amqp_queue"`
	*queueCounts
	// The figures of the broker; nil if they are unknown or the AMQP queue does not exist.
	Messages  *int `json:"messages"`
	Consumers *int `json:"consumers"`

	others []string // the other AMQP queues of the queue, whose messages count too
}

// queueCounts are the figures of the store about a queue.
type queueCounts struct {
	Ready   int64    `json:"ready"`
	Due     int64    `json:"due"`
	Oldest  duration `json:"oldest_due"`
	Running int64    `json:"running"`
	Workers int      `json:"workers"` // live workers that take tasks of the queue
}

// setDepth sets the figures of the broker.
func (q *queueRow) setDepth(depths map[string]broker.Depth) {
	depth, ok := depths[q.AMQPQueue]
	if !ok {
		return
	}
	for _, name := range q.others {
		depth.Ready += depths[name].Ready
	}
	q.Messages, q.Consumers = &depth.Ready, &depth.Consumers
}

// label returns the name of a queue in a table. The name of an AMQP queue is its kind in parentheses.
func (q queueRow) label() string {
	if q.Kind == kindQueue {
		return q.Queue
	}
	return "(" + q.Kind + ")"
}

// storeColumn returns a column with a figure of the store.
func storeColumn(head string, cell func(queueCounts) string) column[queueRow] {
	return column[queueRow]{head, func(q queueRow) string {
		if q.queueCounts == nil {
			return ""
		}
		return cell(*q.queueCounts)
	}}
}

// orUnknown formats a figure of the broker.
func orUnknown(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}

func (t queueCommands) list(ctx context.Context, c *cli.Context) error {
	return t.withServers(ctx, c, func(b *app.Backend) error {
		rows, err := queueRows(ctx, b)
		if err != nil {
			return err
		}
		columns := []column[queueRow]{
			{"queue", queueRow.label},
			storeColumn("ready", func(q queueCounts) string { return fmt.Sprint(q.Ready) }),
			storeColumn("due", func(q queueCounts) string { return fmt.Sprint(q.Due) }),
			storeColumn("oldest", func(q queueCounts) string { return q.Oldest.String() }),
			storeColumn("running", func(q queueCounts) string { return fmt.Sprint(q.Running) }),
			storeColumn("workers", func(q queueCounts) string { return fmt.Sprint(q.Workers) }),
		}
		if _, embedded := b.Embedded(); embedded {
			if err := b.Ping(ctx, brokerTimeout); err != nil {
				t.warnUnavailable(b, "tasks are stored", err)
			}
			return list(t.tool, c, rows, "", columns...)
		}
		rows = append(rows,
			queueRow{Kind: kindRescue, AMQPQueue: b.Topology.Rescue()},
			queueRow{Kind: kindQuarantine, AMQPQueue: b.Topology.Quarantine()},
			queueRow{Kind: kindUnread, AMQPQueue: b.Topology.Unread()})
		addDepths(ctx, t.tool, b, rows)
		return list(t.tool, c, rows, "", append(columns,
			column[queueRow]{"messages", func(q queueRow) string { return orUnknown(q.Messages) }},
			column[queueRow]{"consumers", func(q queueRow) string { return orUnknown(q.Consumers) }},
		)...)
	})
}

// queueRows reads the queues and their figures from the store.
func queueRows(ctx context.Context, b *app.Backend) ([]queueRow, error) {
	queues, err := b.Store.Queues(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := b.Store.Workers(ctx, false)
	if err != nil {
		return nil, err
	}
	var rows []queueRow
	for _, queue := range queues {
		count := 0
		for _, worker := range workers {
			if !worker.Draining && (len(worker.Queues) == 0 || slices.Contains(worker.Queues, queue.Name)) {
				count++
			}
		}
		names := b.Topology.Queue(queue.Name)
		rows = append(rows, queueRow{
			Kind: kindQueue, Queue: queue.Name, AMQPQueue: names[0], others: names[1:],
			queueCounts: &queueCounts{queue.Ready, queue.Due, duration(queue.OldestDue), queue.Running, count},
		})
	}
	return rows, nil
}

// addDepths reads the figures of the broker. If the broker does not answer, addDepths only prints a warning, because
// the figures of the store are still useful.
func addDepths(ctx context.Context, t *tool, b *app.Backend, rows []queueRow) {
	err := b.Ping(ctx, brokerTimeout)
	var depths map[string]broker.Depth
	if err == nil {
		var names []string
		for _, q := range rows {
			names = append(append(names, q.AMQPQueue), q.others...)
		}
		depths, err = b.Broker.Depths(ctx, names)
	}
	if err != nil && ctx.Err() == nil {
		t.sayError("warning: MESSAGES and CONSUMERS are unknown", err)
	}
	for i := range rows {
		rows[i].setDepth(depths)
	}
}
