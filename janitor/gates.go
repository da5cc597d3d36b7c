package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

const (
	releaseEvery = 500 * time.Millisecond
	releaseBatch = 1000
	// While tasks wait for permits, the pause between two looks is from soonest to latest. It is the soonest after a look
	// that released tasks, and then doubles.
	soonestLook = 10 * time.Millisecond
	latestLook  = 100 * time.Millisecond
)

// releaseLoop releases blocked tasks until ctx is done. Several janitors may do it at the same time. The store lets one
// process at a time give permits; a janitor that finds another one at it looks again after releaseEvery.
func (j *Janitor) releaseLoop(ctx context.Context) {
	look, notified := soonestLook, false
	for {
		next, err := j.release(ctx, &look)
		if notified { // another process may have been giving permits, without those tasks
			next, notified = min(next, latestLook), false
		}
		if err != nil && ctx.Err() == nil {
			j.o.Log.WithError(err).WithField("duty", "release blocked tasks").Warn("duty failed, trying again")
		}
		select {
		case <-time.After(next):
		case <-j.blocked:
			look, notified = soonestLook, true
		case <-ctx.Done():
			return
		}
	}
}

// release releases blocked tasks in short transactions. It returns the time until the next look.
func (j *Janitor) release(ctx context.Context, look *time.Duration) (next time.Duration, err error) {
	for {
		released, err := j.o.Store.ReleaseBlocked(ctx, releaseBatch)
		switch {
		case err != nil || released.Next < 0 && released.Tasks == 0:
			return j.beat(releaseEvery), err
		case released.Tasks == 0:
			*look = min(2**look, latestLook)
			return max(soonestLook, min(released.Next, *look)), nil
		}
		j.observe(holdfast.ObservedReleased, released.Tasks)
		j.Nudge(0)
		*look = soonestLook
		if released.Next > 0 {
			return max(soonestLook, min(released.Next, *look)), nil
		}
	}
}

// Blocked notifies the janitor that a gate has blocked tasks. The janitor then looks at once whether they get permits. The
// method returns at once. It is safe for concurrent use.
func (j *Janitor) Blocked() {
	select {
	case j.blocked <- struct{}{}:
	default: // a look is already pending
	}
}
