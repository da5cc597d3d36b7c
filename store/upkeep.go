package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Upkeep has the periodic duties of janitors: take turns, correct times, and delete old rows.
type Upkeep interface {
	// CorrectTimes records the current time. It reports whether the clock was set back by more than two seconds since
	// an earlier call of any process. If so, it corrects, in small steps, the times that the store computed while the
	// clock was ahead. Outbox entries and refused tickets become due at once. Tickets are treated as published now.
	// Parked and retried tasks wait no longer than intended. Limits check their blocked tasks again, and breakers allow
	// a probe. A delay or a time that was given with a task does not change.
	CorrectTimes(ctx context.Context) (setBack bool, err error)
	// Turn reports whether the caller has the turn for a duty that one process per interval does. It has the turn if no
	// other process has taken it in the last period of length every. Turn ignores a turn more than two seconds in the
	// future, because the clock was set back after it.
	Turn(ctx context.Context, duty string, every time.Duration) (bool, error)
	// ReportDuty stores, for people, that a duty of a janitor fails. If f.Error is empty, it deletes that report. A
	// report replaces the earlier one of the same janitor and duty.
	ReportDuty(ctx context.Context, f DutyFailure) error
	// Prune deletes rows that are older than the given ages, in small steps and at most limit rows. It returns the
	// number of deleted rows. An age of 0 keeps that kind of row forever. The age of a task is the time since it last
	// reached a final state. Prune deletes a worker only after Abandoned has found no task of it. It keeps the tasks of a
	// batch until the batch has ended. It also deletes the unique keys that were kept for a time that has passed.
	Prune(ctx context.Context, ages PruneAges, limit int) (int, error)
}

// PruneAges has the ages after which rows are deleted.
type PruneAges struct {
	Done, Cancelled, Archived, Workers, Answers time.Duration
}

// KeptUntil returns the time from which Prune deletes the task. It returns the zero time if Prune keeps a task in this
// state forever. A task of a batch stays until the batch has ended, too.
func (a PruneAges) KeptUntil(task *holdfast.Task) time.Time {
	age := map[holdfast.State]time.Duration{holdfast.Done: a.Done, holdfast.Cancelled: a.Cancelled, holdfast.Archived: a.Archived}[task.State]
	if age <= 0 {
		return time.Time{}
	}
	return task.FinishedAt.Add(age)
}

// DutyFailure reports a duty of a janitor that fails.
type DutyFailure struct {
	Janitor string // name of its process
	Duty    string
	Error   string        // the newest error
	For     time.Duration // how long the duty has failed
	Valid   time.Duration // how long the report is valid, because the janitor may end before it withdraws the report
}
