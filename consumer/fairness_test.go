package consumer_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
)

// Long tasks that share a message do not wait behind each other on one worker while another
// one is idle: it takes no more than it can run, and passes the others on.
func TestNoTaskWaitsBehindABusyWorkerWhileAnotherIsIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.janitor()
	var executed executions
	release, started := make(chan struct{}), make(chan struct{}, 99)
	handle := func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		started <- struct{}{}
		<-release // however long that takes
		return nil
	}
	change := func(o *consumer.Options) { o.Concurrency, o.OnReady = 4, j.Nudge }
	workers := []*worker{w.work(handle, change), w.work(handle, change)}
	list := w.ticketed(8, kind)
	w.send(w.main(), list...)
	for range list { // while none of them ends
		await(w, "every task runs, on one worker or the other", started)
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
			t.Errorf("a ticket that is passed on is no attempt: %+v", task)
		}
	}
}

// What is finished is committed, whatever else of its page still runs; the page stays open.
func TestASlowTaskHoldsBackNoResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	list := w.ticketed(9, kind)
	worker := w.work(func(_ context.Context, task holdfast.Task) error {
		if task.ID == list[4].Task {
			<-release
		}
		return nil
	}, func(o *consumer.Options) { o.Lease = steadyLease })
	w.send(w.main(), list...)
	w.awaitState(holdfast.Done, slices.Delete(slices.Clone(list), 4, 5)...)
	before := w.runs()[worker.run].RenewedAt
	w.eventually("the lease was renewed twice", func() bool { return w.runs()[worker.run].RenewedAt.Sub(before) > steadyLease/4 })
	if taken, settled := w.cursors(worker.run); taken != 1 || settled != 0 {
		t.Errorf("of %d pages %d are settled while a task of the first one runs", taken, settled)
	}
	if task := w.task(list[4].Task); task.State != holdfast.Running {
		t.Errorf("got %+v", task)
	}
	close(release)
	w.awaitState(holdfast.Done, list[4])
	w.eventually("the page is settled", func() bool { _, settled := w.cursors(worker.run); return settled == 1 })
}
