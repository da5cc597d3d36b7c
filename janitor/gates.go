package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/store"
)

const (
	releaseEvery = 500 * time.Millisecond
	releaseBatch = 1000
	// The time between two passes is between soonestLook and latestLook while tasks wait for permits that are in use.
	// It is soonestLook after a pass that released tasks, and then doubles. While permits are in use and no task waits,
	// it is latestLook, because another process may block a task at any time.
	soonestLook = 10 * time.Millisecond
	latestLook  = 100 * time.Millisecond
)

// releaseLoop releases blocked tasks and gives slots to tasks with topics, until ctx is done. Several janitors may do
// this at the same time. The store lets one process at a time give permits, and returns when each other janitor must
// try again. After a pass without further work, the janitor pauses for as long as the pass took. So even on a slow
// machine, half of the time remains for claims.
func (j *Janitor) releaseLoop(ctx context.Context) {
	look, notified := soonestLook, false
	for {
		var next, took time.Duration
		err := contain.Call(func() (err error) {
			next, took = j.beat(releaseEvery), 0
			next, took, err = j.release(ctx, &look)
			return err
		})
		if notified { // another process may have given permits before these tasks were blocked
			next, notified = min(next, latestLook), false
		}
		if err == nil {
			j.succeeded(ctx, "release blocked tasks")
		} else if ctx.Err() == nil {
			j.failed(ctx, "release blocked tasks", err, next)
		}
		if backoff.Sleep(ctx, took) != nil {
			return
		}
		select {
		case <-time.After(next - took):
		case <-j.blocked:
			look, notified = soonestLook, true
		case <-ctx.Done():
			return
		}
	}
}

// release releases blocked tasks in short transactions. It returns the time until the next pass, and the duration of
// the last transaction.
func (j *Janitor) release(ctx context.Context, look *time.Duration) (next, took time.Duration, err error) {
	for {
		began := time.Now()
		released, err := j.o.Store.ReleaseBlocked(ctx, releaseBatch)
		took = time.Since(began)
		if released.Tasks > 0 { // also if another step has failed
			j.observe(holdfast.ObservedReleased, released.Tasks)
			j.Nudge(0)
			*look = soonestLook
		}
		switch {
		case err != nil:
			return j.beat(releaseEvery), 0, err
		case released.Tasks == 0:
			return max(soonestLook, untilNext(released, j.beat(releaseEvery), look)), took, nil
		}
		if released.Next > 0 {
			return max(soonestLook, min(released.Next, *look)), took, nil
		}
	}
}

// untilNext returns the time until the pass after one that released nothing, at most usual.
func untilNext(released store.Released, usual time.Duration, look *time.Duration) time.Duration {
	next := usual
	if released.Next >= 0 {
		next = min(next, released.Next)
	}
	switch {
	case released.Waiting:
		*look = min(2**look, latestLook)
		next = min(next, *look)
	case released.PermitsInUse:
		next = min(next, latestLook)
	}
	return next
}

// Blocked notifies the janitor that a gate has blocked tasks, or that tasks with topics wait. The janitor then tries at
// once to give them permits or slots. Blocked does not wait. It is safe for concurrent use.
func (j *Janitor) Blocked() {
	select {
	case j.blocked <- struct{}{}:
	default: // a pass is already pending
	}
}
