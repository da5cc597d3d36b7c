package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// withBreakers is a setting with which workers trip breakers.
const withBreakers = "HOLDFAST_WEBHOOK_BREAKER_FAULTS=5"

// breakers returns the gates of breakers.
func breakers(t *testing.T, w *world) []store.Gate {
	t.Helper()
	gates, err := w.Store.Gates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(gates, func(g store.Gate) bool { return g.Kind != store.GateBreaker })
}

func awaitBreakers(t *testing.T, w *world, what string, condition func([]store.Gate) bool) {
	t.Helper()
	var found []store.Gate
	poll(t, func() string { return fmt.Sprintf("not %s: %+v", what, found) }, func(context.Context) bool {
		found = breakers(t, w)
		return condition(found)
	})
}

// A target fails, and its breaker trips in all three workers. Its tasks use up no attempts while they are blocked, and
// the tasks of another target run. One worker is killed. When the target works again, probes detect that, and every
// task runs.
func TestAFailingTargetIsProbed(t *testing.T) { onServersFirst(t, aFailingTargetIsProbed) }

func aFailingTargetIsProbed(t *testing.T, w *world) {
	w.lease = shortLease()
	// Tasks that workers have claimed before the breaker trips may all call the target, so only these few exist until
	// then. The others are stored behind the breaker.
	const few, n = 30, 300
	var works atomic.Bool
	failing := newTarget(t, func(call) int {
		if works.Load() {
			return http.StatusOK
		}
		return http.StatusInternalServerError
	})
	healthy := newTarget(t, func(call) int { return http.StatusOK })
	settings := []string{withBreakers, "HOLDFAST_DEFAULTS_MAX_ATTEMPTS=100", "HOLDFAST_DEFAULTS_RETRY_BASE=100ms", "HOLDFAST_DEFAULTS_RETRY_MAX=1s"}
	flags := []string{"--concurrency", "4"}
	if !w.embedded {
		w.serve(t, settings, append(flags, "--name", "first")...)
		w.serve(t, settings, append(flags, "--name", "second")...)
	}
	victim := w.serve(t, settings, append(flags, "--name", "victim")...)

	w.enqueue(t, 1, httpTask(healthy))
	healthy.await(t, "the healthy target has answered", func(calls []call) bool { return len(calls) > 0 })
	w.enqueue(t, few, httpTask(failing))
	awaitBreakers(t, w, "the breaker has tripped", func(gates []store.Gate) bool { return len(gates) == 1 })
	w.enqueue(t, n-few, httpTask(failing))
	w.enqueue(t, n, httpTask(healthy))
	w.awaitCount(t, holdfast.Done, int64(n+1))
	awaitBreakers(t, w, "most tasks are blocked", func(gates []store.Gate) bool { return len(gates) == 1 && gates[0].Blocked > n/2 })
	calls, _ := failing.snapshot()
	if len(calls) > n/2 {
		t.Errorf("the failing target got %d calls for %d tasks", len(calls), n)
	}
	blocked := breakers(t, w)[0]
	if want := holdfast.TargetOf("http", httpTask(failing).Payload); blocked.Target != want || blocked.Surface != store.ByWorker || blocked.Reason == "" {
		t.Errorf("the breaker is %+v, want one of %s", blocked, want)
	}

	victim.signal(syscall.SIGKILL)
	if w.embedded {
		w.serve(t, settings, append(flags, "--name", "successor")...)
	}
	works.Store(true)
	w.awaitCount(t, holdfast.Done, int64(2*n+1))
	awaitBreakers(t, w, "the breaker was reset", func(gates []store.Gate) bool { return len(gates) == 0 })
	calls, _ = failing.snapshot()
	eachAttemptOnce(t, w, calls)
	untouched := 0
	for _, of := range byTask(calls) {
		if len(of) == 1 && of[0].attempt == 1 {
			untouched++
		}
	}
	if untouched < n/2 {
		t.Errorf("%d of %d tasks needed one attempt only, want at least half", untouched, n)
	}
}

// If a target requests a pause with Retry-After, no worker calls it before the pause has ended.
func TestATargetThatAsksForAPauseGetsIt(t *testing.T) { onAFileFirst(t, aPauseOfATarget) }

func aPauseOfATarget(t *testing.T, w *world) {
	const n = 50
	const pause = 4 * time.Second
	var refused atomic.Int64 // when the target first refused, in nanoseconds
	tg := newTarget(t, func(call) int {
		if refused.CompareAndSwap(0, time.Now().UnixNano()) {
			return http.StatusTooManyRequests
		}
		return http.StatusOK
	})
	tg.header = http.Header{"Retry-After": {"4"}}
	if !w.embedded {
		w.serve(t, []string{withBreakers}, "--concurrency", "2", "--name", "first")
		w.serve(t, []string{withBreakers}, "--concurrency", "2", "--name", "second")
	}
	w.serve(t, []string{withBreakers}, "--concurrency", "2", "--name", "third")
	w.enqueue(t, 1, httpTask(tg))
	awaitBreakers(t, w, "the breaker has tripped", func(gates []store.Gate) bool { return len(gates) == 1 })
	w.enqueue(t, n-1, httpTask(tg))
	w.awaitCount(t, holdfast.Done, n)
	first := time.Unix(0, refused.Load())
	calls, _ := tg.snapshot()
	for _, c := range calls[1:] {
		if early := c.begin.Sub(first); early < pause-100*time.Millisecond { // counted from the arrival of the report
			t.Errorf("a call begins %s after the target has asked for a pause of %s", early, pause)
		}
	}
	awaitBreakers(t, w, "the breaker was reset", func(gates []store.Gate) bool { return len(gates) == 0 })
}
