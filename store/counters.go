package store

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Counters keeps the number of tasks by queue, priority, type and state. Every method that inserts, ends, revives or
// deletes tasks changes the numbers in the same transaction.
//
// Builds without counters may run beside this one, and tasks may be older than the counters. So Recount compares the
// numbers with the tasks and corrects them.
type Counters interface {
	// CountGroups returns the number of tasks by queue, priority, type and state. It omits empty groups. It takes a few
	// milliseconds for any number of tasks.
	//
	// In a large store, CountGroups may read from the latest renewals of the workers which tasks are running. Then the
	// sum of ready and running tasks is exact, and each of the two numbers is as old as these renewals.
	CountGroups(ctx context.Context) (CountGroups, error)
	// FoldCounts adds at most limit recent changes to the stored numbers, and returns how many it added. It does not
	// change the result of CountGroups, which takes longer while many changes wait.
	FoldCounts(ctx context.Context, limit int) (int, error)
	// Recount compares the numbers of the next block of ids with the tasks, and corrects the difference. Writers do not
	// wait for it. Any number of callers may use it at the same time.
	Recount(ctx context.Context) (Recounted, error)
}

// CountGroups is the result of Counters.CountGroups.
type CountGroups struct {
	Groups []CountGroup // sorted by queue, highest priority, type and state
	// Complete is false until Recount has counted the tasks that are older than the counters.
	Complete bool
}

// CountGroup is the number of tasks of a queue, a priority and a type in a state.
type CountGroup struct {
	Queue, Type string
	Priority    holdfast.Priority
	State       holdfast.State
	Tasks       int64
}

// Recounted is the result of Counters.Recount.
type Recounted struct {
	Corrected int64 // sum of the errors in the numbers of the block
	Complete  bool  // the tasks that are older than the counters are counted; see CountGroups
}
