package consumer_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
)

// A message whose manifest is not confirmed is not acked, nor is any after it. When the
// subscription breaks, another worker gets them, leaves the tasks to the run that has them, and mirrors
// them under that run's id.
func TestMessagesAreAckedInOrderAndAfterTheirManifests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := w.ticketed(2, kind)
	held, release, started := make(chan struct{}), make(chan struct{}), make(chan holdfast.TaskID, 9)
	b := &faultyBroker{Broker: w.broker, publish: func(m broker.Message, next func() broker.Outcome) broker.Outcome {
		if strings.Contains(string(m.Body), `[`+list[0].Task.String()+`,`) {
			<-held
		}
		return next()
	}}
	var executed executions
	handle := func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		started <- task.ID
		<-release
		return nil
	}
	first := w.work(handle, func(o *consumer.Options) { o.Broker = b })
	w.send(w.main(), list[0])
	await(w, "the first task runs", started)
	w.send(w.main(), list[1])
	await(w, "the second task runs, before any manifest of the first is confirmed", started)
	second := manifest(first.run, 2, list[1])
	w.eventually("the second manifest is confirmed", func() bool { return b.count("stored "+second) == 1 })

	other := w.work(handle, nil)
	w.must(b.cut(w.main()))
	w.eventually("both messages are delivered again", func() bool { return other.of(holdfast.ObservedContended) == 2 })
	if n := b.count("acked " + w.main()); n != 0 {
		t.Errorf("%d acks before the first manifest was confirmed", n)
	}
	other.stop()
	mirrored := make(map[message.Ticket]bool)
	for _, body := range w.take(w.hold()) {
		m, err := message.Decode([]byte(body))
		w.must(err)
		if m.Manifest == nil || m.Manifest.Run != first.run {
			t.Fatalf("in the holding queue is %s, want manifests of run %s", body, first.run)
		}
		if m.Manifest.Page == 0 {
			for _, ticket := range m.Manifest.Tickets {
				mirrored[ticket] = true
			}
		} else if body != second {
			t.Errorf("in the holding queue is %s", body)
		}
	}
	if !mirrored[list[0]] || !mirrored[list[1]] {
		t.Errorf("the second worker mirrored %v under the run of the first, want %v", mirrored, list)
	}
	close(held)
	close(release)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
	first.stop()
	if left := w.take(w.main()); left != nil {
		t.Errorf("left in the lane are %q", left)
	}
}

// A manifest is published until the broker has it; the message waits for that.
func TestAManifestIsPublishedUntilItIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int32
	b := &faultyBroker{Broker: w.broker, publish: func(_ broker.Message, next func() broker.Outcome) broker.Outcome {
		switch tries.Add(1) {
		case 1, 3:
			return broker.Unknown
		case 2:
			next() // it is stored, but nobody hears of it
			return broker.Unknown
		}
		return next()
	}}
	worker := w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) { o.Broker = b })
	list := w.enqueue(1)
	w.eventually("the message is acked", func() bool { return b.count("acked "+w.main()) == 1 })
	w.awaitState(holdfast.Done, list...)
	body := manifest(worker.run, 1, list...)
	want := []string{"refused " + body, "refused " + body, "refused " + body, "stored " + body, "acked " + w.main()}
	if got := b.order(); !slices.Equal(got, want) {
		t.Errorf("it was %q, want %q", got, want)
	}
	worker.stop()
	if held := w.take(w.hold()); !slices.Equal(held, []string{body, body}) {
		t.Errorf("held are %q", held)
	}
}

