package janitor

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// composeEvents returns a task whose payload has the kinds and the queues of the events.
func composeEvents(found []store.Notice) (holdfast.NewTask, error) {
	var events []string
	for _, n := range found {
		events = append(events, fmt.Sprintf("%s %s", n.Kind, n.Queue.Name))
	}
	payload, err := json.Marshal(events)
	return holdfast.NewTask{Type: "announce", Payload: payload}, err
}

// One of two janitors announces, once, a queue whose oldest due task is too old. The queue is announced again only
// after its oldest due task was younger than half of the limit. The queue of the tasks that announce events is never
// announced.
func TestLateQueuesAreAnnouncedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const limit = time.Minute
	withLimit := func(limit time.Duration) *Janitor {
		return w.janitor(func(o *Options) {
			o.Notify = &Notify{Kinds: store.NoticeKinds(), Queue: "notify", OldestTask: limit, Compose: composeEvents}
		})
	}
	janitors := []*Janitor{withLimit(limit), withLimit(limit)}
	look := func() {
		t.Helper()
		for _, j := range janitors {
			w.sql("delete from holdfast.turns") // the next janitor does not wait for its turn
			w.must(j.notify(t.Context()))
		}
	}
	late := w.ticketed(1)[0].Task
	age := func(age time.Duration) {
		t.Helper()
		w.sql("update holdfast.tasks set next_run_at = now() - $2 * interval '1 second' where id = $1", int64(late), age.Seconds())
	}
	var announced []string
	expect := func(what string, want ...string) {
		t.Helper()
		look()
		tasks, err := w.store.List(t.Context(), store.Filter{Queue: "notify", Limit: 100})
		w.must(err)
		var got []string
		for _, task := range slices.Backward(tasks.Tasks) {
			var events []string
			w.must(json.Unmarshal(w.task(task.ID).Payload, &events))
			got = append(got, events...)
			// The calls wait for a long time, which must not be announced.
			w.sql("update holdfast.tasks set next_run_at = now() - interval '1 year' where id = $1", int64(task.ID))
		}
		if announced = append(announced, want...); !slices.Equal(got, announced) {
			t.Fatalf("%s: announced %q, want %q", what, got, announced)
		}
	}
	expect("the first look")
	expect("a young task")
	age(2 * limit)
	expect("an old task", "queue_late "+queue)
	expect("still old")
	age(limit * 3 / 4)
	expect("between the limits")
	age(2 * limit)
	expect("old again, and not well meanwhile")
	age(0)
	expect("well")
	age(2 * limit)
	expect("old after it was well", "queue_late "+queue)
	age(0)
	expect("well again")
	anna := store.Actor{Name: "anna", Surface: store.CommandLine}
	if _, err := w.store.Pause(t.Context(), anna, store.PauseFor(store.Subject{Queue: queue}, 0)); err != nil {
		t.Fatal(err)
	}
	age(2 * limit)
	expect("old, and paused by a person")
	if _, err := w.store.Resume(t.Context(), anna, store.Subject{Queue: queue}); err != nil {
		t.Fatal(err)
	}
	expect("old after the pause", "queue_late "+queue)
	age(0)
	expect("well after the pause")
	janitors = []*Janitor{withLimit(0)}
	age(2 * limit)
	expect("without a limit")
}
