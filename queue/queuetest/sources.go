package queuetest

import (
	"errors"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// NextSlice returns the task of the earliest slice of a source that is ready. If there is none, NextSlice moves the
// clock to the time at which the source stores its next slice. A source checks once a second whether its open slices
// have ended. Schedules and other sources store the tasks of the times that the clock passes, too. NextSlice fails the
// test if there is no source with the name, or if it stores no slice.
func (q *Queue) NextSlice(source string) holdfast.Task {
	q.t.Helper()
	p, err := q.store.PlanByName(q.ctx(), store.SourceKind, source)
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	if task, ok := q.readySlice(source); ok {
		return task
	}
	if !p.NextAt.IsZero() {
		q.fireUntil(p.NextAt) // the source settles the slices that have ended
		if task, ok := q.readySlice(source); ok {
			return task
		}
		if at := q.nextSlice(source); at.Before(never) {
			q.fireUntil(at)
		}
	}
	task, ok := q.readySlice(source)
	if !ok {
		q.t.Fatalf("queuetest: source %s stored no slice at %s", source, q.Now().Format(time.RFC3339))
	}
	return task
}

// readySlice returns the earliest stored slice of a source that is ready. A backfill may have ended.
func (q *Queue) readySlice(source string) (task holdfast.Task, ok bool) {
	q.t.Helper()
	for after := (time.Time{}); ; {
		slices, err := q.backend.Slices(q.ctx(), source, store.ItemOpen, after, 0)
		if err != nil {
			q.t.Fatalf("queuetest: %v", err)
		}
		for _, s := range slices {
			task, err := q.store.Task(q.ctx(), s.Task)
			if err == nil && task.State == holdfast.Ready {
				return task, true
			}
			after = s.From
		}
		if len(slices) == 0 {
			return task, false
		}
	}
}

// nextSlice returns when a source stores its next slice, if no open slice ends before: never, if it has as many open
// slices as it may have, and if it has ended.
func (q *Queue) nextSlice(source string) time.Time {
	q.t.Helper()
	s, err := q.backend.Source(q.ctx(), source)
	if errors.Is(err, holdfast.ErrNotFound) {
		return never
	}
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	if at, ok := s.Effective.NextSlice(s.Progress); ok {
		return at
	}
	return never
}
