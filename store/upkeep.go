package store

import (
	"context"
	"time"
)

// Upkeep is what janitors do from time to time: they share duties, correct times, and remove rows that are old.
type Upkeep interface {
	// CorrectTimes records the time, and reports whether the clock was set back by more than two seconds since an
	// earlier call of any process. If it was, CorrectTimes corrects in small steps the times that the store itself
	// computed while the clock was ahead. Outbox entries and refused tickets are due at once, tickets count as
	// published now, and parks and retries wait no longer than intended. A delay or a time that was given with a task
	// stays as it is.
	CorrectTimes(ctx context.Context) (setBack bool, err error)
	// Turn reports whether it is the caller's turn to do a duty that one process in every interval is enough for:
	// nobody else has taken it within that time. A turn whose time lies more than two seconds in the future does not
	// count: the clock was set back since then.
	Turn(ctx context.Context, duty string, every time.Duration) (bool, error)
	// Prune deletes, in small steps up to limit rows, what is older than the given
	// ages; an age of 0 keeps that kind for ever. A task's age is the time since its last move to
	// a final state. A run is deleted only after Abandoned has found nothing of its own.
	Prune(ctx context.Context, ages PruneAges, limit int) (int, error)
}

// PruneAges says how long what is over is kept.
type PruneAges struct {
	Done, Cancelled, Archived, Runs time.Duration
}
