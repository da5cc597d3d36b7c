package janitor

import (
	"context"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
)

// Run flushes the limited logger before it returns.
func TestRunFlushesTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log, hook := test.NewNullLogger()
	j := w.janitor(func(o *Options) { o.Log = log })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j.o.Log.Warn("repeated")
	j.o.Log.Warn("repeated")
	began := time.Now()
	if err := j.Run(ctx); err != nil {
		t.Error(err)
	}
	n := 0
	for _, entry := range hook.AllEntries() {
		if entry.Message == "repeated" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("got %d lines after %s, want 2", n, time.Since(began))
	}
}
