package janitor

import (
	"context"
	"time"
)

// clockEvery is the time between two calls of CorrectTimes, each of which stores the time. If the clock is ahead for
// less than that, the store may not know it.
const clockEvery = 5 * time.Second

// correctTimes stores the current time of the store's clock. If the clock was set back, it corrects stored times that
// lie in the future.
func (j *Janitor) correctTimes(ctx context.Context) error {
	setBack, err := j.o.Store.CorrectTimes(ctx)
	if err == nil && setBack {
		j.o.Log.Warn("store clock was set back, corrected the stored times")
		j.Nudge(0)
	}
	return err
}
