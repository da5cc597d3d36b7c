package consumer_test

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
)

// A failover to a server that lacks the newest commits: the results of some tasks are gone, their worker has forgotten
// them and lives, and their manifests are settled.
func TestTasksWhoseResultsTheStoreLostRunAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.janitor()
	var history atomic.Pointer[string]
	first, second := "1", "2"
	history.Store(&first)
	var lostAnswers atomic.Int32
	s := &faultyStore{Store: w.store, renew: func(next func() (store.News, error)) (store.News, error) {
		news, err := next()
		if news.History = *history.Load(); err == nil && news.History == second && lostAnswers.Add(1) == 1 {
			return store.News{}, errFault // and the next one must bring the change
		}
		return news, err
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
	}, func(o *consumer.Options) { o.Store, o.Lease = s, steadyLease })

	lost := w.enqueue(5)
	w.awaitState(holdfast.Done, lost...)
	inHand := w.ticketed(1, kind)
	busy.Store(int64(inHand[0].Task))
	w.send(w.main(), inHand...)
	await(w, "a task runs", began)
	w.sql("update holdfast.tasks set state = 'running', run_id = $1, finished_at = null where state = 'done'", int64(k.run))
	if held, err := w.store.Held(t.Context(), k.run, 0, math.MaxInt64); err != nil || len(held) != len(lost)+1 {
		t.Fatalf("the store believes %d tasks to be held, %v", len(held), err)
	}

	failover := time.Now()
	history.Store(&second)
	w.awaitState(holdfast.Done, lost...)
	t.Logf("healed within %s", time.Since(failover))
	for _, ticket := range lost {
		task := w.task(ticket.Task)
		if task.Attempt != 2 || task.Crashes+task.Failures > 0 || ran.of(task.ID) != 2 {
			t.Errorf("after %d executions a task is %+v", ran.of(task.ID), task)
		}
	}
	close(release)
	w.awaitState(holdfast.Done, inHand...)
	ran.checkOnce(t, inHand)
	if task := w.task(inHand[0].Task); task.Attempt != 1 {
		t.Errorf("the task in hand was handed back: %+v", task)
	}
}

// After a failover that lost the row of a run, its id was given to another process.
func TestARunThatIsAnothersIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) { o.Lease = steadyLease })
	w.sql("update holdfast.runs set name = 'another', lease_until = now() + interval '1 hour' where id = $1", int64(k.run))
	w.eventually("it is a new run", func() bool { run := k.Status().Run; return run != 0 && run != k.run })
	tickets := w.enqueue(3)
	w.awaitState(holdfast.Done, tickets...)
	k.stop()
	if run := w.runs()[k.run]; run.State != store.RunLive || run.Name != "another" {
		t.Errorf("the other's run is %+v", run)
	}
	attempts, err := w.store.Attempts(t.Context(), tickets[0].Task)
	w.must(err)
	if slices.ContainsFunc(attempts, func(a holdfast.Attempt) bool { return a.Run == k.run }) {
		t.Errorf("the attempts are %+v", attempts)
	}
}

// A failover may bring a fenced run back to life. Whoever was told that it is over must not go on: the messages of the
// page that was given up come again only when its subscription ends.
func TestAFencedClaimEndsTheRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked atomic.Int32
	s := &faultyStore{Store: w.store, claim: func(next func() ([]store.Claim, error)) ([]store.Claim, error) {
		if asked.Add(1) == 1 {
			return nil, store.ErrFenced
		}
		return next()
	}}
	var ran executions
	k := w.work(func(_ context.Context, task holdfast.Task) error { ran.note(task); return nil }, func(o *consumer.Options) { o.Store = s })
	tickets := w.enqueue(3)
	w.awaitState(holdfast.Done, tickets...)
	ran.checkOnce(t, tickets)
	w.eventually("it is a new run", func() bool { run := k.Status().Run; return run != 0 && run != k.run })
}

// A snapshot is restored under a worker that lives. It has finished the tasks that run under it now.
func TestARestoredSnapshotRunsItsTasksAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.janitor()
	var ran executions
	k := w.work(func(_ context.Context, task holdfast.Task) error {
		ran.note(task)
		return nil
	}, func(o *consumer.Options) { o.Lease = steadyLease })
	lost := w.enqueue(5)
	w.awaitState(holdfast.Done, lost...)
	w.sql("update holdfast.tasks set state = 'running', run_id = $1, finished_at = null where state = 'done'", int64(k.run))
	w.sql("update holdfast.runs set renewed_at = renewed_at - interval '1 minute' where id = $1", int64(k.run))
	w.awaitState(holdfast.Done, lost...)
	for _, ticket := range lost {
		if task := w.task(ticket.Task); task.Attempt != 2 || task.Crashes+task.Failures > 0 || ran.of(task.ID) != 2 {
			t.Errorf("after %d executions a task is %+v", ran.of(task.ID), task)
		}
	}
}
