package janitor

import (
	"errors"
	"testing"

	"github.com/holdfastq/holdfast"
)

// A migration leaves tasks of a build without counters, in several blocks of ids. The duty counts all of them in one
// turn.
func TestOldTasksAreCountedInOneTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sql(`insert into holdfast.tasks (id, type, queue, max_attempts)
		select n * 70000, 'a', 'default', 1 from generate_series(1, 10) n`)
	w.sql("update holdfast.count_scan set filled = false")
	w.must(w.janitor(nil).recount(t.Context()))
	w.wantReady(10)
	if n := w.number("select count(distinct block) from holdfast.count_deltas"); n != 8 {
		t.Errorf("%d blocks were counted, want 8", n)
	}
	// Another janitor has no turn yet.
	w.sql("delete from holdfast.count_deltas")
	w.must(w.janitor(nil).recount(t.Context()))
	w.wantReady(0)
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
	for _, g := range found.Groups {
		got += g.Tasks
	}
	if got != want || !found.Complete {
		w.Errorf("the counters have %+v, want %d tasks", found, want)
	}
}
