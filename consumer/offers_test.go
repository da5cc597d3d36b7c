package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
)

// offer returns when the worker has received an offer, and has decided about all before.
func (w *world) offer(offers chan<- holdfast.Offer, lane string, ticket holdfast.Ticket) {
	w.Helper()
	select {
	case offers <- holdfast.Offer{Lane: lane, Ticket: ticket}:
	case <-time.After(patience):
		w.Fatal("the worker listens to no offers")
	}
}

func TestAnIdleWorkerRunsWhatIsOffered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	offers := make(chan holdfast.Offer)
	var executed executions
	worker := w.work(func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		return nil
	}, func(o *consumer.Options) { o.Offers = offers })
	list := w.ticketed(1, kind)
	w.offer(offers, lane, list[0])
	w.awaitState(holdfast.Done, list...)
	var held []string
	w.eventually("its page is mirrored", func() bool { held = append(held, w.take(w.hold())...); return len(held) > 0 })
	if want := manifest(worker.run, 1, list...); len(held) != 1 || held[0] != want {
		t.Errorf("held are %q, want %q", held, want)
	}
	w.eventually("the page is settled", func() bool {
		taken, settled := w.cursors(worker.run)
		return taken == 1 && settled == 1
	})

	w.eventually("the task is out of hand, and its ticket is not needed", func() bool {
		w.send(w.main(), list...)
		return worker.of(holdfast.ObservedStale) > 0
	})
	executed.checkOnce(t, list)
}

// Its ticket comes while the task runs.
func TestATicketComesAfterItsOffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	offers := make(chan holdfast.Offer)
	var executed executions
	started, release := make(chan struct{}, 9), make(chan struct{})
	worker := w.work(func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		started <- struct{}{}
		<-release
		return nil
	}, func(o *consumer.Options) { o.Offers = offers })
	list := w.ticketed(1, kind)
	w.offer(offers, lane, list[0])
	await(w, "the task runs", started)
	w.send(w.main(), list...)
	var held []string
	w.eventually("a second manifest says who has it", func() bool {
		held = append(held, w.take(w.hold())...)
		return len(held) == 2
	})
	close(release)
	w.awaitState(holdfast.Done, list...)
	worker.stop()
	if left := w.take(w.main()); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	executed.checkOnce(t, list)
}

// Whose handlers run would make the task wait, and a lane is not everybody's.
func TestAnOfferMayPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	offers := make(chan holdfast.Offer)
	started, release := make(chan struct{}, 9), make(chan struct{})
	worker := w.work(func(context.Context, holdfast.Task) error {
		started <- struct{}{}
		<-release
		return nil
	}, func(o *consumer.Options) { o.Offers = offers })
	list := w.ticketed(2, kind)
	for range 2 { // with the second, the first is decided
		w.offer(offers, "elsewhere", list[0])
	}
	if task := w.task(list[0].Task); task.State != holdfast.Ready {
		t.Errorf("a worker of other lanes has taken it: %+v", task)
	}
	w.send(w.main(), list[0])
	await(w, "the first task runs", started)
	w.offer(offers, lane, list[1])
	w.offer(offers, "elsewhere", list[1]) // now the one before is decided
	if task := w.task(list[1].Task); task.State != holdfast.Ready || worker.of(holdfast.ObservedClaimed) != 1 {
		t.Errorf("a busy worker has taken it: %+v", task)
	}
	close(release)
	w.awaitState(holdfast.Done, list[0])
	w.send(w.main(), list[1])
	w.awaitState(holdfast.Done, list[1])
}
