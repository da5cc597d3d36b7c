package janitor

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

func TestPruneDeletesWhatIsOverAndOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// aged stores a task in a state, last moved the given hours ago.
	aged := func(state holdfast.State, hours int) holdfast.TaskID {
		id := w.ticketed(1)[0].Task
		w.sql(`update holdfast.tasks set state = $2, created_at = now() - interval '1 year',
			finished_at = now() - $3 * interval '1 hour', dead_at = case when $2 = 'dead' then now() end where id = $1`, int64(id), string(state), hours)
		return id
	}
	gone := []holdfast.TaskID{aged(holdfast.Done, 3), aged(holdfast.Cancelled, 5), aged(holdfast.Archived, 7)}
	kept := []holdfast.TaskID{
		aged(holdfast.Done, 1), aged(holdfast.Cancelled, 3), aged(holdfast.Archived, 5),
		aged(holdfast.Dead, 9000), aged(holdfast.Ready, 9000), aged(holdfast.Running, 9000),
	}
	w.sql("insert into holdfast.attempts (task_id, attempt, event, worker, class, error) values ($1, 1, 'retry', '', '', '')", int64(gone[0]))
	dead, young, owner, live := w.openRun(), w.openRun(), w.openRun(), w.openRun()
	for _, run := range []holdfast.RunID{dead, owner} {
		w.sql("update holdfast.runs set state = 'dead', ended_at = now() - interval '1 year' where id = $1", int64(run))
	}
	w.kill(young)
	w.sql("update holdfast.runs set swept = true where id in ($1, $2)", int64(dead), int64(young))

	w.must(w.janitor(nil).prune(t.Context())) // keeps everything for ever
	if n := w.number("select count(*) from holdfast.tasks"); n != len(gone)+len(kept) {
		t.Fatalf("%d tasks are left", n)
	}
	ages := store.PruneAges{Done: 2 * time.Hour, Cancelled: 4 * time.Hour, Archived: 6 * time.Hour, Runs: time.Hour}
	w.must(w.janitor(func(o *Options) { o.Keep = ages }).prune(t.Context()))
	left, err := w.store.TasksByID(t.Context(), append(slices.Clone(gone), kept...))
	w.must(err)
	var ids []holdfast.TaskID
	for _, task := range left {
		ids = append(ids, task.ID)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, kept) {
		t.Errorf("left are %v, want %v", ids, kept)
	}
	if n := w.number("select count(*) from holdfast.attempts"); n != 0 {
		t.Errorf("%d attempts of no task", n)
	}
	states, err := w.store.RunStates(t.Context(), []holdfast.RunID{dead, young, owner, live})
	w.must(err)
	if _, there := states[dead]; there || len(states) != 3 {
		t.Errorf("left are the runs %v, want all but %v", states, dead)
	}
	if n := w.seen.of(holdfast.ObservedPruned); n != len(gone)+1 {
		t.Errorf("%d rows observed", n)
	}
}

// One round deletes everything that is due, in as many steps as it takes.
func TestPruneGoesOnUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := pruneBatch + 700
	w.sql(fmt.Sprintf(`insert into holdfast.tasks (type, lane, state, max_attempts, created_at, finished_at)
		select 'work', 'default', 'done', 1, now() - interval '1 day', now() - interval '1 day' from generate_series(1, %d)`, n))
	young := w.ticketed(1)[0]
	w.must(w.janitor(func(o *Options) { o.Keep.Done = time.Hour }).prune(t.Context()))
	if left := w.number("select count(*) from holdfast.tasks"); left != 1 {
		t.Errorf("%d tasks are left, want only %v", left, young)
	}
	if seen := w.seen.of(holdfast.ObservedPruned); seen != n {
		t.Errorf("%d rows observed, want %d", seen, n)
	}
}

// Duties that read whole tables are done by one janitor in every interval.
func TestJanitorsTakeTurnsAtCostlyDuties(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.janitor(func(o *Options) { o.Keep.Done = time.Hour }), w.janitor(func(o *Options) { o.Keep.Done = time.Hour })
	for _, duty := range []struct { // in this order: prune trusts that older tasks have smaller ids
		name string
		make func() // something to do
		do   func(*Janitor) error
		left func() int
	}{
		{
			"prune",
			func() {
				w.sql(`insert into holdfast.tasks (type, lane, state, max_attempts, created_at, finished_at)
					values ('work', 'default', 'done', 1, now() - interval '1 day', now() - interval '1 day')`)
			},
			func(j *Janitor) error { return j.prune(t.Context()) },
			func() int { return w.number("select count(*) from holdfast.tasks where state = 'done'") },
		},
		{
			"sweep",
			func() {
				run := w.openRun()
				w.claim(run, w.ticketed(1)...)
				w.kill(run)
			},
			func(j *Janitor) error { return j.sweepAll(t.Context()) },
			func() int { return w.number("select count(*) from holdfast.tasks where state = 'running'") },
		},
		{
			"lost tickets",
			func() {
				w.ticketed(1)
				w.sql("update holdfast.tasks set ticketed_at = now() - interval '1 hour' where ticketed_at is not null")
				w.prove()
			},
			func(j *Janitor) error { return j.lostTickets(t.Context()) },
			func() int { return w.number("select count(*) from holdfast.tasks where ticketed_at is not null") },
		},
	} {
		duty.make()
		w.must(duty.do(first))
		if n := duty.left(); n != 0 {
			t.Errorf("%s: %d left", duty.name, n)
		}
		duty.make()
		w.must(duty.do(second))
		if n := duty.left(); n != 1 {
			t.Errorf("%s: %d left, but it was done just now", duty.name, n)
		}
		w.sql("update holdfast.turns set taken_at = taken_at - interval '2 minutes'")
		w.must(duty.do(second))
		if n := duty.left(); n != 0 {
			t.Errorf("%s: %d left", duty.name, n)
		}
	}
}
