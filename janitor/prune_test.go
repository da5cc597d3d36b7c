package janitor

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

func TestPruneDeletesOldRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// aged stores a task that entered the state the given number of hours ago.
	aged := func(state holdfast.State, hours int) holdfast.TaskID {
		id := w.ticketed(1)[0].Task
		w.sql(`update holdfast.tasks set state = $2, created_at = now() - interval '1 year',
			finished_at = now() - $3 * interval '1 hour', dead_at = case when $2 = 'dead' then now() end where id = $1`, int64(id), string(state), hours)
		return id
	}
	old := []holdfast.TaskID{aged(holdfast.Done, 3), aged(holdfast.Cancelled, 5), aged(holdfast.Archived, 7)}
	kept := []holdfast.TaskID{
		aged(holdfast.Done, 1), aged(holdfast.Cancelled, 3), aged(holdfast.Archived, 5),
		aged(holdfast.Dead, 9000), aged(holdfast.Ready, 9000), aged(holdfast.Running, 9000),
	}
	w.sql("insert into holdfast.attempts (task_id, attempt, event, worker_name, class, error) values ($1, 1, 'retry', '', '', '')", int64(old[0]))
	dead, young, owner, live := w.registerWorker(), w.registerWorker(), w.registerWorker(), w.registerWorker()
	for _, worker := range []holdfast.WorkerID{dead, owner} {
		w.sql("update holdfast.workers set state = 'dead', ended_at = now() - interval '1 year' where id = $1", int64(worker))
	}
	w.kill(young)
	w.sql("update holdfast.workers set swept = true where id in ($1, $2)", int64(dead), int64(young))

	w.must(w.janitor(nil).prune(t.Context())) // the zero Keep keeps all rows
	if n := w.number("select count(*) from holdfast.tasks"); n != len(old)+len(kept) {
		t.Fatalf("%d tasks are left", n)
	}
	ages := store.PruneAges{Done: 2 * time.Hour, Cancelled: 4 * time.Hour, Archived: 6 * time.Hour, Workers: time.Hour}
	w.must(w.janitor(func(o *Options) { o.Prune = ages }).prune(t.Context()))
	left, err := w.store.TasksByID(t.Context(), append(slices.Clone(old), kept...))
	w.must(err)
	var ids []holdfast.TaskID
	for _, task := range left {
		ids = append(ids, task.ID)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, kept) {
		t.Errorf("tasks left: %v, want %v", ids, kept)
	}
	if n := w.number("select count(*) from holdfast.attempts"); n != 0 {
		t.Errorf("%d attempts without a task are left", n)
	}
	states, err := w.store.WorkerStates(t.Context(), []holdfast.WorkerID{dead, young, owner, live})
	w.must(err)
	if _, found := states[dead]; found || len(states) != 3 {
		t.Errorf("workers are %v, want all except %v", states, dead)
	}
	if n := w.observed.Of(holdfast.ObservedPruned); n != len(old)+1 {
		t.Errorf("observed %d deleted rows, want %d", n, len(old)+1)
	}
}

// One call deletes all old rows, in several steps.
func TestPruneDeletesAllOldRowsInOneCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := pruneBatch + 700
	w.sql(fmt.Sprintf(`insert into holdfast.tasks (type, queue, state, max_attempts, created_at, finished_at)
		select 'work', 'default', 'done', 1, now() - interval '1 day', now() - interval '1 day' from generate_series(1, %d)`, n))
	young := w.ticketed(1)[0]
	w.must(w.janitor(func(o *Options) { o.Prune.Done = time.Hour }).prune(t.Context()))
	if left := w.number("select count(*) from holdfast.tasks"); left != 1 {
		t.Errorf("%d tasks are left, want only %v", left, young)
	}
	if seen := w.observed.Of(holdfast.ObservedPruned); seen != n {
		t.Errorf("observed %d deleted rows, want %d", seen, n)
	}
}

// In each interval, only one janitor does a duty that reads a whole table.
func TestJanitorsTakeTurnsAtCostlyDuties(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.janitor(func(o *Options) { o.Prune.Done = time.Hour }), w.janitor(func(o *Options) { o.Prune.Done = time.Hour })
	for _, duty := range []struct { // the order matters: prune assumes that older tasks have smaller ids
		name string
		make func() // creates work for the duty
		do   func(*Janitor) error
		left func() int
	}{
		{
			"prune",
			func() {
				w.sql(`insert into holdfast.tasks (type, queue, state, max_attempts, created_at, finished_at)
					values ('work', 'default', 'done', 1, now() - interval '1 day', now() - interval '1 day')`)
			},
			func(j *Janitor) error { return j.prune(t.Context()) },
			func() int { return w.number("select count(*) from holdfast.tasks where state = 'done'") },
		},
		{
			"sweep",
			func() {
				worker := w.registerWorker()
				w.claim(worker, w.ticketed(1)...)
				w.kill(worker)
			},
			func(j *Janitor) error { return j.sweepAll(t.Context()) },
			func() int { return w.number("select count(*) from holdfast.tasks where state = 'running'") },
		},
		{
			"lost tickets",
			func() {
				w.ticketed(1)
				w.sql("update holdfast.tasks set ticketed_at = now() - interval '1 hour' where ticketed_at is not null")
				w.proveLoss()
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
			t.Errorf("%s: %d left, want 1, because another janitor has just done the duty", duty.name, n)
		}
		w.sql("update holdfast.turns set taken_at = taken_at - interval '2 minutes'")
		w.must(duty.do(second))
		if n := duty.left(); n != 0 {
			t.Errorf("%s: %d left", duty.name, n)
		}
	}
}
