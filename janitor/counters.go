package janitor

import (
	"context"
	"time"
)

const (
	foldEvery = time.Second
	foldBatch = 5000

	recountEvery = 15 * time.Second // a block takes about 60 ms of the server
)

// foldCounts adds the recent changes in the numbers of tasks to the stored numbers.
func (j *Janitor) foldCounts(ctx context.Context) error {
	myTurn, err := j.o.Store.Turn(ctx, "fold counts", foldEvery)
	for n := foldBatch; err == nil && myTurn && n == foldBatch; {
		n, err = j.o.Store.FoldCounts(ctx, foldBatch)
	}
	return err
}

// recount corrects the numbers of one block of tasks.
func (j *Janitor) recount(ctx context.Context) error {
	myTurn, err := j.o.Store.Turn(ctx, "recount", recountEvery)
	if err != nil || !myTurn {
		return err
	}
	corrected, err := j.o.Store.Recount(ctx)
	if corrected > 0 && err == nil {
		j.o.Log.WithField("tasks", corrected).Info("numbers of tasks corrected")
	}
	return err
}
