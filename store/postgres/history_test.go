package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// renew renews the lease of a worker and returns the history.
func renew(t *testing.T, s *postgres.Store, worker holdfast.WorkerID) string {
	t.Helper()
	result, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return result.History
}

// The history of a renewal is the timeline of the primary.
func TestHistoryIsTheTimeline(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	worker := registerWorker(t, s)
	var timeline string
	if err := pgtest.Admin(t).QueryRow("select substring(pg_walfile_name(pg_current_wal_lsn()) for 8)").Scan(&timeline); err != nil {
		t.Fatal(err)
	}
	if got := renew(t, s, worker); got != timeline {
		t.Errorf("the history is %q, want the timeline %q", got, timeline)
	}
}

// If the server does not return the timeline, renewals succeed without it.
func TestRenewalsDoWithoutAHistory(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"pg_no_such_function()", "(1 / (random() * 0)::int)::text"} {
		s := pgtest.Open(t)
		worker := registerWorker(t, s)
		s.SetHistory(refusal)
		for range 2 {
			if got := renew(t, s, worker); got != "" {
				t.Errorf("%s: the history is %q", refusal, got)
			}
		}
		if err := s.DeregisterWorker(t.Context(), worker, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour}); !errors.Is(err, store.ErrFenced) {
			t.Errorf("%s: renewal of a deregistered worker: %v, want ErrFenced", refusal, err)
		}
	}
}

// A failover may lose a queue that this process has stored. The next insert into the queue stores it again.
func TestInsertsBringALostQueueBack(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	for _, unique := range []string{"", "key"} {
		task := holdfast.NewTask{Type: "t", Queue: "lost", MaxAttempts: 3}
		for range 2 {
			if _, err := s.Insert(t.Context(), []holdfast.NewTask{task, {Type: "t", Queue: "lost", MaxAttempts: 3, Unique: unique}}, time.Hour); err != nil {
				t.Fatal(err)
			}
			queues, err := s.QueueNames(t.Context())
			if err != nil || len(queues) != 2 || queues[1] != "lost" {
				t.Errorf("the queues are %v, %v", queues, err)
			}
			change(t, s, "delete from queues where name = 'lost'")
		}
	}
}

// If the clock is set back while a ticket is published, a claim may have dropped the ticket as too early. So the store
// does not mark the task.
func TestNotMarkedIfNotDueAnyMore(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	ticket := insert(t, s, 1)[0]
	change(t, s, "update tasks set due_at = now() - interval '1 second', next_run_at = now() - interval '1 second', ticketed_at = null")
	restore := s.SetClock("(clock_timestamp() - interval '1 minute')")
	for _, want := range []int{0, 1} {
		result, err := s.DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool { return published(len(due)) })
		positions, readErr := s.Positions(t.Context(), []message.Ticket{ticket})
		if err := errors.Join(err, readErr); err != nil || result.Given != 1 || result.Marked != want || positions[0].Ticketed != (want == 1) {
			t.Fatalf("dispatched %+v, %+v, %v; want %d marked", result, positions, err, want)
		}
		restore()
	}
}

func published(n int) []bool {
	all := make([]bool, n)
	for i := range all {
		all[i] = true
	}
	return all
}

// If a snapshot is restored under a live worker, the timeline stays the same, but the store has only an older renewal.
func TestARestoredSnapshotUnderALivingWorker(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	worker := registerWorker(t, s)
	first := renew(t, s, worker)
	for range 3 {
		if got := renew(t, s, worker); got != first {
			t.Fatalf("the history changed from %q to %q without a restore", first, got)
		}
	}
	found, err := s.Janitors(t.Context(), time.Minute)
	if err != nil || !found.LostCommits.IsZero() {
		t.Fatalf("lost commits are reported without a restore: %+v, %v", found, err)
	}
	var snapshot time.Time
	if err := pgtest.Admin(t).QueryRow("select renewed_at from "+s.Schema()+".workers where id = $1", worker).Scan(&snapshot); err != nil {
		t.Fatal(err)
	}
	renew(t, s, worker)
	if _, err := pgtest.Admin(t).Exec("update "+s.Schema()+".workers set renewed_at = $2 where id = $1", worker, snapshot); err != nil {
		t.Fatal(err)
	}
	second := renew(t, s, worker)
	if second == first {
		t.Error("the history is the same after a restore")
	}
	if got := renew(t, s, worker); got != second {
		t.Errorf("the history changed from %q to %q without a second restore", second, got)
	}
	if found, err = s.Janitors(t.Context(), time.Minute); err != nil || found.LostCommits.IsZero() {
		t.Errorf("lost commits are not reported after a restore: %+v, %v", found, err)
	}
}
