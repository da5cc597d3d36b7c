package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	// stuckAfter is how long a handler may continue after the end of its context before it is treated as stuck.
	stuckAfter = time.Second
	stuckCheck = 500 * time.Millisecond
	// leastAbandoned is the minimum number of abandoned handlers that a worker tolerates. A worker with more executors
	// tolerates as many as it has executors.
	leastAbandoned = 10
)

// ignoredError is the error of an attempt that the worker gave up.
type ignoredError struct{ ignored time.Duration }

func (e *ignoredError) Error() string {
	return fmt.Sprintf("the handler ignored the end of its context for %s, so the worker gave the attempt up", e.ignored.Round(time.Millisecond))
}

// tooManyAbandonedError is the reason why a worker stops itself.
type tooManyAbandonedError struct{ handlers int }

func (e *tooManyAbandonedError) Error() string {
	return fmt.Sprintf("%d abandoned handlers still run: restart the process, and make the handlers return when their contexts end", e.handlers)
}

// watchHandlers finds handlers that ignore the end of their contexts, until ctx is done. It gives up their attempts
// after a limit. If too many of these handlers still run, it stops the intake.
func (s *session) watchHandlers(ctx context.Context, stopIntake context.CancelCauseFunc) {
	tick := time.NewTicker(stuckCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, found := range s.jobs.lookForStuck(time.Now(), func(j *job) time.Duration { return s.o.Settings.For(j.task.Type).AbandonAfter }) {
			s.handleStuck(found)
		}
		if _, abandoned := s.jobs.stuckHandlers(); abandoned >= max(leastAbandoned, s.o.Concurrency) {
			why := &tooManyAbandonedError{abandoned}
			if s.tooMany.CompareAndSwap(nil, why) {
				s.log.WithField("handlers", abandoned).Error("too many abandoned handlers still run: the worker drains")
				stopIntake(why)
			}
		}
	}
}

// handleStuck reports a stuck handler. If its attempt is given up, handleStuck settles the attempt.
func (s *session) handleStuck(found stuckJob) {
	j := found.job
	seen := holdfast.Observation{Kind: holdfast.ObservedStuck, Queue: j.task.Queue, Type: j.task.Type, Count: 1}
	log := s.logOf(j).WithField("type", j.task.Type)
	if !found.abandoned {
		log.WithField("why", context.Cause(found.attempt)).Warn("handler is stuck: it ignores the end of its context")
		s.o.Observer.Observe(seen)
		return
	}
	log.WithField("after", found.ignored).Warn("attempt abandoned: its handler ignores the end of its context")
	seen.Kind = holdfast.ObservedAbandoned
	s.o.Observer.Observe(seen)
	policy, cause := s.policyOf(j, causeOf(found.attempt, &ignoredError{found.ignored}))
	s.settle(j, cause, policy, nil)
}

// fault returns the reason why the worker is not healthy, or nil.
func (s *session) fault() error {
	if why := s.tooMany.Load(); why != nil {
		return why
	}
	return s.capacity.fault.current()
}

// report returns the report to send with a renewal.
func (s *session) report() store.WorkerReport {
	var r store.WorkerReport
	r.Stuck = s.jobs.stuckTasks(time.Now())
	_, r.Abandoned = s.jobs.stuckHandlers()
	r.Throughput = s.ended.report(time.Now())
	return r
}

// stuckJob is a result of lookForStuck.
type stuckJob struct {
	job       *job
	attempt   context.Context
	ignored   time.Duration // how long the handler has ignored the end of its context
	abandoned bool          // the caller must settle the job
}

// lookForStuck returns the jobs that have become stuck, and the jobs whose attempts it gives up. It marks the jobs that
// it gives up as finished and frees their executors. limit returns how long a job may be stuck before its attempt is
// given up; 0 means forever.
func (js *jobs) lookForStuck(now time.Time, limit func(*job) time.Duration) (found []stuckJob) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.inProgress {
		if j == nil || j.phase != running || j.attempt == nil || !ignores(j.attempt) {
			continue
		}
		if j.overSince.IsZero() {
			j.overSince = now
		}
		over := now.Sub(j.overSince)
		if over >= stuckAfter && !j.stuck {
			j.stuck = true
			found = append(found, stuckJob{job: j, attempt: j.attempt, ignored: over})
		}
		if most := limit(j); most > 0 && over >= most {
			j.abandoned = true
			js.abandoned.Add(1)
			js.markFinished(j)
			js.freeExecutor()
			found = append(found, stuckJob{j, j.attempt, over, true})
		}
	}
	js.fill()
	return found
}

// ignores reports whether the context of a running handler has ended because of a timeout or a cancellation. If the
// worker itself ends, its drain decides how long a handler may continue.
func ignores(attempt context.Context) bool {
	if attempt.Err() == nil {
		return false
	}
	why := context.Cause(attempt)
	return errors.Is(why, holdfast.ErrTimeout) || errors.Is(why, holdfast.ErrCancelled)
}

// stuckHandlers returns the number of stuck handlers, and how many of them are abandoned.
func (js *jobs) stuckHandlers() (stuck, abandoned int) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.inProgress {
		if j != nil && j.phase == running && j.stuck {
			stuck++
		}
	}
	return stuck, int(js.abandoned.Load())
}

// stuckTasks returns the tasks whose handlers are stuck, the longest stuck first.
func (js *jobs) stuckTasks(now time.Time) (tasks []store.StuckTask) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.inProgress {
		if j != nil && j.phase == running && j.stuck {
			tasks = append(tasks, store.StuckTask{Task: j.task.ID, Attempt: j.task.Attempt, For: now.Sub(j.overSince)})
		}
	}
	slices.SortFunc(tasks, func(a, b store.StuckTask) int {
		return cmp.Or(cmp.Compare(b.For, a.For), cmp.Compare(a.Task, b.Task))
	})
	return tasks[:min(len(tasks), store.MaxStuck)]
}
