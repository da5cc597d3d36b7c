package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
)

// Repair replaces lost tickets.
type Repair interface {
	// Unticket makes the ready tasks of the tickets due at once, so that they get a new ticket. It skips tasks at
	// another attempt, and tasks without a ticket. PostgreSQL waits for a call of DispatchDue that is publishing one of
	// the tickets, and then counts that ticket. It returns the number of tasks that it changed.
	Unticket(ctx context.Context, tickets []message.Ticket) (int, error)
	// UnticketQueue makes every ready task of a queue that has a ticket due at once, so that it gets a new ticket. It
	// works in small steps: after an error some tasks are changed, and another call changes the rest.
	UnticketQueue(ctx context.Context, queue string) (int, error)
	// UnticketLost does the same for all tasks whose tickets are proved lost, also in small steps. Two sentinels of a
	// queue prove that a ticket is lost:
	//
	//   - The first sentinel was published after the ticket and has been delivered.
	//   - The second sentinel was published at least slack after that delivery and has been delivered too. A worker
	//     that had received the ticket has claimed its task or returned the ticket by then, and returned tickets are
	//     delivered first.
	//
	// The ticket must also be older than the first sentinel by slack or ten seconds, whichever is less, because new
	// tasks count as ticketed shortly before their tickets are published. The ticket of a requeued task must be older
	// by ten times slack, because a sentinel proves nothing about the requeue queue. UnticketLost spares tasks that an
	// outbox entry may cover.
	//
	// A call stores the latest sentinel that has been delivered, and a later call completes the proof. A proof is valid
	// until a later one replaces it.
	//
	// UnticketLost returns the number of lost tickets and the number of tickets that it replaced in doubt. A
	// replacement is in doubt if the task is requeued, because its ticket may still be in the requeue queue. All
	// replacements of a step are in doubt if a live worker reports that all its executors are busy: such a worker may
	// keep or return the same ticket whenever a sentinel passes it.
	//
	// If a call has found no lost ticket for a few seconds, it ends. The next call of any process continues there. The
	// cost depends on the number of tasks that are new or have a ticket, and not on the number of all tasks. Once a day
	// UnticketLost checks all tasks.
	UnticketLost(ctx context.Context, slack time.Duration) (lost, doubtful int, err error)
	// KeepSentinels stores the latest sentinels that have been delivered, as UnticketLost does, but looks for no ticket.
	// It is cheap, so a caller can call it often. The sooner a sentinel is stored, the sooner a later one completes a
	// proof.
	KeepSentinels(ctx context.Context, slack time.Duration) error
	// SentinelsDue returns a sentinel for each queue that needs one now, and records them as sent. A queue needs at
	// most one per interval, and none while an earlier one has been on its way for less than lost. SentinelsDue ignores
	// the times of sentinels that are more than two seconds in the future, because the clock was set back after them.
	SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]message.Sentinel, error)
}
