package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Fencing is how a janitor declares runs dead and finds the tasks that they leave.
type Fencing interface {
	// Now returns the store's clock. It is the cheapest question there is, asked often to
	// know that the store answers.
	Now(ctx context.Context) (time.Time, error)
	// Fence declares dead every live run whose lease ended more than grace ago and returns them. It fences nobody while
	// the server itself has been up for less than settle, or when it gets to the question more than two seconds after
	// asked, a moment from Now: then the server was frozen, and nobody could renew. The caller has made sure that the
	// store was reachable for long enough. If the newest renewal of a live run lies more than two seconds in the
	// future, the clock was set back since then. Such a run gets a whole lease from now.
	Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.RunID, error)
	// Abandoned returns tasks, without payload, that are running under runs that
	// are over: of the given run, or of any if run is 0. At most limit.
	Abandoned(ctx context.Context, run holdfast.RunID, limit int) ([]holdfast.Task, error)
}
