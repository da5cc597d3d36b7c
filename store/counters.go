package store

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Counters keeps the number of tasks by queue, priority, type and state. Every method that inserts, ends, revives or
// deletes tasks changes the numbers in the same transaction.
//
// A person may change tasks in the database by hand. So Recount compares the numbers with the tasks and corrects them.
type Counters interface {
	// CountGroups returns the number of tasks by queue, priority, type and state, sorted by queue, highest priority, type
	// and state. It omits empty groups. It takes a few milliseconds for any number of tasks.
	//
	// In a large store, CountGroups may read from the latest renewals of the workers which tasks are running. Then the
	// sum of ready and running tasks is exact, and each of the two numbers is as old as these renewals.
	CountGroups(ctx context.Context) ([]CountGroup, error)
	// FoldCounts adds at most limit recent changes to the stored numbers, and returns how many it added. It does not
	// change the result of CountGroups, which takes longer while many changes wait.
	FoldCounts(ctx context.Context, limit int) (int, error)
	// Recount compares the numbers of the next block of ids with the tasks, and corrects them. It returns the sum of the
	// errors. Writers do not wait for it. Any number of callers may use it at the same time.
	Recount(ctx context.Context) (corrected int64, err error)
}

// CountGroup is the number of tasks of a queue, a priority and a type in a state.
type CountGroup struct {
	Queue, Type string
	Priority    holdfast.Priority
	State       holdfast.State
	Tasks       int64
}
