package consumer_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
)

// After a failover to a server without the newest commits, the results of some tasks are lost. The worker of these
// tasks is live but has forgotten them, and their manifests are gone.
func TestTasksWhoseResultsTheStoreLostRunAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.janitor()
	var history atomic.Pointer[string]
	first, second := "1", "2"
	history.Store(&first)
	var lostAnswers atomic.Int32
	s := &faultyStore{Store: w.store, renew: func(next func() (store.RenewResult, error)) (store.RenewResult, error) {
		result, err := next()
		if result.History = *history.Load(); err == nil && result.History == second && lostAnswers.Add(1) == 1 {
			return store.RenewResult{}, errFault // the next answer must report the change
		}
		return result, err
	}}
	var ran executions
	release, began := make(chan struct{}), make(chan struct{}, 1)
	var busy atomic.Int64
	k := w.work(func(ctx context.Context, task holdfast.Task) error {
		ran.note(task)
		if int64(task.ID) != busy.Load() {
			return nil
		}
		began <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, func(o *consumer.Options) { o.Store, o.Lease = s, steadyLease() })

	lost := w.enqueue(5)
	w.awaitState(holdfast.Done, lost...)
	inProgress := w.ticketed(1, kind)
	busy.Store(int64(inProgress[0].Task))
	w.send(w.main(), inProgress...)
	await(w, "a task runs", began)
	w.sql("update holdfast.tasks set state = 'running', worker_id = $1, finished_at = null where state = 'done'", int64(k.worker))
	if held, err := w.store.Held(t.Context(), k.worker, 0, math.MaxInt64); err != nil || len(held) != len(lost)+1 {
		t.Fatalf("the store has %d running tasks, %v", len(held), err)
	}

	failover := time.Now()
	history.Store(&second)
	w.awaitState(holdfast.Done, lost...)
	t.Logf("all tasks are done %s after the failover", time.Since(failover))
	for _, ticket := range lost {
		task := w.task(ticket.Task)
		if task.Attempt != 2 || task.Crashes+task.Failures > 0 || ran.of(task.ID) != 2 {
			t.Errorf("after %d executions a task is %+v", ran.of(task.ID), task)
		}
	}
	close(release)
	w.awaitState(holdfast.Done, inProgress...)
	ran.checkOnce(t, inProgress)
	if task := w.task(inProgress[0].Task); task.Attempt != 1 {
		t.Errorf("the task in progress was handed back: %+v", task)
	}
}

// If a failover has lost the row of a worker, its process registers again.
func TestALostWorkerRegistersAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) { o.Lease = steadyLease() })
	w.sql("delete from holdfast.workers where id = $1", int64(k.worker))
	w.eventually("the process registers again", func() bool { id := k.Status().Worker; return id != 0 && id != k.worker })
	tickets := w.enqueue(3)
	w.awaitState(holdfast.Done, tickets...)
	k.stop()
}

// A worker whose claim was fenced must end, even if a failover makes it live again. It has given up a page, and the
// broker redelivers the page's messages only when the subscription ends.
func TestAFencedClaimEndsTheWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	s := &faultyStore{Store: w.store, claim: func(next func() ([]store.Claim, error)) ([]store.Claim, error) {
		if calls.Add(1) == 1 {
			return nil, store.ErrFenced
		}
		return next()
	}}
	var ran executions
	k := w.work(func(_ context.Context, task holdfast.Task) error { ran.note(task); return nil }, func(o *consumer.Options) { o.Store = s })
	tickets := w.enqueue(3)
	w.awaitState(holdfast.Done, tickets...)
	ran.checkOnce(t, tickets)
	w.eventually("the process registers again", func() bool { id := k.Status().Worker; return id != 0 && id != k.worker })
}

// After a snapshot is restored, tasks that a live worker has finished may be running under that worker again.
func TestARestoredSnapshotRunsItsTasksAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.janitor()
	var ran executions
	k := w.work(func(_ context.Context, task holdfast.Task) error {
		ran.note(task)
		return nil
	}, func(o *consumer.Options) { o.Lease = steadyLease() })
	lost := w.enqueue(5)
	w.awaitState(holdfast.Done, lost...)
	w.sql("update holdfast.tasks set state = 'running', worker_id = $1, finished_at = null where state = 'done'", int64(k.worker))
	w.sql("update holdfast.workers set renewed_at = renewed_at - interval '1 minute' where id = $1", int64(k.worker))
	w.awaitState(holdfast.Done, lost...)
	for _, ticket := range lost {
		if task := w.task(ticket.Task); task.Attempt != 2 || task.Crashes+task.Failures > 0 || ran.of(task.ID) != 2 {
			t.Errorf("after %d executions a task is %+v", ran.of(task.ID), task)
		}
	}
}

// If the answer of a claim makes the store panic, the worker claims again.
func TestAClaimThatPanicsIsRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	s := &faultyStore{Store: w.store, claim: func(next func() ([]store.Claim, error)) ([]store.Claim, error) {
		if calls.Add(1) == 1 {
			panic("a stored value")
		}
		return next()
	}}
	var ran executions
	w.work(func(_ context.Context, task holdfast.Task) error { ran.note(task); return nil }, func(o *consumer.Options) { o.Store = s })
	tickets := w.enqueue(3)
	w.awaitState(holdfast.Done, tickets...)
	ran.checkOnce(t, tickets)
}
