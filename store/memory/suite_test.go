package memory_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/workshop/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.RunServices(t, func(*testing.T) store.Store { return memory.New(ticking()).Client(nil) })
}

func TestPresence(t *testing.T) {
	t.Parallel()
	storetest.WorkerPresence(t, func(s storetest.Present) { s.(client).disconnect() }, func(*testing.T) (here, elsewhere storetest.Present) {
		server := memory.New(ticking())
		gate := serialGate()
		open := func() client {
			c := server.Client(gate)
			return client{c, func() { _ = gate(context.Background(), memory.Step{}, c.Disconnect) }}
		}
		return open(), open()
	})
}

// client is a client whose disconnect is safe while other clients work.
type client struct {
	*memory.Client
	disconnect func()
}

// serialGate returns a gate that lets effects take place at once, one at a time.
func serialGate() memory.Gate {
	var mu sync.Mutex
	return func(_ context.Context, _ memory.Step, effect func()) error {
		mu.Lock()
		defer mu.Unlock()
		effect()
		return nil
	}
}

// ticking returns a clock that advances by a few microseconds with each reading, like a database between two calls.
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
