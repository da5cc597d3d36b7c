package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/operate"
)

// operationsEvery is how often an idle janitor looks for operations.
const operationsEvery = time.Second

// operations makes the steps of operations until ctx is done.
func (j *Janitor) operations(ctx context.Context) {
	engine := operate.New(j.o.Store, j.o.MaxPayload)
	engine.Check = j.o.Check
	j.repeat(ctx, "operations", operationsEvery, func(ctx context.Context) error {
		for {
			wait, running, err := engine.Advance(ctx)
			if err != nil || !running {
				return err
			}
			if err := backoff.Sleep(ctx, wait); err != nil {
				return nil // the janitor ends
			}
		}
	})
}
