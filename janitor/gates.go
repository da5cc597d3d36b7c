package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

const (
	releaseEvery = 500 * time.Millisecond
	releaseBatch = 1000
	// While tasks wait for permits that are in use, the pause between two looks is from soonest to latest. It is the
	// soonest after a look that released tasks, and then doubles. While no task waits but permits are in use, it is the
	// latest: in the next moment another process may block a task that waits for one of them.
	soonestLook = 10 * time.Millisecond
	latestLook  = 100 * time.Millisecond
)

// releaseLoop releases blocked tasks until ctx is done, and gives slots to tasks with topics. Several janitors may do
// it at the same time. The store lets one process at a time give permits, and says when a janitor that finds another one
// at it looks again. After a look that leaves nothing to do, the janitor pauses for as long as the look took. So even on a
// slow machine, half of the time is left for claims.
func (j *Janitor) releaseLoop(ctx context.Context) {
	look, notified := soonestLook, false
	for {
		next, took, err := j.release(ctx, &look)
		if notified { // another process may have been giving permits, without those tasks
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

// release releases blocked tasks in short transactions. It returns the time until the next look, and how long the last
// transaction took.
func (j *Janitor) release(ctx context.Context, look *time.Duration) (next, took time.Duration, err error) {
	for {
		began := time.Now()
		released, err := j.o.Store.ReleaseBlocked(ctx, releaseBatch)
		took = time.Since(began)
		switch {
		case err != nil:
			return j.beat(releaseEvery), 0, err
		case released.Tasks == 0:
			return max(soonestLook, untilNext(released, j.beat(releaseEvery), look)), took, nil
		}
		j.observe(holdfast.ObservedReleased, released.Tasks)
		j.Nudge(0)
		*look = soonestLook
		if released.Next > 0 {
			return max(soonestLook, min(released.Next, *look)), took, nil
		}
	}
}

// untilNext returns the time until the next look after one that released nothing, at most usual.
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

// Blocked notifies the janitor that a gate has blocked tasks, or that tasks with topics wait. The janitor then looks at
// once whether they get permits or slots. The method returns at once. It is safe for concurrent use.
func (j *Janitor) Blocked() {
	select {
	case j.blocked <- struct{}{}:
	default: // a look is already pending
	}
}
