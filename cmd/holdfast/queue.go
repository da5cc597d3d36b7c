package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type queueCommands struct{ *tool }

func (t queueCommands) command() *cli.Command {
	return noun("queue queues", "list, pause and resume queues", append([]*cli.Command{
		t.verb("list", "list queues with their tasks, workers and messages",
			`A queue has a line for each priority that a task of it ever had. The store counts these columns:

  READY    tasks that wait
  DUE      ready tasks whose time has come
  OLDEST   how long the first of the due tasks has been due
  RUNNING  tasks that a worker is running
  BLOCKED  ready tasks that a closed gate, a limit or a dead task of their key blocks
  LONGEST  how long the first of the blocked tasks has been due
  PARKED   ready tasks whose type no worker handles
  DEAD     tasks that failed for good and wait for a person
  WORKERS  live workers that take tasks of the queue
  PAUSED   who has paused the queue, and until when

READY includes tasks that wait at a gate or a limit, for their turn, or for a slot of their topic; DUE does not. BLOCKED
has only those at a gate or a limit, which "gate list" shows, and those behind a dead ordered task, which "key list"
shows. The tickets of a paused queue wait in the broker, and their
tasks are not in it. The store counts at most 100,000 blocked tasks in all queues together. If there are more, each
number has a +, because it may be too low.

The broker counts these columns, with a delay of a few seconds:

  MESSAGES   messages in the main queue and the requeue queue; a message may contain several tickets
  CONSUMERS  consumers of the main queue

The rescue queue contains messages that the broker would otherwise have dropped; a janitor processes them. The
quarantine contains malformed messages, which wait for an operator. If the tasks are in a file, the broker is inside
holdfast serve, and its columns are left out.

Example:
  holdfast queue list -o json`,
			reads(t.tool, app.Attach, t.list), outputFlag(), sortFlag(), watchFlag()),
		t.verb("count", "count tasks by state, in total and by queue",
			`The first line, (all), has the numbers of all queues together. The columns are those of "queue list", with the
tasks that have ended: DONE, CANCELLED and ARCHIVED. The priorities of a queue are in one line, and the broker is not
used. -o json also has the numbers of the workers and of their executors; the API has the same at /api/v1/counts.

Example:
  holdfast queue count -o json`,
			reads(t.tool, openCheckedStore, t.count), outputFlag(), watchFlag()),
	}, gateCommands(t).pauseCommands(pausable{"queue", "NAME", "mail", ofQueue})...)...)
}

// paused returns who has paused a queue, and until when.
func (t queueCommands) paused(gate *store.Gate) string {
	switch {
	case gate == nil:
		return ""
	case gate.Until.IsZero():
		return clipped("by "+gate.Name, 40)
	}
	return clipped("by "+gate.Name, 40) + ", until " + t.stamp(gate.Until)
}

// queueLabel returns the name of a queue in a table. The name of an AMQP queue is its kind in parentheses.
func queueLabel(q surface.Queue) string {
	if q.Kind == surface.KindQueue {
		return q.Queue
	}
	return "(" + q.Kind + ")"
}

// storeColumn returns a column with a figure from the store.
func storeColumn(head string, cell func(surface.QueueCounts) string) column[surface.Queue] {
	return column[surface.Queue]{head, func(q surface.Queue) string {
		if q.QueueCounts == nil {
			return ""
		}
		return cell(*q.QueueCounts)
	}}
}

// orUnknown formats a figure from the broker, which is nil if it is unknown.
func orUnknown(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}

func (t queueCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	rows, unknown, err := surface.Queues(ctx, b, brokerTimeout)
	if err != nil {
		return err
	}
	columns := []column[surface.Queue]{
		{"queue", queueLabel},
		{"priority", func(q surface.Queue) string { return q.Priority }},
		storeColumn("ready", func(q surface.QueueCounts) string { return fmt.Sprint(q.Ready) }),
		storeColumn("due", func(q surface.QueueCounts) string { return fmt.Sprint(q.Due) }),
		storeColumn("oldest", func(q surface.QueueCounts) string { return q.Oldest.String() }),
		storeColumn("running", func(q surface.QueueCounts) string { return fmt.Sprint(q.Running) }),
		storeColumn("blocked", blockedText),
		storeColumn("longest", func(q surface.QueueCounts) string { return q.OldestBlocked.String() }),
		storeColumn("parked", func(q surface.QueueCounts) string { return fmt.Sprint(q.Parked) }),
		storeColumn("dead", func(q surface.QueueCounts) string { return fmt.Sprint(q.Dead) }),
		storeColumn("workers", func(q surface.QueueCounts) string { return fmt.Sprint(q.Workers) }),
		storeColumn("paused", func(q surface.QueueCounts) string { return t.paused(q.Paused) }),
	}
	if _, embedded := b.Embedded(); embedded {
		if unknown != nil {
			t.warnUnavailable(b, "tasks are stored", unknown)
		}
	} else {
		t.warnDepths(ctx, unknown)
		columns = append(columns,
			column[surface.Queue]{"messages", func(q surface.Queue) string { return orUnknown(q.Messages) }},
			column[surface.Queue]{"consumers", func(q surface.Queue) string { return orUnknown(q.Consumers) }})
	}
	if err := printList(t.tool, c, "queues", rows, "", columns...); err != nil {
		return err
	}
	t.sayBlocked(rows)
	return nil
}

