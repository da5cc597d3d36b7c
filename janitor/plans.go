package janitor

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// releaseTimeout limits how long a janitor that ends tries to leave its plans to others.
const releaseTimeout = time.Second

// plans makes the steps of plans until ctx is done. Between due plans it sleeps until the next one, at most for
// plan.Every. Planned ends the sleep.
func (j *Janitor) plans(ctx context.Context) {
	engine := plan.New(j.o.Store)
	engine.Failed = j.planFailed
	const duty = "plans"
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		begun, wait := time.Now(), j.beat(plan.Every)
		err := contain.Call(func() error {
			next, stored, err := engine.Advance(ctx)
			if stored > 0 {
				j.Nudge(0)
			}
			if next < plan.Every {
				wait = next
			}
			return err
		})
		if err == nil {
			pause.Reset()
			j.succeeded(ctx, duty)
		} else if ctx.Err() == nil {
			wait = max(pause.Next(), plan.Every/4)
			j.failed(ctx, duty, err, wait)
		}
		select {
		case <-time.After(wait - time.Since(begun)):
		case <-j.planned:
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := engine.Release(ctx); err != nil { // another janitor finds the plans later
		j.o.Log.WithError(err).Debug("watched plans not released")
	}
}

// Planned notifies the janitor that a plan is due, such as a batch that has just begun. Otherwise the janitor finds it
// within a second. Planned does not wait. It is safe for concurrent use.
func (j *Janitor) Planned() {
	select {
	case j.planned <- struct{}{}:
	default: // an earlier notification is not processed yet, and one is enough
	}
}

// planFailed logs and counts a failed step of a plan.
func (j *Janitor) planFailed(p store.Plan, err error, pause time.Duration) {
	j.observe(holdfast.ObservedPlanFailed, 1)
	log := withStack(j.o.Log.WithError(err), err)
	log.WithFields(logrus.Fields{"subject": p.Subject(), "failures": p.Failures + 1, "pause": pause}).Warn("step failed, no further one before the end of the pause")
}
