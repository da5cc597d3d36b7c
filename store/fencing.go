package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Fencing fences workers and finds the tasks that dead workers leave behind. Janitors use it.
type Fencing interface {
	// Now returns the time of the store. It is the cheapest call, and janitors use it often to check that the store
	// answers.
	Now(ctx context.Context) (time.Time, error)
	// Fence fences every live worker whose lease ended more than grace ago, and returns these workers. The caller must
	// have made sure that the store was reachable for long enough.
	//
	// Fence does nothing if the server has been up for less than settle. calledAt is the time that Now returned just
	// before the call. Fence also does nothing if the server processes the call more than two seconds later: the server
	// was frozen, and no worker could renew its lease.
	//
	// If the latest renewal of a live worker is more than two seconds in the future, the clock of the server was set
	// back. Fence gives such a worker a whole lease from now.
	Fence(ctx context.Context, calledAt time.Time, grace, settle time.Duration) ([]holdfast.WorkerID, error)
	// Abandoned returns at most limit tasks, without payload, that are running under ended workers: under the given
	// worker, or under any worker if it is 0.
	Abandoned(ctx context.Context, worker holdfast.WorkerID, limit int) ([]holdfast.Task, error)
}
