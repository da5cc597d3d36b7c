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
)

// loss is a story of a task whose ticket may be lost.
type loss struct {
	slack   time.Duration
	age     time.Duration // of the ticket when a sentinel follows it
	ripe    time.Duration // between the sentinel and the look
	again   bool          // the task was handed back
	covered bool          // its receipt stands
	busy    bool          // other sentinels come out before and after
}

// TestTheSimulatedStoreAgreesOnLostTickets goes through all that decides whether a ticket is proved lost, at each
// bound and just beside it. Random walks seldom get there.
func TestTheSimulatedStoreAgreesOnLostTickets(t *testing.T) {
	t.Parallel()
	file := inFile(t)
	synctest.Test(t, func(t *testing.T) {
		stores := []store.Store{file.open(t), inMemory(time.Now).open(t)}
		found := 0
		for _, story := range losses() {
			var said [2]string
			for n, s := range stores {
				said[n] = fmt.Sprint(teller{s}.tell(t, story))
			}
			if said[0] != said[1] {
				t.Errorf("%+v: in the file %s, in memory %s", story, said[0], said[1])
			}
			if said[0] != "[0 0]" && said[0] != "[0 0 0 0 0]" {
				found++
			}
		}
		if found == 0 {
			t.Error("nothing was ever lost")
		}
		for _, s := range stores {
			_ = s.Close()
		}
	})
}

func losses() []loss {
	var list []loss
	for _, slack := range []time.Duration{time.Second, time.Minute} {
		for _, bound := range []time.Duration{min(slack, 10*time.Second), 10 * slack} {
			for i := range 1 << 5 {
				story := loss{slack: slack, age: bound, ripe: slack, again: i&4 != 0, covered: i&8 != 0, busy: i&16 != 0}
				if i&1 != 0 {
					story.age += time.Microsecond
				}
				if i&2 != 0 {
					story.ripe -= time.Microsecond
				}
				list = append(list, story)
			}
		}
	}
	return list
}

// teller tells stories of one store.
type teller struct{ store.Store }

// tell returns how many tickets each look found lost.
func (s teller) tell(t *testing.T, l loss) (found []int) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	look := func() {
		n, _, err := s.UnticketLost(t.Context(), l.slack)
		must(err)
		found = append(found, n)
	}
	comeOut := func() {
		sentinels, err := s.SentinelsDue(t.Context(), 0, 0)
		must(err)
		must(s.Drained(t.Context(), sentinels[0]))
	}
	id, receipt, err := s.publish(t.Context(), l)
	must(err)
	if l.busy {
		comeOut()
		look()
	}
	time.Sleep(l.age)
	comeOut()
	if l.busy {
		look()
		half := (l.ripe / 2).Truncate(time.Microsecond)
		time.Sleep(half)
		comeOut()
		look()
		time.Sleep(l.ripe - half)
		comeOut()
	} else {
		time.Sleep(l.ripe)
	}
	look()
	time.Sleep(l.slack)
	look()

	must(s.Discharge(t.Context(), []int64{receipt}))
	must(s.end(t.Context(), id))
	return found
}

// publish stores a task of which a ticket goes out at this moment.
func (s teller) publish(ctx context.Context, l loss) (id holdfast.TaskID, receipt int64, err error) {
	inserted, err := s.Insert(ctx, []holdfast.NewTask{{Type: "one", Lane: holdfast.DefaultLane, MaxAttempts: 3}}, time.Hour)
	if err != nil {
		return 0, 0, err
	}
	id, receipt = inserted.Tasks[0].ID, inserted.Receipts[0].ID
	if !l.covered {
		err = s.Discharge(ctx, []int64{receipt})
	}
	if err != nil || !l.again {
		return id, receipt, err
	}
	run, err := s.OpenRun(ctx, store.RunInfo{Name: "w", Concurrency: 1}, time.Hour)
	if err != nil {
		return 0, 0, err
	}
	claims, err := s.Claim(ctx, run, store.AnyOf("one"), inserted.Receipts[0].Tickets, store.IntoExecutors)
	if err != nil {
		return 0, 0, err
	}
	if err := s.move(ctx, claims[0].Task, holdfast.Interrupted(nil)); err != nil {
		return 0, 0, err
	}
	_, err = s.DispatchDue(ctx, store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool { return slices.Repeat([]bool{true}, len(due)) })
	return id, receipt, err
}

func (s teller) move(ctx context.Context, task holdfast.Task, cause holdfast.Cause) error {
	move, err := holdfast.Settle(task, cause, task.CreatedAt, holdfast.DefaultPolicy())
	if err == nil {
		_, err = s.Apply(ctx, []holdfast.Transition{move})
	}
	return err
}

// end leaves nothing for the next story to find.
func (s teller) end(ctx context.Context, id holdfast.TaskID) error {
	task, err := s.Task(ctx, id)
	if err != nil {
		return err
	}
	return s.move(ctx, task, holdfast.Asked(holdfast.EventCancel))
}
