package janitor

import (
	"context"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/plan"
)

// plans makes the steps of plans until ctx is done. Between due plans it sleeps until the next one, at most for
// plan.Every.
func (j *Janitor) plans(ctx context.Context) {
	engine := plan.New(j.o.Store)
	j.repeat(ctx, "plans", plan.Every, func(ctx context.Context) error {
		for {
			wait, stored, err := engine.Advance(ctx)
			if stored > 0 {
				j.Nudge(0)
			}
			if err != nil || wait >= plan.Every {
				return err
			}
			if err := backoff.Sleep(ctx, wait); err != nil {
				return nil // ctx is done, and the janitor ends
			}
		}
	})
}
