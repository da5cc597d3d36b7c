package janitor

import (
	"context"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
)

// The last line that the limit of the log has left out appears before Run returns.
func TestRunLeavesNoLineOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log, hook := test.NewNullLogger()
	j := w.janitor(func(o *Options) { o.Log = log })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j.o.Log.Warn("again")
	j.o.Log.Warn("again")
	began := time.Now()
	if err := j.Run(ctx); err != nil {
		t.Error(err)
	}
	n := 0
	for _, entry := range hook.AllEntries() {
		if entry.Message == "again" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d of 2 lines appeared after %s", n, time.Since(began))
	}
}
