package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

func renewed(t *testing.T, s *postgres.Store, run holdfast.RunID) string {
	t.Helper()
	news, err := s.Renew(t.Context(), store.Renewal{Run: run, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return news.History
}

// A primary tells its timeline to every role, and to two connections the same.
func TestHistoryIsTheTimeline(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	run := openRun(t, s)
	var timeline string
	if err := pgtest.Admin(t).QueryRow("select substring(pg_walfile_name(pg_current_wal_lsn()) for 8)").Scan(&timeline); err != nil {
		t.Fatal(err)
	}
	if got := renewed(t, s, run); got != timeline {
		t.Errorf("the history is %q on timeline %q", got, timeline)
	}
}

// A server that does not tell must not cost a lease.
func TestRenewalsDoWithoutAHistory(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"pg_no_such_function()", "(1 / (random() * 0)::int)::text"} {
		s := pgtest.Open(t)
		run := openRun(t, s)
		s.SetHistory(refusal)
		for range 2 {
			if got := renewed(t, s, run); got != "" {
				t.Errorf("%s: the history is %q", refusal, got)
			}
		}
		if err := s.CloseRun(t.Context(), run, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Renew(t.Context(), store.Renewal{Run: run, Lease: time.Hour}); !errors.Is(err, store.ErrFenced) {
			t.Errorf("%s: a closed run was renewed: %v", refusal, err)
		}
	}
}

// A failover may lose a lane that this process has stored, and its next task must not be where nobody looks.
func TestInsertsBringALostLaneBack(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	for _, unique := range []string{"", "key"} {
		task := holdfast.NewTask{Type: "t", Lane: "lost", MaxAttempts: 3}
		for range 2 {
			if _, err := s.Insert(t.Context(), []holdfast.NewTask{task, {Type: "t", Lane: "lost", MaxAttempts: 3, Unique: unique}}, time.Hour); err != nil {
				t.Fatal(err)
			}
			lanes, err := s.LaneNames(t.Context())
			if err != nil || len(lanes) != 2 || lanes[1] != "lost" {
				t.Errorf("the lanes are %v, %v", lanes, err)
			}
			change(t, s, "delete from lanes where name = 'lost'")
		}
	}
}

// The clock goes back while a ticket is published, and a claim may have dropped it as too early.
func TestNotMarkedIfNotDueAnyMore(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	ticket := insert(t, s, 1)[0]
	change(t, s, "update tasks set due_at = now() - interval '1 second', next_run_at = now() - interval '1 second', ticketed_at = null")
	clock := s.SetClock("(clock_timestamp() - interval '1 minute')")
	for _, want := range []int{0, 1} {
		result, err := s.DispatchDue(t.Context(), store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool { return published(len(due)) })
		positions, readErr := s.Positions(t.Context(), []message.Ticket{ticket})
		if err := errors.Join(err, readErr); err != nil || result.Given != 1 || result.Marked != want || positions[0].Ticketed != (want == 1) {
			t.Fatalf("dispatched %+v, %+v, %v; want %d marked", result, positions, err, want)
		}
		clock()
	}
}

func published(n int) []bool {
	all := make([]bool, n)
	for i := range all {
		all[i] = true
	}
	return all
}

// A snapshot is restored under a worker that lives: the timeline is the same, but the store knows only an older renewal.
func TestARestoredSnapshotUnderALivingWorker(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	run := openRun(t, s)
	first := renewed(t, s, run)
	for range 3 {
		if got := renewed(t, s, run); got != first {
			t.Fatalf("nothing was restored, and the history changed from %q to %q", first, got)
		}
	}
	found, err := s.Janitors(t.Context(), time.Minute)
	if err != nil || !found.LostCommits.IsZero() {
		t.Fatalf("nothing was restored: %+v, %v", found, err)
	}
	var snapshot time.Time
	if err := pgtest.Admin(t).QueryRow("select renewed_at from "+s.Schema()+".runs where id = $1", run).Scan(&snapshot); err != nil {
		t.Fatal(err)
	}
	renewed(t, s, run)
	if _, err := pgtest.Admin(t).Exec("update "+s.Schema()+".runs set renewed_at = $2 where id = $1", run, snapshot); err != nil {
		t.Fatal(err)
	}
	second := renewed(t, s, run)
	if second == first {
		t.Error("the history is the same after a restore")
	}
	if got := renewed(t, s, run); got != second {
		t.Errorf("the history went on to change from %q to %q", second, got)
	}
	if found, err = s.Janitors(t.Context(), time.Minute); err != nil || found.LostCommits.IsZero() {
		t.Errorf("the doctor does not learn of it: %+v, %v", found, err)
	}
}
