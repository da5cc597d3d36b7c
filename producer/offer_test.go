package producer

import (
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

func TestATaskThatIsStoredAloneIsOffered(t *testing.T) {
	t.Parallel()
	offers := make(chan holdfast.Offer, 1)
	w := newWorld(t, func(o *Options) { o.Offers = offers })
	offered := func(what string, id holdfast.TaskID) {
		t.Helper()
		got := await(w, what, offers)
		if want := (holdfast.Ticket{Task: id, Attempt: 1}); got.Lane != holdfast.DefaultLane || got.Ticket != want {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	result, err := w.Enqueue(t.Context(), task(1))
	w.must(err)
	offered("a call's task", result.ID)
	results, err := w.EnqueueMany(t.Context(), tasks(1))
	w.must(err)
	offered("a list's only task", results[0].ID)

	unique := task(2)
	unique.Unique = "only"
	result, err = w.Enqueue(t.Context(), unique)
	w.must(err)
	offered("a unique task", result.ID)

	later := task(3)
	later.Delay = time.Hour
	for what, list := range map[string][]holdfast.NewTask{
		"two tasks": tasks(2), "more than one insert takes": tasks(batchSize + 1), "a duplicate": {unique}, "a task that is not due": {later},
	} {
		_, err := w.EnqueueMany(t.Context(), list)
		w.must(err)
		if len(offers) > 0 {
			t.Errorf("%s: %+v was offered", what, <-offers)
		}
	}
}

func TestNobodyNeedListenToOffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *Options) { o.Offers = make(chan holdfast.Offer) })
	result, err := w.Enqueue(t.Context(), task(1))
	w.must(err)
	w.must(w.Close())
	if tickets, _ := w.take(w.main()); len(tickets) != 1 || tickets[0].Task != result.ID {
		t.Errorf("published are %v", tickets)
	}
}
