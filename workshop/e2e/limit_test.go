package e2e

import (
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

var limiter = store.Actor{Name: "anna", Surface: store.CommandLine}

func setLimit(t *testing.T, w *world, l store.Limit) store.Limit {
	t.Helper()
	set, err := w.Store.SetLimit(t.Context(), limiter, l.Change())
	if err != nil {
		t.Fatal(err)
	}
	return set.After
}

// serveThree starts three processes, each with a worker and a janitor. The function kill ends one of them with kill -9.
// On a file there is one process, and kill starts another one.
func (w *world) serveThree(t *testing.T) (kill func()) {
	t.Helper()
	if !w.embedded {
		w.serve(t, nil, "--name", "first")
		w.serve(t, nil, "--name", "second")
	}
	victim := w.serve(t, nil, "--name", "victim")
	return func() {
		victim.signal(syscall.SIGKILL)
		if w.embedded {
			w.serve(t, nil, "--name", "successor")
		}
	}
}

// Three workers share the rate of a type, and one of them is killed. At any time, at most as many tasks have started as
// the rate has allowed since the limit was set. The test logs how many tasks start in windows of ten seconds. On a
// quiet machine with servers, these numbers differ from the rate by at most five percent.
func TestWorkersShareARate(t *testing.T) { onAFileFirst(t, workersShareARate) }

func workersShareARate(t *testing.T, w *world) {
	w.lease = shortLease()
	const perSecond = 100
	n := slow.Pick(800, 2500)
	begin := time.Now()
	setLimit(t, w, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "http"}}, Rate: store.Rate{Count: perSecond, Per: time.Second}})
	tg := newTarget(t, func(call) int { return 200 })
	kill := w.serveThree(t)
	w.enqueue(t, n, httpTask(tg))
	tg.await(t, "a third of the tasks have run", func(calls []call) bool { return len(calls) > n/3 })
	kill()
	w.awaitCount(t, holdfast.Done, int64(n))

	calls, _ := tg.snapshot()
	starts := make([]time.Duration, len(calls))
	for i, c := range calls {
		starts[i] = c.begin.Sub(begin)
	}
	slices.Sort(starts)
	logWindows(t, starts)
	// The store never gives a permit early, but on a busy machine the task starts late, and then beside others. So the
	// test limits the starts since the limit was set, but not those in a window. Workers that did not share the rate
	// would start three times as many tasks.
	const late = time.Second // a decision makes up for missed starts of this time
	const unsure = 50        // a killed worker may have started tasks without a report, and they keep their permits
	for i, start := range starts {
		if allowed := int((start+late).Seconds()*perSecond) + 1 + unsure; i+1 > allowed {
			t.Fatalf("%d tasks start in the first %s, want at most %d", i+1, start, allowed)
		}
	}
}

// logWindows logs the least and the most starts in windows of ten seconds.
func logWindows(t *testing.T, starts []time.Duration) {
	t.Helper()
	const window = 10 * time.Second
	most, least := 0, len(starts)
	for i, start := range starts {
		in, _ := slices.BinarySearch(starts[i:], start+window)
		if most = max(most, in); starts[len(starts)-1]-start >= window {
			least = min(least, in)
		}
	}
	t.Logf("in windows of %s, %d to %d tasks start", window, least, most)
}

// Three workers run tasks of 20 keys, at most two of each key at a time, and one of the workers is killed. The limit
// does not apply to handlers of the killed worker, because the target may still see their requests.
func TestWorkersShareAConcurrency(t *testing.T) { onServersFirst(t, workersShareAConcurrency) }

func workersShareAConcurrency(t *testing.T, w *world) {
	w.lease = shortLease()
	const keys, most = 20, 2
	each := slow.Pick(15, 40)
	setLimit(t, w, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "http"}, Per: store.PerKey}, Concurrency: most})
	var running [keys]atomic.Int32
	var exceeded atomic.Int32
	targets := make([]*target, keys)
	for k := range keys {
		targets[k] = newTarget(t, func(c call) int {
			if running[k].Add(1) > most {
				exceeded.Add(1)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-c.ctx.Done(): // the worker was killed
			}
			running[k].Add(-1)
			return 200
		})
	}
	kill := w.serveThree(t)
	for k := range keys {
		task := httpTask(targets[k])
		task.Key = fmt.Sprintf("tenant-%d", k)
		w.enqueue(t, each, task)
	}
	targets[0].await(t, "some tasks have run", func(calls []call) bool { return len(calls) > each/4 })
	kill()
	w.awaitCount(t, holdfast.Done, int64(keys*each))
	if n := exceeded.Load(); n > 0 {
		t.Errorf("%d tasks started while %d tasks of their key ran", n, most)
	}
	limits, err := w.Store.Limits(t.Context())
	if err != nil || len(limits) != 1 || limits[0].Blocked != 0 || limits[0].InUse != 0 {
		t.Errorf("at last the limits are %+v, %v", limits, err)
	}
	for _, tg := range targets {
		calls, _ := tg.snapshot()
		eachAttemptOnce(t, w, calls)
	}
}
