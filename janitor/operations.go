package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
)

// operationsEvery is the time between two searches for operations by an idle janitor.
const operationsEvery = time.Second

// operations makes the steps of the operations with the given actions until ctx is done. duty is the name of the duty.
func (j *Janitor) operations(ctx context.Context, duty string, actions ...store.Action) {
	engine := operate.New(j.o.Store, j.o.MaxPayload)
	engine.Check = j.o.Check
	j.repeat(ctx, duty, operationsEvery, func(ctx context.Context) error {
		for {
			wait, running, err := engine.Advance(ctx, actions...)
			if err != nil || !running {
				return err
			}
			if err := backoff.Sleep(ctx, wait); err != nil {
				return nil // ctx is done, and the janitor ends
			}
		}
	})
}
