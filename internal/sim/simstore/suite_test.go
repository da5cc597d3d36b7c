package simstore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/sim/simstore"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) store.Store { return simstore.New(ticking()).Client(nil) })
}

// ticking returns the time, with a few microseconds between one reading and the next, as between two calls of
// a real database.
func ticking() func() time.Time {
	var mu sync.Mutex
	var last time.Time
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now().Round(0)
		if soonest := last.Add(5 * time.Microsecond); now.Before(soonest) {
			now = soonest
		}
		last = now
		return now
	}
}
