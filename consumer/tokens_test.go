package consumer_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// If the manifest of a message is not confirmed, neither that message nor any later one is acked. When the subscription
// ends, another worker gets the messages. It leaves the tasks to the first worker, and publishes manifests with the id
// of the first worker.
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
	second := manifest(first.worker, 2, list[1])
	w.eventually("the second manifest is confirmed", func() bool { return b.count("stored "+second) == 1 })

	other := w.work(handle, nil)
	w.must(b.cut(w.main()))
	w.eventually("both messages are delivered again", func() bool { return other.Of(holdfast.ObservedContended) >= 2 })
	if n := b.count("acked " + w.main()); n != 0 {
		t.Errorf("%d acks before the first manifest was confirmed", n)
	}
	other.stop()
	listed := make(map[message.Ticket]bool)
	for _, body := range w.take(w.hold()) {
		m, err := message.Decode([]byte(body))
		w.must(err)
		if m.Manifest == nil || m.Manifest.Worker != first.worker {
			t.Fatalf("in the holding queue is %s, want manifests of worker %s", body, first.worker)
		}
		if m.Manifest.Page == 0 {
			for _, ticket := range m.Manifest.Tickets {
				listed[ticket] = true
			}
		} else if body != second {
			t.Errorf("in the holding queue is %s", body)
		}
	}
	if !listed[list[0]] || !listed[list[1]] {
		t.Errorf("the manifests of the second worker list %v, want %v", listed, list)
	}
	close(held)
	close(release)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
	first.stop()
	if left := w.take(w.main()); left != nil {
		t.Errorf("the main queue has %q", left)
	}
}

// The worker publishes a manifest until the broker has confirmed it, and then acks the message.
func TestAManifestIsPublishedUntilItIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int32
	b := &faultyBroker{Broker: w.broker, publish: func(_ broker.Message, next func() broker.Outcome) broker.Outcome {
		switch tries.Add(1) {
		case 1, 3:
			return broker.Unknown
		case 2:
			next() // the message is stored, but the confirm is lost
			return broker.Unknown
		}
		return next()
	}}
	worker := w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) { o.Broker = b })
	list := w.enqueue(1)
	w.eventually("the message is acked", func() bool { return b.count("acked "+w.main()) == 1 })
	w.awaitState(holdfast.Done, list...)
	body := manifest(worker.worker, 1, list...)
	want := []string{"refused " + body, "refused " + body, "refused " + body, "stored " + body, "acked " + w.main()}
	if got := b.order(); !slices.Equal(got, want) {
		t.Errorf("it was %q, want %q", got, want)
	}
	worker.stop()
	if held := w.take(w.hold()); !slices.Equal(held, []string{body, body}) {
		t.Errorf("the holding queue has %q", held)
	}
}

// If an ack is lost, the broker delivers the message again, perhaps to the same worker. The worker does not run the
// task twice, and publishes another manifest before it acks the message.
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
		"stored " + manifest(worker.worker, 1, list...), "lost ack " + w.main(),
		"stored " + manifest(worker.worker, 0, list...), "acked " + w.main(),
	}
	if got := b.order(); !slices.Equal(got, want) {
		t.Errorf("it was %q, want %q", got, want)
	}
	close(release)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
}

// A second copy of a ticket may arrive while the manifest of the first copy is not confirmed. Then the second copy
// needs a manifest of its own before it is acked.
func TestACopyOfAReceivedTicketIsMirroredToo(t *testing.T) {
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
	w.send(w.requeue(), list...)
	w.eventually("the copy is acked", func() bool { return b.count("acked "+w.requeue()) == 1 })
	if got, want := b.order(), []string{"stored " + manifest(worker.worker, 0, list...), "acked " + w.requeue()}; !slices.Equal(got, want) {
		t.Errorf("it was %q, want %q", got, want)
	}
	close(held)
	close(release)
	w.awaitState(holdfast.Done, list...)
	w.eventually("the message is acked", func() bool { return b.count("acked "+w.main()) == 1 })
	executed.checkOnce(t, list)
}

