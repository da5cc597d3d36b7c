package store

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
)

// Dispatch publishes what is due. Any number of processes may call it at once;
// they share the work and none waits for another.
type Dispatch interface {
	// DispatchDue gives at most limit due and unticketed tasks of the lanes to publish, those due for longest first, and
	// marks as ticketed those for which publish returned true. Until it returns no
	// other caller gets them. Next is the wait until the next task is due, capped at
	// an hour; it is a second if tasks that are due now were not published or are in
	// another caller's hands, and 0 if limit was reached. Tasks that were not published are not
	// given again for a few seconds, so that those of a queue that takes nothing do not keep
	// others from being reached.
	DispatchDue(ctx context.Context, lanes Lanes, limit int, publish func(context.Context, []Due) []bool) (Dispatched, error)
	// DispatchReceipts gives receipts of the lanes that are older than their grace to publish and deletes those
	// for which it returned true. The others are not given again for a few seconds.
	DispatchReceipts(ctx context.Context, lanes Lanes, limit int, publish func(context.Context, []Receipt) []bool) (int, error)
	// LaneNames returns every known lane, sorted, without counting anything.
	LaneNames(ctx context.Context) ([]string, error)
}

// Lanes chooses lanes. The zero value chooses all.
type Lanes struct {
	Only   string // if not empty, this one
	Except []string
}

// Includes reports whether the lane is chosen.
func (l Lanes) Includes(lane string) bool {
	return (l.Only == "" || l.Only == lane) && !slices.Contains(l.Except, lane)
}

// Due is a task that needs a ticket.
type Due struct {
	message.Ticket
	Lane string
	// Again means that its last attempt was broken off by a crash or handed back: it had its
	// turn, and does not wait behind the backlog once more.
	Again bool
	Late  time.Duration // since it became due
}

// Dispatched is the answer to DispatchDue.
type Dispatched struct {
	Given  int // tasks handed to publish
	Marked int // of them, published and marked
	Next   time.Duration
}
