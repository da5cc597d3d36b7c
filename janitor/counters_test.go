package janitor

import (
	"errors"
	"testing"

	"github.com/holdfastq/holdfast"
)

// Each turn corrects the numbers of one block of ids.
func TestNumbersAreCorrected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sql(`insert into holdfast.tasks (id, type, queue, max_attempts)
		select n * 70000, 'a', 'default', 1 from generate_series(1, 2) n`)
	w.must(w.janitor(nil).recount(t.Context()))
	w.wantReady(1)
	w.must(w.janitor(nil).recount(t.Context())) // another janitor has no turn yet
	w.wantReady(1)
	w.sql("delete from holdfast.turns")
	w.must(w.janitor(nil).recount(t.Context()))
	w.wantReady(2)
}

func TestDeltasAreFolded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sql(`insert into holdfast.count_deltas (queue, type, state, block, n)
		select 'default', 'a', 'all', 0, 1 from generate_series(1, $1)`, 2*foldBatch+7)
	w.must(w.janitor(nil).foldCounts(t.Context()))
	if n := w.number("select count(*) from holdfast.count_deltas"); n != 0 {
		t.Errorf("%d deltas are left", n)
	}
	w.wantReady(2*foldBatch + 7)
}

func TestAFailedRecountIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sql("alter table holdfast.counts rename to gone")
	if err := w.janitor(nil).recount(t.Context()); err == nil || errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// wantReady checks the number of ready tasks that the store counts.
func (w *world) wantReady(want int64) {
	w.Helper()
	found, err := w.store.CountGroups(w.Context())
	w.must(err)
	got := int64(0)
	for _, g := range found {
		got += g.Tasks
	}
	if got != want {
		w.Errorf("the counters have %+v, want %d tasks", found, want)
	}
}
