package janitor

import (
	"context"
	"time"
)

// clockEvery is between two notes of the store's clock, each of which is a write. If the clock stands ahead for less than that,
// no note may show it.
const clockEvery = 5 * time.Second

// correctTimes notes the store's clock. If that was set back, it corrects what would wait until the clock has caught up.
func (j *Janitor) correctTimes(ctx context.Context) error {
	setBack, err := j.o.Store.CorrectTimes(ctx)
	if err == nil && setBack {
		j.o.Log.Warn("the store's clock was set back; times that the store had computed from it are corrected")
		j.Nudge(0)
	}
	return err
}
