package producer

import (
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast/broker"
)

// A line that the rate limit of the log holds back is logged before Close returns.
func TestCloseFlushesTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		s := &fakeServers{tickets: make(map[string]int)}
		p := mustNew(Options{Store: s, Broker: s, Topology: broker.NewTopology("p", 1, "test"), Log: log})
		p.o.Log.Warn("again")
		p.o.Log.Warn("again")
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if n := len(hook.AllEntries()); n != 2 {
			t.Errorf("%d of 2 lines were logged", n)
		}
	})
}
