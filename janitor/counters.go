package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/backoff"
)

const (
	foldEvery = time.Second
	foldBatch = 5000

	recountEvery = 15 * time.Second       // a block takes about 60 ms of the server
	recountPause = 100 * time.Millisecond // between the steps of the first pass
)

// foldCounts adds the recent changes in the numbers of tasks to the stored numbers.
func (j *Janitor) foldCounts(ctx context.Context) error {
	myTurn, err := j.o.Store.Turn(ctx, "fold counts", foldEvery)
	for n := foldBatch; err == nil && myTurn && n == foldBatch; {
		n, err = j.o.Store.FoldCounts(ctx, foldBatch)
	}
	return err
}

// recount corrects the numbers of one block of tasks. While there are tasks that were never counted, it processes all
// blocks. If that takes longer than recountEvery, another janitor does the same, which is harmless.
func (j *Janitor) recount(ctx context.Context) error {
	myTurn, err := j.o.Store.Turn(ctx, "recount", recountEvery)
	if err != nil || !myTurn {
		return err
	}
	for {
		result, err := j.o.Store.Recount(ctx)
		if err != nil {
			return err
		}
		if result.Complete {
			if result.Corrected > 0 {
				j.o.Log.WithField("tasks", result.Corrected).Info("numbers of tasks corrected")
			}
			return nil
		}
		if err := backoff.Sleep(ctx, recountPause); err != nil {
			return err
		}
	}
}
