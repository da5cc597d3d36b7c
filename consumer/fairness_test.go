package consumer_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
)

// If long tasks share a message, a worker takes as many as it can run and passes the others on. So no task waits for a
// busy worker while another worker is idle.
func TestNoTaskWaitsBehindABusyWorkerWhileAnotherIsIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.janitor()
	var executed executions
	release, started := make(chan struct{}), make(chan struct{}, 99)
	handle := func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		started <- struct{}{}
		<-release
		return nil
	}
	change := func(o *consumer.Options) { o.Concurrency, o.OnReady = 4, j.Nudge }
	workers := []*worker{w.work(handle, change), w.work(handle, change)}
	list := w.ticketed(8, kind)
	w.send(w.main(), list...)
	for range list { // before any task ends
		await(w, "all tasks run", started)
	}
	for i, worker := range workers {
		if n := worker.Status().Running; n != 4 {
			t.Errorf("worker %d runs %d tasks", i+1, n)
		}
	}
	close(release)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
	for _, ticket := range list {
		if task := w.task(ticket.Task); task.Attempt != 1 || task.Failures != 0 || task.Deferrals != 0 {
			t.Errorf("passing a ticket on used up an attempt: %+v", task)
		}
	}
}

// A finished task is committed while other tasks of its page still run. The page is not settled.
func TestASlowTaskHoldsBackNoResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	list := w.ticketed(9, kind)
	lease := steadyLease()
	worker := w.work(func(_ context.Context, task holdfast.Task) error {
		if task.ID == list[4].Task {
			<-release
		}
		return nil
	}, func(o *consumer.Options) { o.Lease = lease })
	w.send(w.main(), list...)
	w.awaitState(holdfast.Done, slices.Delete(slices.Clone(list), 4, 5)...)
	before := w.workers()[worker.worker].RenewedAt
	w.eventually("the lease was renewed twice", func() bool { return w.workers()[worker.worker].RenewedAt.Sub(before) > lease/4 })
	if taken, settled := w.cursors(worker.worker); taken != 1 || settled != 0 {
		t.Errorf("%d of %d pages are settled while a task of the first page runs", settled, taken)
	}
	if task := w.task(list[4].Task); task.State != holdfast.Running {
		t.Errorf("got %+v", task)
	}
	close(release)
	w.awaitState(holdfast.Done, list[4])
	w.eventually("the page is settled", func() bool { _, settled := w.cursors(worker.worker); return settled == 1 })
}
