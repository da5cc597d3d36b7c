package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
)

// Repair replaces lost tickets.
type Repair interface {
	// Unticket makes the ready tasks of the tickets due at once, so that they get new tickets. It returns the number of
	// tasks that had tickets. It skips a task that is at another attempt. If DispatchDue is publishing one of the
	// tickets, PostgreSQL waits for the end of that call; other stores let that call leave the task due.
	Unticket(ctx context.Context, tickets []message.Ticket) (int, error)
	// UnticketQueue makes all ready tasks of a queue that have a ticket due at once, so that they get new tickets. For
	// a type queue, it does so for the tasks whose tickets may wait there. It works in small steps. After an error some
	// tasks are changed, and another call changes the rest.
	UnticketQueue(ctx context.Context, queue string) (int, error)
	// UnticketLost makes tasks due at once whose tickets are proved lost, in small steps. Two sentinels of a queue
	// prove that a ticket is lost:
	//
	//   - The first sentinel was published after the ticket and has been delivered.
	//   - The second sentinel was published at least slack after that delivery, and has been delivered, too. If a worker
	//     had received the ticket, it has claimed the task or returned the ticket by then. Returned tickets are
	//     delivered first.
	//
	// The ticket must also be older than the first sentinel by slack or ten seconds, whichever is less: a new task is
	// stored as ticketed shortly before its ticket is published. The ticket of a requeued task must be older by ten
	// times slack, because a sentinel proves nothing about the requeue queue. If there is a type queue for the task, only
	// the sentinels of the type queue prove the ticket of a requeued task lost. UnticketLost skips tasks that an outbox
	// entry may cover.
	//
	// A call stores the latest delivered sentinel, and a later call completes the proof. A proof is valid until a later
	// one replaces it.
	//
	// UnticketLost returns the number of lost tickets, and the number of tickets that it replaced in doubt. A
	// replacement is in doubt if the task is requeued, because its ticket may still be in the requeue queue. All
	// replacements of a step are in doubt if a live worker reports that all its executors are busy. Such a worker may
	// keep or return the same ticket whenever a sentinel passes it.
	//
	// A call that has found no lost ticket for a few seconds returns. The next call of any process continues there. The
	// cost depends on the number of tasks that are new or have a ticket, not on the number of all tasks. Once a day
	// UnticketLost checks all tasks.
	UnticketLost(ctx context.Context, slack time.Duration) (lost, doubtful int, err error)
	// KeepSentinels stores the latest delivered sentinels, as UnticketLost does, but checks no ticket. It is cheap, so
	// callers may call it often. The sooner a sentinel is stored, the sooner a later one completes a proof.
	KeepSentinels(ctx context.Context, slack time.Duration) error
	// SentinelsDue returns a sentinel for each queue that needs one now, and records these sentinels as sent. A queue
	// needs at most one per interval. While a sentinel of the queue is undelivered, the queue needs no other one until
	// the time lost has passed since it was sent. SentinelsDue ignores times of sentinels more than two seconds in the
	// future, because the clock was set back after them.
	SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]message.Sentinel, error)
}
