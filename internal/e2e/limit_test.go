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
)

var limiter = store.Actor{Name: "anna", Surface: store.CommandLine}

func setLimit(t *testing.T, w *world, l store.Limit) store.Limit {
	t.Helper()
	set, err := w.Store.SetLimit(t.Context(), limiter, l)
	if err != nil {
		t.Fatal(err)
	}
	return set
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

// Three workers share the rate of a type, and one of them is killed. The test logs how many tasks start in windows of ten
// seconds: on a quiet machine at most five percent more or less than the rate.
func TestWorkersShareARate(t *testing.T) { onBothBackends(t, workersShareARate) }

func workersShareARate(t *testing.T, w *world) {
	const perSecond, n = 100, 2500
	const window = 10 * time.Second
	setLimit(t, w, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "http"}}, Rate: store.Rate{Count: perSecond, Per: time.Second}})
	tg := newTarget(t, func(call) int { return 200 })
	kill := w.serveThree(t)
	w.enqueue(t, n, httpTask(tg))
	tg.await(t, time.Minute, "a third of the tasks have run", func(calls []call) bool { return len(calls) > n/3 })
	kill()
	w.awaitCount(t, 2*time.Minute, holdfast.Done, n)

	calls, _ := tg.snapshot()
	begins := make([]time.Time, len(calls))
	for i, c := range calls {
		begins[i] = c.begin
	}
	slices.SortFunc(begins, time.Time.Compare)
	most, least := 0, n
	for i, begin := range begins {
		in := 0
		for in+i < len(begins) && begins[in+i].Sub(begin) < window {
			in++
		}
		if most = max(most, in); begins[len(begins)-1].Sub(begin) >= window {
			least = min(least, in)
		}
	}
	allowed := perSecond * int(window/time.Second)
	t.Logf("in windows of %s, %d to %d tasks start; the rate is %d", window, least, most, allowed)
	// The target sees a start some time after the permit. So a busy machine moves starts from one window to the next, and
	// attempts of the killed process come again. Three workers that did not share the rate would start three times as many.
	if most > allowed*3/2 {
		t.Errorf("%d tasks start in %s, want about %d", most, window, allowed)
	}
}

// Three workers run tasks of 20 keys with two at a time for each key, and one of the workers is killed. Of each key at
// most two tasks run, except handlers of the killed worker, whose requests the target may still see.
func TestWorkersShareAConcurrency(t *testing.T) { onBothBackends(t, workersShareAConcurrency) }

func workersShareAConcurrency(t *testing.T, w *world) {
	const keys, each, most = 20, 40, 2
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
	targets[0].await(t, time.Minute, "some tasks have run", func(calls []call) bool { return len(calls) > each/4 })
	kill()
	w.awaitCount(t, 2*time.Minute, holdfast.Done, keys*each)
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
