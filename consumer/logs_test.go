package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
)

// away is a store whose calls all fail.
type away struct{ Store }

func (away) RegisterWorker(context.Context, store.WorkerInfo, time.Duration) (holdfast.WorkerID, error) {
	return 0, errAway
}

// Run logs the lines that the rate limit has held back before it returns.
func TestRunFlushesTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		c, err := New(Options{
			Store: away{}, Broker: struct{ broker.Broker }{}, Topology: broker.NewTopology("test", 1, "x"),
			Handlers: &Registry{}, Log: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		c.o.Log.Warn("again")
		c.o.Log.Warn("again")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
		n := 0
		for _, entry := range hook.AllEntries() {
			if entry.Message == "again" {
				n++
			}
		}
		if n != 2 {
			t.Errorf("%d of 2 lines were logged", n)
		}
	})
}
