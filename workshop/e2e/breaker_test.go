package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
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
		return http.StatusBadGateway
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

// A target fails four of five requests, so its faults are never many in succession. It answers the fifth with 425.
// That is no fault, but the task is retried, so the tasks stay. The faults are below the rate of the setting, and no
// breaker trips. A changed setting lowers the rate, and the breaker trips in the running worker. When the target works
// again, every task runs. The audit log has the trip and the reset.
func TestARateOfFaultsTripsABreaker(t *testing.T) { onBothBackends(t, aRateOfFaults) }

func aRateOfFaults(t *testing.T, w *world) {
	const n = 20
	var works atomic.Bool
	var calls atomic.Int64
	tg := newTarget(t, func(call) int {
		switch {
		case works.Load():
			return http.StatusOK
		case calls.Add(1)%5 == 0:
			return http.StatusTooEarly
		}
		return http.StatusBadGateway
	})
	// With one executor, at most 12 of the first 14 attempts are faults.
	w.set(t, "types.http.breaker.faults", "5", "types.http.breaker.rate", "90%", "types.http.breaker.attempts", "14", "types.http.breaker.window", "10m",
		"types.http.retry.strategy", "fixed", "types.http.retry.base", "100ms", "types.http.max_attempts", "1000")
	w.serve(t, nil, "--concurrency", "1")
	task := httpTask(tg)
	w.enqueue(t, n, task)
	tg.await(t, "the target has refused many calls", func(calls []call) bool { return len(calls) > 50 })
	if gates := breakers(t, w); len(gates) > 0 {
		t.Errorf("the rate of faults is below the setting, and the breakers are %+v", gates)
	}
	w.set(t, "types.http.breaker.rate", "60%")
	awaitBreakers(t, w, "the breaker has tripped", func(gates []store.Gate) bool { return len(gates) == 1 })
	if reason := breakers(t, w)[0].Reason; !strings.Contains(reason, " requests within 10m0s failed") {
		t.Errorf("the breaker has tripped because of %q", reason)
	}
	works.Store(true)
	w.awaitCount(t, holdfast.Done, n)
	awaitBreakers(t, w, "the breaker was reset", func(gates []store.Gate) bool { return len(gates) == 0 })
	subject := store.Subject{Target: holdfast.TargetOf(task.Type, task.Payload)}.String()
	for _, action := range []store.Action{store.ActionTrip, store.ActionResume} {
		entries, err := w.Store.AuditLog(t.Context(), store.AuditFilter{Subject: subject, Action: action})
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 || entries[0].Surface != store.ByWorker && entries[0].Surface != store.Janitor {
			t.Errorf("%s of %s: the audit log has %+v", action, subject, entries)
		}
	}
}

// A target that works cannot process some messages, and answers 500 to them each time. The messages behind them are
// delivered, although their number is many times that of the probes.
func TestBadMessagesDoNotStopATarget(t *testing.T) { onBothBackends(t, badMessages) }

func badMessages(t *testing.T, w *world) {
	const bad, good = 50, 500
	var lastBad atomic.Int64
	lastBad.Store(math.MaxInt64)
	tg := newTarget(t, func(c call) int {
		if int64(c.task) <= lastBad.Load() {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	w.serve(t, []string{withBreakers, "HOLDFAST_DEFAULTS_RETRY_BASE=1s", "HOLDFAST_DEFAULTS_MAX_ATTEMPTS=1000"}, "--concurrency", "10")
	lastBad.Store(int64(slices.Max(w.enqueue(t, bad, httpTask(tg)))))
	awaitBreakers(t, w, "the breaker has tripped", func(gates []store.Gate) bool { return len(gates) == 1 })
	w.enqueue(t, good, httpTask(tg))
	w.awaitCount(t, holdfast.Done, good)
	if reason := firstTrip(t, w, tg); !strings.Contains(reason, " requests within 30s failed") {
		t.Errorf("the breaker has tripped because of %q", reason)
	}
}

// A target does not work until the deadline of the tasks behind its breaker has passed. They die with that reason, and
// without a request.
func TestBlockedTasksDieAtTheirDeadline(t *testing.T) { onBothBackends(t, deadlineAtABreaker) }

func deadlineAtABreaker(t *testing.T, w *world) {
	const first, behind = 10, 40
	tg := newTarget(t, func(call) int { return http.StatusBadGateway })
	w.serve(t, []string{withBreakers, "HOLDFAST_DEFAULTS_MAX_ATTEMPTS=1000", "HOLDFAST_DEFAULTS_RETRY_DEADLINE=3s"})
	w.enqueue(t, first, httpTask(tg))
	awaitBreakers(t, w, "the breaker has tripped", func(gates []store.Gate) bool { return len(gates) == 1 })
	ids := w.enqueue(t, behind, httpTask(tg))
	w.awaitCount(t, holdfast.Dead, first+behind)
	calls, _ := tg.snapshot()
	called := byTask(calls)
	untried := 0
	for _, id := range ids {
		task, probe := w.task(t, id), len(called[id]) > 0
		waited := strings.Contains(task.LastError, "the deadline passed before the attempt began")
		// A probe that fails shortly before the deadline is dead at once, because its retry would come too late.
		if !waited && (!probe || !strings.Contains(task.LastError, "the deadline of 3s has passed")) {
			t.Errorf("the task %s (a probe: %t) is dead with the error %q", id, probe, task.LastError)
		}
		if !probe {
			untried++
		}
	}
	if untried < behind/2 {
		t.Errorf("%d of %d tasks had no request, want at least half", untried, behind)
	}
}

// firstTrip returns the reason of the first trip of the target's breaker.
func firstTrip(t *testing.T, w *world, tg *target) string {
	t.Helper()
	task := httpTask(tg)
	subject := store.Subject{Target: holdfast.TargetOf(task.Type, task.Payload)}.String()
	entries, err := w.Store.AuditLog(t.Context(), store.AuditFilter{Subject: subject, Action: store.ActionTrip})
	if err != nil || len(entries) == 0 {
		t.Fatalf("the audit log has no trip: %v", err)
	}
	return entries[len(entries)-1].Reason
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
