package store

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
)

// Dispatch publishes tickets for due tasks. Several processes may call it at the same time. They share the work without
// waiting for each other.
type Dispatch interface {
	// DispatchDue calls publish with at most limit due tasks of the queues that have no ticket, longest due first. It
	// marks as ticketed the tasks for which publish returned true. No other caller gets these tasks before DispatchDue
	// returns. For a few seconds, DispatchDue does not pass tasks to publish again that were not published. So a queue
	// that accepts no messages does not block the others.
	//
	// Dispatched.Next is the time until the next task is due, at most an hour. It is a second if due tasks were not
	// published or another caller has them, and 0 if limit was reached.
	DispatchDue(ctx context.Context, queues Queues, limit int, publish func(context.Context, []Due) []bool) (Dispatched, error)
	// DispatchOutbox calls publish with at most limit outbox entries of the queues, all older than their grace. It
	// deletes the entries for which publish returned true and returns their number. It keeps the others, and calls
	// publish with them again after a few seconds.
	DispatchOutbox(ctx context.Context, queues Queues, limit int, publish func(context.Context, []OutboxEntry) []bool) (int, error)
	// QueueNames returns the names of all known subqueues and type queues, sorted. It is cheap.
	QueueNames(ctx context.Context) ([]string, error)
}

// Queues selects queues. The zero value selects all.
type Queues struct {
	Only   string // if not empty, only this queue
	Except []string
}

// Includes reports whether the queue is selected.
func (q Queues) Includes(queue string) bool {
	return (q.Only == "" || q.Only == queue) && !slices.Contains(q.Except, queue)
}

// Due is a task that needs a ticket.
type Due struct {
	message.Ticket
	Queue string
	// Requeued means that a crash or a hand-back ended the last attempt of the task. Its ticket has reached the head of
	// the queue before. So the new ticket goes to the requeue queue, not behind the backlog of the main queue.
	Requeued bool
	Late     time.Duration // time since the task became due
}

// Dispatched is the result of DispatchDue.
type Dispatched struct {
	Given  int           // tasks passed to publish
	Marked int           // tasks published and marked as ticketed
	Queued int           // due tasks with a topic that now wait for a slot; see Topics
	Next   time.Duration // time until the next call
}