// An ack that the broker never hears of brings the message again, to the same worker even: it does not run the
// task twice, and gives the message a manifest before it acks it.
func TestALostAckRunsNothingTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var lossy atomic.Bool
	lossy.Store(true)
	b := &faultyBroker{Broker: w.broker, loseAcks: func(string) bool { return lossy.Load() }}
	release := make(chan struct{})
	var executed executions
	worker := w.work(func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		<-release
		return nil
	}, func(o *consumer.Options) { o.Broker = b })
	list := w.enqueue(1)
	w.eventually("the ack is lost", func() bool { return b.count("lost ack "+w.main()) == 1 })
	lossy.Store(false)
	w.must(b.cut(w.main()))
	w.eventually("the message is acked", func() bool { return b.count("acked "+w.main()) == 1 })
	want := []string{
		"stored " + manifest(worker.run, 1, list...), "lost ack " + w.main(),
		"stored " + manifest(worker.run, 0, list...), "acked " + w.main(),
	}
	if got := b.order(); !slices.Equal(got, want) {
		t.Errorf("it was %q, want %q", got, want)
	}
	close(release)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
}

// A second copy of a ticket comes while the first one's manifest is not confirmed: it must not be acked for
// the sake of that manifest.
func TestACopyOfATicketInHandIsMirroredToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held, release, started := make(chan struct{}), make(chan struct{}), make(chan struct{}, 9)
	var once atomic.Bool
	b := &faultyBroker{Broker: w.broker, publish: func(_ broker.Message, next func() broker.Outcome) broker.Outcome {
		if once.CompareAndSwap(false, true) {
			<-held
		}
		return next()
	}}
	var executed executions
	worker := w.work(func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		started <- struct{}{}
		<-release
		return nil
	}, func(o *consumer.Options) { o.Broker = b })
	list := w.enqueue(1)
	await(w, "the task runs", started)
	w.send(w.again(), list...)
	w.eventually("the copy is acked", func() bool { return b.count("acked "+w.again()) == 1 })
	if got, want := b.order(), []string{"stored " + manifest(worker.run, 0, list...), "acked " + w.again()}; !slices.Equal(got, want) {
		t.Errorf("it was %q, want %q", got, want)
	}
	close(held)
	close(release)
	w.awaitState(holdfast.Done, list...)
	w.eventually("the message is acked", func() bool { return b.count("acked "+w.main()) == 1 })
	executed.checkOnce(t, list)
}

// A ticket that is ahead of the store says that the database lost commits: it goes to rescue before its message is
// acked. One that is behind it is not needed.
func TestATicketAheadOfTheStoreGoesToRescue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int32
	b := &faultyBroker{Broker: w.broker, publish: func(_ broker.Message, next func() broker.Outcome) broker.Outcome {
		if tries.Add(1) == 1 {
			return broker.Unknown
		}
		return next()
	}}
	worker := w.work(func(context.Context, holdfast.Task) error { return errBoom }, func(o *consumer.Options) { o.Broker = b })
	list := w.ticketed(2, kind)
	w.sql("update holdfast.tasks set attempt = 3 where id = $1", int64(list[1].Task))
	ahead, missing, behind := list[0], list[0], list[1]
	ahead.Attempt, missing.Task = 5, list[0].Task+1000
	w.send(w.main(), ahead, behind, missing)
	w.eventually("the message is acked", func() bool { return b.count("acked "+w.main()) == 1 })
	rescued := string(message.Message{Tickets: []message.Ticket{ahead, missing}}.Encode())
	if got, want := b.order(), []string{"refused " + rescued, "stored " + rescued, "acked " + w.main()}; !slices.Equal(got, want) {
		t.Errorf("it was %q, want %q", got, want)
	}
	if got := w.take(w.topology.Rescue()); !slices.Equal(got, []string{rescued}) {
		t.Errorf("rescued are %q", got)
	}
	if n := worker.of(holdfast.ObservedClaimed); n != 0 {
		t.Errorf("%d tasks were claimed", n)
	}
}

// A claim that was committed and whose answer was lost is taken up again by the same run.
func TestALostAnswerToAClaimRunsEachTaskOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var lost atomic.Int32
	s := &faultyStore{Store: w.store, claim: func(next func() ([]store.Claim, error)) ([]store.Claim, error) {
		claims, err := next()
		if err == nil && lost.Add(1) <= 3 {
			return nil, errFault
		}
		return claims, err
	}}
	var executed executions
	w.work(func(_ context.Context, task holdfast.Task) error { executed.note(task); return nil }, func(o *consumer.Options) { o.Store = s })
	list := w.enqueue(30)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
	for _, ticket := range list {
		if task := w.task(ticket.Task); task.Attempt != 1 {
			t.Errorf("got %+v", task)
		}
	}
}