func (t queueCommands) count(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	o, err := surface.ReadOverview(ctx, b.Store)
	if err != nil {
		return err
	}
	number := func(head string, of func(surface.QueueTotals) int64) column[surface.QueueTotals] {
		return column[surface.QueueTotals]{head, func(q surface.QueueTotals) string { return fmt.Sprint(of(q)) }}
	}
	return printItem(t.tool, c, o, func() error {
		all := surface.QueueTotals{Queue: "(all)", Totals: o.Totals, Workers: o.Workers.Live}
		columns := []column[surface.QueueTotals]{
			{"queue", func(q surface.QueueTotals) string { return q.Queue }},
			number("ready", func(q surface.QueueTotals) int64 { return q.Tasks.Ready }),
			number("due", func(q surface.QueueTotals) int64 { return q.Due }),
			{"oldest", func(q surface.QueueTotals) string { return q.Oldest.String() }},
			number("running", func(q surface.QueueTotals) int64 { return q.Tasks.Running }),
			{"blocked", func(q surface.QueueTotals) string { return atLeastText(q.Blocked, q.AtLeast) }},
			{"longest", func(q surface.QueueTotals) string { return q.OldestBlocked.String() }},
			number("parked", func(q surface.QueueTotals) int64 { return q.Parked }),
			number("done", func(q surface.QueueTotals) int64 { return q.Tasks.Done }),
			number("dead", func(q surface.QueueTotals) int64 { return q.Tasks.Dead }),
			number("cancelled", func(q surface.QueueTotals) int64 { return q.Tasks.Cancelled }),
			number("archived", func(q surface.QueueTotals) int64 { return q.Tasks.Archived }),
			number("workers", func(q surface.QueueTotals) int64 { return int64(q.Workers) }),
		}
		if slices.ContainsFunc(o.Queues, func(q surface.QueueTotals) bool { return q.Paused != nil }) {
			columns = append(columns, column[surface.QueueTotals]{"paused", func(q surface.QueueTotals) string { return t.paused(q.Paused) }})
		}
		err := printTable(t.tool, append([]surface.QueueTotals{all}, o.Queues...), "", columns)
		t.say("%s, %d draining; %d of %s busy", plural(o.Workers.Live, "live worker"), o.Workers.Draining, o.Executors.Busy,
			plural(o.Executors.Total, "executor"))
		t.sayBlocked(o.Backlog.Queues)
		return err
	})
}

// blockedText returns the number of blocked tasks of a queue.
func blockedText(q surface.QueueCounts) string { return atLeastText(q.Blocked, q.AtLeast) }

// atLeastText returns a number, such as "7", or "7+" if it may be too low.
func atLeastText(n int64, atLeast bool) string {
	if atLeast {
		return fmt.Sprintf("%d+", n)
	}
	return fmt.Sprint(n)
}

// sayBlocked prints the number of blocked tasks in all queues together, if there are any.
func (t queueCommands) sayBlocked(rows []surface.Queue) {
	blocked, atLeast := 0, ""
	for _, q := range rows {
		if q.QueueCounts != nil {
			blocked += int(q.Blocked)
			if q.AtLeast {
				atLeast = "at least "
			}
		}
	}
	if blocked > 0 {
		t.say("gates, limits or dead ordered tasks block %s%s; to see which: holdfast gate list, holdfast key list --dead", atLeast, plural(blocked, "ready task"))
	}
}

// warnDepths prints a warning if the figures of the broker are missing. The figures of the store are still useful.
func (t *tool) warnDepths(ctx context.Context, unknown error) {
	if unknown != nil && ctx.Err() == nil {
		t.sayError("warning: MESSAGES and CONSUMERS are unknown", unknown)
	}
}
