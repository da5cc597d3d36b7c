package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// After fast tasks, a worker claims many more tasks than it can run. If the worker is killed, only tasks that had
// started are charged a crash.
func TestWhatWasNotStartedIsNotChargedACrash(t *testing.T) { onServersFirst(t, notStartedNotCharged) }

func notStartedNotCharged(t *testing.T, w *world) {
	w.lease = shortLease()
	const concurrency, fast, long = 50, 60, 450
	settings := []string{"HOLDFAST_WORKER_LEASE=15s"} // long enough for a busy machine
	if !w.embedded {                                  // on a file, the killed process is the only one
		w.serve(t, settings, "--roles", "janitor")
	}
	quick := newTarget(t, func(call) int { return 200 })
	killed := make(chan struct{})
	slow := newTarget(t, func(c call) int {
		select {
		case <-killed:
		case <-c.ctx.Done():
		}
		return 200
	})
	p := w.serve(t, settings, append(w.workerFlags(), "--concurrency", fmt.Sprint(concurrency))...)
	for i := range fast { // one after another, so that each is as fast as possible
		w.enqueue(t, 1, httpTask(quick))
		w.awaitCount(t, holdfast.Done, int64(i+1))
	}
	ids := w.enqueue(t, long, httpTask(slow))
	claimed := int64(0)
	poll(t, func() string { return "the executors of the worker were never all busy" }, func(ctx context.Context) bool {
		counts, err := w.Store.Count(ctx, store.Filter{})
		calls, _ := slow.snapshot()
		claimed = counts.By[holdfast.Running]
		return err == nil && len(calls) == concurrency
	})

	if claimed < 2*concurrency { // the checks below still apply
		t.Logf("the worker has claimed only %d tasks, because the fast tasks took too long on this machine", claimed)
	}
	p.signal(syscall.SIGKILL)
	<-p.Ended()
	calls, _ := slow.snapshot()
	close(killed)
	started := byTask(calls)
	w.serve(t, settings, append(w.workerFlags(), "--concurrency", fmt.Sprint(concurrency))...)
	w.awaitCount(t, holdfast.Done, fast+long)
	charged, unstarted := 0, 0
	for _, id := range ids {
		task := w.task(t, id)
		charged += task.Crashes
		if task.Crashes > 0 && len(started[id]) == 0 {
			unstarted++
		}
		if task.Failures > 0 {
			t.Errorf("task %s has %d failures", id, task.Failures)
		}
	}
	t.Logf("%d tasks had started, %d were charged a crash", len(started), charged)
	if charged > concurrency || unstarted > 0 {
		t.Errorf("%d tasks that had not started were charged a crash, and %d tasks in total, with %d executors", unstarted, charged, concurrency)
	}
}
