package e2e

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Urgent tasks start while a backlog of low ones waits in the same queue. A worker is killed. Then a few low tasks run
// while many critical ones wait.
func TestPrioritiesShareTheExecutors(t *testing.T) { onAFileFirst(t, prioritiesShareTheExecutors) }

func prioritiesShareTheExecutors(t *testing.T, w *world) {
	w.lease = shortLease()
	const few = 12
	many := slow.Pick(200, 600)
	answer := func(c call) int {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-c.ctx.Done():
		}
		return http.StatusOK
	}
	low, critical := newTarget(t, answer), newTarget(t, answer)
	taskOf := func(tg *target, p holdfast.Priority) holdfast.NewTask {
		task := httpTask(tg)
		task.Priority = p
		return task
	}
	if !w.embedded {
		w.serve(t, nil, "--concurrency", "2", "--name", "first")
		w.serve(t, nil, "--concurrency", "2", "--name", "second")
	}
	victim := w.serve(t, nil, "--concurrency", "2", "--name", "victim")
	w.enqueue(t, 1, taskOf(low, holdfast.PriorityLow)) // the first task of a priority waits for its AMQP queues
	w.enqueue(t, 1, taskOf(critical, holdfast.PriorityCritical))
	w.awaitCount(t, holdfast.Done, 2)

	w.enqueue(t, many, taskOf(low, holdfast.PriorityLow))
	low.await(t, "low tasks run", func(calls []call) bool { return len(calls) > 10 })
	w.enqueue(t, few, taskOf(critical, holdfast.PriorityCritical))
	w.awaitStarted(t, critical, few+1)
	calls, _ := low.snapshot()
	if started := len(byTask(calls)); started >= many {
		t.Errorf("when all critical tasks have started, so have %d of %d low ones", started, many)
	}
	victim.signal(syscall.SIGKILL)
	if w.embedded {
		w.serve(t, nil, "--concurrency", "2", "--name", "successor")
	}
	w.awaitCount(t, holdfast.Done, int64(many+few+2))

	w.enqueue(t, many, taskOf(critical, holdfast.PriorityCritical))
	w.enqueue(t, few, taskOf(low, holdfast.PriorityLow))
	w.awaitStarted(t, low, many+few+1)
	calls, _ = critical.snapshot()
	if started := len(byTask(calls)) - few - 1; started >= many {
		t.Errorf("no low task has started before all %d critical ones", started)
	}
	w.awaitCount(t, holdfast.Done, int64(2*many+2*few+2))
	for _, tg := range []*target{low, critical} {
		calls, _ := tg.snapshot()
		eachAttemptOnce(t, w, calls)
	}
}

// awaitStarted waits until n tasks have called a target.
func (w *world) awaitStarted(t *testing.T, tg *target, n int) {
	t.Helper()
	tg.await(t, "the tasks start", func(calls []call) bool { return len(byTask(calls)) >= n })
}
