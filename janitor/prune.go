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

// prune deletes rows that are older than Options.Keep, in small steps.
func (j *Janitor) prune(ctx context.Context) error {
	if j.o.Prune == (store.PruneAges{}) {
		return nil
	}
	myTurn, err := j.o.Store.Turn(ctx, "prune", pruneEvery)
	if err != nil || !myTurn {
		return err
	}
	for {
		n, err := j.o.Store.Prune(ctx, j.o.Prune, pruneBatch)
		if err != nil {
			return err
		}
		j.observe(holdfast.ObservedPruned, n)
		if n < pruneBatch {
			return nil
		}
	}
}
