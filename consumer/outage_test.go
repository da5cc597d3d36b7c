package consumer

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
)

// awayStore refuses results until it is back.
type awayStore struct {
	Store
	back  time.Time
	tries atomic.Int64
	again chan time.Time // time of the second try
}

func (a *awayStore) Apply(_ context.Context, moves []holdfast.Transition) ([]bool, error) {
	if a.tries.Add(1) == 2 {
		a.again <- time.Now()
	}
	if time.Now().Before(a.back) {
		return nil, fmt.Errorf("apply: %w: connection refused", holdfast.ErrUnavailable)
	}
	return make([]bool, len(moves)), nil
}

// While the store is unavailable, all results wait together, including those added one by one during the first tries.
// The second try follows soon. When the store is back, all results are written.
func TestAnOutageIsTriedOnceForAllResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const outage, most = 20 * time.Second, 60
		began := time.Now()
		s := &awayStore{back: began.Add(outage), again: make(chan time.Time, 1)}
		work := testSession(t, Options{
			Store: s, Handlers: new(Registry), Lease: 5 * time.Second, Concurrency: 300, OnReady: func(time.Duration) {},
		}, began)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); work.settleResults(ctx) }()
		const results = 200
		for i := range results {
			work.results.expect()
			work.results.add(jobFor(i+1), &holdfast.Transition{To: holdfast.Done})
			time.Sleep(10 * time.Millisecond)
		}
		if wait := (<-s.again).Sub(began); wait > 2*firstPause {
			t.Errorf("the second try came after %s", wait)
		}
		time.Sleep(time.Until(s.back))
		if n := s.tries.Load(); n > most {
			t.Errorf("%d results were tried %d times in an outage of %s, want at most %d", results, n, outage, most)
		}
		<-work.results.drained()
		if late := time.Since(s.back); late > 2*longPause {
			t.Errorf("the results were written %s after the outage", late)
		}
		stop()
		<-done
		work.singleWrites.Wait()
	})
}
