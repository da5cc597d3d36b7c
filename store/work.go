package store

import (
	"context"
	"math"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
)

// Work is how a consumer takes tasks and reports their results.
type Work interface {
	// Claim takes the tasks that the tickets name for run, one verdict per
	// ticket, in one statement per batch. Only tasks that are wanted are
	// taken, and those taken into a buffer are Buffered. It is idempotent: a task that run holds already, at the ticket's attempt, is
	// Claimed again, because the answer to an earlier call may have been lost; the caller
	// knows which it has in hand. The second of two equal tickets in one call is Stale.
	// ErrFenced if the run is not live; then nothing was taken.
	Claim(ctx context.Context, run holdfast.RunID, wanted []Wanted, tickets []message.Ticket, into Place) ([]Claim, error)
	// Held returns the tasks, without payload, that are running under the run and whose ids are above after, up to
	// through, in any order. It may read all tasks of that range. It may or may not return tasks that start or end
	// meanwhile.
	Held(ctx context.Context, run holdfast.RunID, after, through holdfast.TaskID) ([]holdfast.Task, error)
	// Apply makes the moves and reports for each whether it was accepted; one that
	// was not has changed nothing, because the task no longer stood where the judge
	// saw it. A move with a report leaves a row among the task's attempts. Cancelling
	// a running task leaves word for its run.
	Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error)
}

// Tickets records what a consumer does with tickets whose tasks it does not take, and with sentinels.
type Tickets interface {
	// Park makes ready tasks wait, uncharged and at the same attempt, and stores why. The first park of a task at an
	// attempt lasts wait, and each further one twice as long, up to ten minutes or wait, whichever is longer. Tasks
	// that moved on are left alone.
	Park(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) error
	// PassedOn records that the caller is about to send the tickets to the requeue queue of their lane. The lane's
	// sentinels prove nothing about that queue. UnticketLost takes these tasks as Again, and as ticketed now. A task
	// that was recorded less than ten seconds ago may keep its time. Tasks that moved on are left alone.
	PassedOn(ctx context.Context, tickets []message.Ticket) error
	// Drained records that a lane's sentinel came out, and when: now. The caller leaves out a sentinel that was
	// redelivered: returned tickets may be behind it. One that is not newer than the newest recorded
	// changes nothing, nor does one whose time lies in the future.
	Drained(ctx context.Context, s message.Sentinel) error
}

// Wanted is a type of task that a caller runs; each type comes once.
type Wanted struct {
	Type string
	// MostCrashes is how many crashes a task may have had; one with more is a Suspect.
	MostCrashes int
}

// AnyCrashes is a MostCrashes that no task exceeds.
const AnyCrashes = math.MaxInt32

// AnyOf wants all tasks of the types.
func AnyOf(types ...string) []Wanted {
	wanted := make([]Wanted, len(types))
	for i, t := range types {
		wanted[i] = Wanted{t, AnyCrashes}
	}
	return wanted
}

// Place is where a worker puts the tasks that it claims.
type Place uint8

// The places.
const (
	// IntoExecutors says that a free executor is reserved for each task. The task starts when the answer to the claim
	// arrives.
	IntoExecutors Place = iota
	// IntoBuffer says that the tasks may wait for an executor. If their worker crashes, they are not charged.
	IntoBuffer
)

// Verdict is the answer to one ticket.
type Verdict uint8

// The verdicts.
const (
	Stale     Verdict = iota // the task is final, newer, not due yet, or gone from this attempt: drop the ticket
	Claimed                  // the task is the caller's
	Contended                // it runs under another run: mirror it under that run, do not run it
	Ahead                    // the ticket is newer than the row, or there is no row: the database lost commits; to rescue
	Unhandled                // its type is not among those asked for: park it
	Suspect                  // it has had more crashes than is wanted: claim it when nothing else is in hand
)

// Claim is a verdict with what belongs to it.
type Claim struct {
	Verdict Verdict
	Task    holdfast.Task  // complete if Claimed; only ID, Type, Lane if Unhandled or Suspect
	Owner   holdfast.RunID // if Contended
	Now     time.Time      // the store's clock
}
