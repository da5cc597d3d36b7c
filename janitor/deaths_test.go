package janitor

import (
	"errors"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// A build without records of deaths leaves many dead tasks. The duty adds all records in one turn.
func TestDeathsAreRecordedInOneTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const tasks = 2*deathsBatch + 7
	w.sql(`insert into holdfast.tasks (type, queue, max_attempts, state, dead_at, finished_at, last_error)
		select 'a', 'default', 1, 'dead', now(), now(), 'order ' || n || ' is unknown' from generate_series(1, $1) n`, tasks)
	j := w.janitor(nil)
	w.must(j.recordDeaths(t.Context()))
	groups, err := w.store.DeathGroups(t.Context(), store.DeathFilter{})
	w.must(err)
	want := holdfast.Fingerprint("a", holdfast.Report{Error: "order 1 is unknown"})
	if len(groups) != 1 || groups[0].Tasks != tasks || groups[0].Fingerprint != want {
		t.Errorf("groups %+v", groups)
	}
	// Another janitor has no turn yet, so it changes nothing.
	w.sql("delete from holdfast.deaths")
	w.must(w.janitor(nil).recordDeaths(t.Context()))
	if n := w.number("select count(*) from holdfast.deaths"); n != 0 {
		t.Errorf("a second janitor has added %d records within a minute", n)
	}
}

func TestAFailedRecordOfDeathsIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sql("alter table holdfast.deaths rename to gone")
	if err := w.janitor(nil).recordDeaths(t.Context()); err == nil || errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
