package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

const (
	releaseEvery = 500 * time.Millisecond
	releaseBatch = 1000
)

// release makes the tasks of gates that have opened due, in short transactions. Several janitors may do it at the same
// time.
func (j *Janitor) release(ctx context.Context) error {
	for {
		n, err := j.o.Store.ReleaseBlocked(ctx, releaseBatch)
		if err != nil || n == 0 {
			return err
		}
		j.observe(holdfast.ObservedReleased, n)
		j.Nudge(0)
	}
}
