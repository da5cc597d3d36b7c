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

// away is a store that answers nothing.
type away struct{ Store }

func (away) OpenRun(context.Context, store.RunInfo, time.Duration) (holdfast.RunID, error) {
	return 0, errAway
}

// The last line that the limit of the log has left out appears before Run returns.
func TestRunLeavesNoLineOut(t *testing.T) {
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
			t.Errorf("%d of 2 lines appeared", n)
		}
	})
}
