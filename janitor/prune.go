package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	pruneEvery = time.Minute
	pruneBatch = 5000
)

// prune deletes what is older than its time to be kept, in small steps.
func (j *Janitor) prune(ctx context.Context) error {
	if j.o.Keep == (store.PruneAges{}) {
		return nil
	}
	mine, err := j.o.Store.Turn(ctx, "prune", pruneEvery)
	if err != nil || !mine {
		return err
	}
	for {
		n, err := j.o.Store.Prune(ctx, j.o.Keep, pruneBatch)
		if err != nil {
			return err
		}
		j.see(holdfast.ObservedPruned, n)
		if n < pruneBatch {
			return nil
		}
	}
}
