package storetest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// lossCase is a case of a task whose ticket may be lost.
type lossCase struct {
	slack    time.Duration
	age      time.Duration // age of the ticket when the sentinel is sent
	elapsed  time.Duration // time between the delivery of the sentinel and the check
	requeued bool          // the task was handed back
	covered  bool          // an outbox entry covers the task
	busy     bool          // other sentinels are delivered before and after
}

// TestTheStoreInMemoryAgreesOnLostTickets tests all conditions that decide whether a ticket is proved lost. It tests
// each limit and the values next to it, which random sequences of calls seldom reach.
func TestTheStoreInMemoryAgreesOnLostTickets(t *testing.T) {
	t.Parallel()
	file := sqliteBackend(t)
	synctest.Test(t, func(t *testing.T) {
		stores := []desk.Store{file.open(t), memoryBackend(time.Now).open(t)}
		found := 0
		for _, c := range lossCases() {
			var results [2]string
			for n, s := range stores {
				results[n] = fmt.Sprint(lossStore{s}.run(t, c))
			}
			if results[0] != results[1] {
				t.Errorf("%+v: SQLite found %s, the store in memory %s", c, results[0], results[1])
			}
			if results[0] != "[0 0]" && results[0] != "[0 0 0 0 0]" {
				found++
			}
		}
		if found == 0 {
			t.Error("no case found a lost ticket")
		}
		for _, s := range stores {
			_ = s.Close()
		}
	})
}

func lossCases() []lossCase {
	var list []lossCase
	for _, slack := range []time.Duration{time.Second, time.Minute} {
		for _, limit := range []time.Duration{min(slack, 10*time.Second), 10 * slack} {
			for i := range 1 << 5 {
				c := lossCase{slack: slack, age: limit, elapsed: slack, requeued: i&4 != 0, covered: i&8 != 0, busy: i&16 != 0}
				if i&1 != 0 {
					c.age += time.Microsecond
				}
				if i&2 != 0 {
					c.elapsed -= time.Microsecond
				}
				list = append(list, c)
			}
		}
	}
	return list
}

// lossStore runs cases on one store.
type lossStore struct{ desk.Store }

// run runs a case and returns the number of lost tickets that each check found.
func (s lossStore) run(t *testing.T, c lossCase) (found []int) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		n, _, err := s.UnticketLost(t.Context(), c.slack)
		must(err)
		found = append(found, n)
	}
	deliverSentinel := func() {
		sentinels, err := s.SentinelsDue(t.Context(), 0, 0)
		must(err)
		must(s.Drained(t.Context(), sentinels[0]))
	}
	id, entry, err := s.publish(t.Context(), c)
	must(err)
	if c.busy {
		deliverSentinel()
		check()
	}
	time.Sleep(c.age)
	deliverSentinel()
	if c.busy {
		check()
		half := (c.elapsed / 2).Truncate(time.Microsecond)
		time.Sleep(half)
		deliverSentinel()
		check()
		time.Sleep(c.elapsed - half)
		deliverSentinel()
	} else {
		time.Sleep(c.elapsed)
	}
	check()
	time.Sleep(c.slack)
	check()

	must(s.DeleteOutbox(t.Context(), []int64{entry}))
	must(s.end(t.Context(), id))
	return found
}

// publish stores a task whose ticket is published now.
func (s lossStore) publish(ctx context.Context, c lossCase) (id holdfast.TaskID, entry int64, err error) {
	inserted, err := s.Insert(ctx, []holdfast.NewTask{{Type: "one", Queue: holdfast.DefaultQueue, MaxAttempts: 3}}, time.Hour)
	if err != nil {
		return 0, 0, err
	}
	id, entry = inserted.Tasks[0].ID, inserted.Entries[0].ID
	if !c.covered {
		err = s.DeleteOutbox(ctx, []int64{entry})
	}
	if err != nil || !c.requeued {
		return id, entry, err
	}
	worker, err := s.RegisterWorker(ctx, store.WorkerInfo{Name: "w", Concurrency: 1}, time.Hour)
	if err != nil {
		return 0, 0, err
	}
	claims, err := s.Claim(ctx, worker, store.AnyOf("one"), inserted.Entries[0].Tickets, store.IntoExecutors)
	if err != nil {
		return 0, 0, err
	}
	if err := s.move(ctx, *claims[0].Task, holdfast.Interrupted(nil)); err != nil {
		return 0, 0, err
	}
	_, err = s.DispatchDue(ctx, store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool { return slices.Repeat([]bool{true}, len(due)) })
	return id, entry, err
}

func (s lossStore) move(ctx context.Context, task holdfast.Task, cause holdfast.Cause) error {
	move, err := holdfast.Settle(task, cause, task.CreatedAt, holdfast.DefaultPolicy())
	if err == nil {
		_, err = s.Apply(ctx, []holdfast.Transition{move})
	}
	return err
}

// end cancels the task, so that the next case does not find it.
func (s lossStore) end(ctx context.Context, id holdfast.TaskID) error {
	task, err := s.Task(ctx, id)
	if err != nil {
		return err
	}
	return s.move(ctx, task, holdfast.Requested(holdfast.EventCancel))
}
