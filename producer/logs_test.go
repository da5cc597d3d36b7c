package producer

import (
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast/broker"
)

// The last line that the limit of the log has left out appears before Close returns.
func TestCloseLeavesNoLineOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		s := &partly{tickets: make(map[string]int)}
		p := made(Options{Store: s, Broker: s, Topology: broker.NewTopology("p", 1, "test"), Log: log})
		p.o.Log.Warn("again")
		p.o.Log.Warn("again")
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if n := len(hook.AllEntries()); n != 2 {
			t.Errorf("%d of 2 lines appeared", n)
		}
	})
}
