package janitor

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// releaseTimeout limits how long a janitor that ends tries to leave its plans to others.
const releaseTimeout = time.Second

// plans makes the steps of plans until ctx is done. Between due plans it sleeps until the next one, at most for
// plan.Every.
func (j *Janitor) plans(ctx context.Context) {
	engine := plan.New(j.o.Store)
	engine.Failed = j.planFailed
	j.repeat(ctx, "plans", plan.Every, func(ctx context.Context) error {
		for {
			begun := time.Now()
			wait, stored, err := engine.Advance(ctx)
			if stored > 0 {
				j.Nudge(0)
			}
			if err != nil || wait >= plan.Every {
				return err
			}
			if err := backoff.Sleep(ctx, wait-time.Since(begun)); err != nil {
				return nil // ctx is done, and the janitor ends
			}
		}
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := engine.Release(ctx); err != nil { // another janitor finds the plans later
		j.o.Log.WithError(err).Debug("watched plans not released")
	}
}

// planFailed logs and counts a failed step of a plan.
func (j *Janitor) planFailed(p store.Plan, err error, pause time.Duration) {
	j.observe(holdfast.ObservedPlanFailed, 1)
	log := withStack(j.o.Log.WithError(err), err)
	log.WithFields(logrus.Fields{"subject": p.Subject(), "failures": p.Failures + 1, "pause": pause}).Warn("step failed, no further one before the end of the pause")
}
