package janitor

import (
	"context"
	"time"
)

// clockEvery is the time between two calls of CorrectTimes, each of which writes the store's time. If the clock is
// ahead for less than that, no written time may show it.
const clockEvery = 5 * time.Second

// correctTimes records the time of the store's clock. If the clock was set back, it corrects the times that lie in the
// future.
func (j *Janitor) correctTimes(ctx context.Context) error {
	setBack, err := j.o.Store.CorrectTimes(ctx)
	if err == nil && setBack {
		j.o.Log.Warn("the store's clock was set back; times that the store had computed from it are corrected")
		j.Nudge(0)
	}
	return err
}
