package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Examiner is a store that can be asked how it is kept. It is for a doctor: nothing may depend on a
// store having this role, or be decided by what it says.
type Examiner interface {
	// Settings checks what the store cannot rule out by itself: settings and surroundings under which tasks that
	// were accepted can get lost. Every check is in the answer, also those that went well. It needs
	// no schema.
	Settings(ctx context.Context) ([]holdfast.Finding, error)
	// Signs tells what janitors have left undone, and when one was last at work. A receipt is old if it was
	// made more than old ago.
	Signs(ctx context.Context, old time.Duration) (Signs, error)
}

// Signs are the signs of life of the janitors.
type Signs struct {
	Receipts int64         // that are old
	Oldest   time.Duration // the age of the first of them
	// Turned is how long ago a janitor last took a turn at a duty they share; negative if none has yet.
	Turned time.Duration
	// SetBack is when a worker last found that the store had lost a renewal, as after a restore; zero if never.
	SetBack time.Time
}