// A ticket ahead of the store shows that the database has lost commits. The worker sends it to the rescue queue before
// it acks the message. A ticket that is older than the row is not needed.
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
		t.Errorf("the rescue queue has %q", got)
	}
	if n := worker.Of(holdfast.ObservedClaimed); n != 0 {
		t.Errorf("%d tasks were claimed", n)
	}
}

// If a claim is committed and its answer is lost, the same worker claims the tasks again and runs each once.
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
	w.work(func(_ context.Context, task holdfast.Task) error { executed.note(task); return nil }, func(o *consumer.Options) {
		o.Store, o.Concurrency = s, 30 // no task waits for an executor, or a slow machine might hand it back with a new attempt
	})
	list := w.enqueue(30)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
	for _, ticket := range list {
		if task := w.task(ticket.Task); task.Attempt != 1 {
			t.Errorf("got %+v", task)
		}
	}
}

// If results are committed and the answer is lost, the worker writes them again, and the store applies them once.
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
	w.eventually("the result was written twice", func() bool { return worker.Of(holdfast.ObservedRefused) >= 1 })
	if task := w.task(first.Task); task.State != holdfast.Ready || task.Attempt != 2 || task.Failures != 1 {
		t.Errorf("got %+v", task)
	}
	attempts, err := w.store.Attempts(t.Context(), first.Task)
	if err != nil || len(attempts) != 1 || attempts[0].Error != "boom" {
		t.Errorf("the attempts are %+v, %v", attempts, err)
	}
	w.janitor()
	w.awaitState(holdfast.Done, first)
	if n := executed.of(first.Task); n != 2 {
		t.Errorf("%d executions", n)
	}
}

// While the store is unavailable, results wait in memory. They are written when the store is back.
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
	worker := w.work(func(_ context.Context, task holdfast.Task) error { executed.note(task); return nil }, func(o *consumer.Options) {
		o.Store, o.Concurrency = s, 20 // no task waits for an executor, or a slow machine might hand it back with a new attempt
	})
	list := w.enqueue(20)
	w.eventually("all tasks ran and a few writes failed", func() bool { return executed.total() == len(list) && refused.Load() >= 3 })
	if _, settled := w.cursors(worker.worker); settled != 0 {
		t.Errorf("page %d is settled, but no result is written", settled)
	}
	away.Store(false)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
	w.eventually("all pages are settled", func() bool {
		taken, settled := w.cursors(worker.worker)
		return settled == taken && taken > 0
	})
}

func (w *world) cursors(id holdfast.WorkerID) (taken, settled int64) {
	w.Helper()
	r := w.workers()[id]
	return r.Taken, r.Settled
}

// A result that is written after the lease has expired is still accepted, unless the task was handed back before.
func TestResultsOutliveTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var refusing, away atomic.Bool
	s := &faultyStore{
		Store: w.store,
		apply: func(next func() ([]bool, error)) ([]bool, error) {
			if refusing.Load() {
				return nil, errFault
			}
			return next()
		},
		renew: func(next func() (store.RenewResult, error)) (store.RenewResult, error) {
			if away.Load() {
				return store.RenewResult{}, errFault
			}
			return next()
		},
	}
	var executed executions
	worker := w.work(func(_ context.Context, task holdfast.Task) error { executed.note(task); return nil }, func(o *consumer.Options) { o.Store, o.Lease = s, shortLease() })
	refusing.Store(true)
	list := w.enqueue(5)
	w.eventually("all tasks ran", func() bool { return executed.total() == len(list) })
	away.Store(true) // set here, because no task starts without a lease
	w.eventually("the lease expires", func() bool { return w.leaseExpired(worker.worker) })
	away.Store(false)
	refusing.Store(false)
	w.awaitState(holdfast.Done, list...)
	executed.checkOnce(t, list)
	w.eventually("the process registers again", func() bool { id := worker.Status().Worker; return id != 0 && id != worker.worker })
	next := w.enqueue(3)
	w.awaitState(holdfast.Done, next...)
	if r := w.workers()[worker.worker]; r.State != store.WorkerStopped || r.Settled != r.Taken {
		t.Errorf("the old worker is %+v", r)
	}
}

func (w *world) leaseExpired(id holdfast.WorkerID) (over bool) {
	w.Helper()
	w.scan(&over, "select lease_until < now() from holdfast.workers where id = $1", int64(id))
	return over
}