// Results that were committed and whose answer was lost are written again, and land once.
func TestALostAnswerToAResultCountsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var lost atomic.Int32
	s := &faultyStore{Store: w.store, apply: func(next func() ([]bool, error)) ([]bool, error) {
		accepted, err := next()
		if err == nil && lost.Add(1) == 1 {
			return nil, errFault
		}
		return accepted, err
	}}
	var executed executions
	worker := w.work(func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		if task.Attempt == 1 {
			return errBoom
		}
		return nil
	}, func(o *consumer.Options) { o.Store = s })
	first := w.enqueue(1)[0]
	w.eventually("the result was written twice", func() bool { return worker.of(holdfast.ObservedRefused) == 1 })
	if task := w.task(first.Task); task.State != holdfast.Ready || task.Attempt != 2 || task.Failures != 1 {
		t.Errorf("got %+v", task)
	}
	attempts, err := w.store.Attempts(t.Context(), first.Task)
	if err != nil || len(attempts) != 1 || attempts[0].Error != "boom" {
		t.Errorf("kept are %+v, %v", attempts, err)
	}
	w.janitor()
	w.awaitState(holdfast.Done, first)
	if n := executed.of(first.Task); n != 2 {
		t.Errorf("%d executions", n)
	}
}

// While the store takes nothing, results wait in memory and are written when it is back.
func TestResultsWaitForTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var away atomic.Bool
	var refused atomic.Int32
	away.Store(true)
	s := &faultyStore{Store: w.store, apply: func(next func() ([]bool, error)) ([]bool, error) {
		if away.Load() {
			refused.Add(1)
			return nil, errFault
		}
		return next()
	}}
	var executed executions
	worker := w.work(func(_ context.Context, task holdfast.Task) error { executed.note(task); return nil }, func(o *consumer.Options) { o.Store = s })
	list := w.enqueue(20)
	w.eventually("everything ran and a few writes failed", func() bool { return executed.total() == len(list) && refused.Load() >= 3 })
	if _, settled := w.cursors(worker.run); settled != 0 {
		t.Errorf("page %d counts as settled and no result is written", settled)
	}
	away.Store(false)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
	w.eventually("all pages are settled", func() bool {
		taken, settled := w.cursors(worker.run)
		return settled == taken && taken > 0
	})
}

func (w *world) cursors(run holdfast.RunID) (taken, settled int64) {
	w.Helper()
	r := w.runs()[run]
	return r.Taken, r.Settled
}

// A result outlives the lease it was earned under, if nobody has given the task away.
func TestResultsOutliveTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var away atomic.Bool
	s := &faultyStore{
		Store: w.store,
		apply: func(next func() ([]bool, error)) ([]bool, error) {
			if away.Load() {
				return nil, errFault
			}
			return next()
		},
		renew: func(next func() (store.News, error)) (store.News, error) {
			if away.Load() {
				return store.News{}, errFault
			}
			return next()
		},
	}
	var executed executions
	worker := w.work(func(_ context.Context, task holdfast.Task) error { executed.note(task); return nil }, func(o *consumer.Options) { o.Store, o.Lease = s, shortLease })
	away.Store(true)
	list := w.enqueue(5)
	w.eventually("everything ran", func() bool { return executed.total() == len(list) })
	w.eventually("the worker gave up its lease", func() bool { return w.leaseOver(worker.run) })
	away.Store(false)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
	w.eventually("the worker works as a new run", func() bool { run := worker.Status().Run; return run != 0 && run != worker.run })
	next := w.enqueue(3)
	w.awaitState(holdfast.Done, next...)
	if r := w.runs()[worker.run]; r.State != store.RunStopped || r.Settled != r.Taken {
		t.Errorf("the old run is %+v", r)
	}
}

func (w *world) leaseOver(run holdfast.RunID) (over bool) {
	w.Helper()
	w.scan(&over, "select lease_until < now() from holdfast.runs where id = $1", int64(run))
	return over
}
