package main

import (
	"context"
	"fmt"

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
  BLOCKED  ready tasks that a closed gate or a limit blocks
  LONGEST  how long the first of the blocked tasks has been due
  PARKED   ready tasks whose type no worker handles
  DEAD     tasks that failed for good and wait for a person
  WORKERS  live workers that take tasks of the queue
  PAUSED   who has paused the queue, and until when

READY includes tasks that wait at a gate or a limit, for their turn, or for a slot of their topic; DUE does not. BLOCKED
has only those at a gate or a limit, which "gate list" shows. The tickets of a paused queue wait in the broker, and their
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

// blockedText returns the number of blocked tasks of a queue, such as "7", or "7+" if there may be more.
func blockedText(q surface.QueueCounts) string {
	if q.AtLeast {
		return fmt.Sprintf("%d+", q.Blocked)
	}
	return fmt.Sprint(q.Blocked)
}

// sayBlocked prints the number of ready tasks that gates and limits block, in all queues together, if there are any.
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
		t.say("gates and limits block %s%s; to see which: holdfast gate list", atLeast, plural(blocked, "ready task"))
	}
}

// warnDepths prints a warning if the figures of the broker are missing. The figures of the store are still useful.
func (t *tool) warnDepths(ctx context.Context, unknown error) {
	if unknown != nil && ctx.Err() == nil {
		t.sayError("warning: MESSAGES and CONSUMERS are unknown", unknown)
	}
}
