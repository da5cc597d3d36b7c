package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Pause waits for claims in progress that could not see it. During the wait, the worker renews its lease and claims
// other tasks.
func TestPauseWaitsForClaims(t *testing.T) {
	t.Parallel()
	s := named(t, postgres.Options{})
	worker, tickets := registerWorker(t, s), insert(t, s, 2)
	if _, err := s.Claim(t.Context(), worker, store.AnyOf("other"), tickets, store.IntoExecutors); err != nil {
		t.Fatal(err) // from now on the store knows the gates
	}
	lock, err := callersDB(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	if _, err := lock.Exec("select from "+s.Schema()+".tasks where id = $1 for update", int64(tickets[0].Task)); err != nil {
		t.Fatal(err)
	}
	claim := func(i int) (store.Verdict, error) {
		claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets[i:i+1], store.IntoExecutors)
		if err != nil {
			return store.Stale, err
		}
		return claims[0].Verdict, nil
	}
	claimed, paused := make(chan error, 1), make(chan error, 1)
	go func() {
		verdict, err := claim(0)
		if err == nil && verdict != store.Claimed {
			err = fmt.Errorf("the verdict is %d", verdict)
		}
		claimed <- err
	}()
	eventually(t, "the claim waits", func() error {
		if waiting(t, s) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	go func() {
		_, err := s.Pause(t.Context(), store.Actor{Name: "anna"}, store.PauseFor(store.Subject{Type: "t"}, 0))
		paused <- err
	}()
	eventually(t, "the pause is stored", func() error {
		gates, err := s.Gates(t.Context())
		if err == nil && len(gates) == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour}); err != nil {
		t.Error(err)
	}
	if verdict, err := claim(1); err != nil || verdict != store.Blocked {
		t.Errorf("a claim after the pause: verdict %d, %v; want Blocked", verdict, err)
	}
	select {
	case err := <-paused:
		t.Fatalf("Pause has returned while a claim is in progress that does not see the pause: %v", err)
	case <-time.After(200 * time.Millisecond): // it cannot return before the claim ends
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil {
		t.Errorf("the claim in progress: %v", err)
	}
	if err := <-paused; err != nil {
		t.Errorf("Pause: %v", err)
	}
}

// If a process is frozen in the middle of a change of the gates, renewals and new workers wait for only about a second.
func TestAFrozenChangeOfGatesStopsNoRenewals(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	worker, _ := registerWorker(t, s), insert(t, s, 1)
	frozen, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = frozen.Rollback() }()
	for _, name := range []string{"gates_settings", "gates_change", "gates_changed"} {
		if _, err := frozen.Exec(s.Text(name)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the worker renews its lease", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), slow.Times(time.Second))
		defer cancel()
		_, err := s.Renew(ctx, store.Renewal{Worker: worker, Lease: time.Hour})
		return err
	})
	if err := frozen.Commit(); err == nil {
		t.Error("the frozen change was committed")
	}
	if _, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "new"}, time.Hour); err != nil {
		t.Error(err)
	}
}

// A release changes the gates once, and not in each step, because each change makes all claims in progress start again.
func TestAReleaseKeepsTheEpoch(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	worker, tickets := registerWorker(t, s), insert(t, s, 4)
	by, subject := store.Actor{Name: "anna"}, store.Subject{Type: "t"}
	paused, err := s.Pause(t.Context(), by, store.PauseFor(subject, 0))
	if err == nil {
		err = s.Block(t.Context(), paused.After.ID, tickets)
	}
	if err == nil {
		_, err = s.Resume(t.Context(), by, subject)
	}
	if err != nil {
		t.Fatal(err)
	}
	epoch := func() (n int64) {
		t.Helper()
		if err := pgtest.Admin(t).QueryRow("select gate_epoch from "+s.Schema()+".workers where id = $1", int64(worker)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for before, released := epoch(), 0; released < len(tickets); {
		step, err := s.ReleaseBlocked(t.Context(), 1)
		if err != nil || step.Tasks == 0 {
			t.Fatalf("released %d tasks, %v", step.Tasks, err)
		}
		released += step.Tasks
		if now := epoch(); now != before {
			t.Fatalf("the epoch has changed from %d to %d", before, now)
		}
	}
}

// If a queue is paused, the ticket of a task with a permit can wait in the AMQP queue for the whole pause. Another task
// then gets the permit.
func TestAPausedQueueKeepsNoPermit(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	by := store.Actor{Name: "anna", Surface: store.CommandLine}
	worker, tickets := registerWorker(t, s), insert(t, s, 2)
	change(t, s, "update tasks set queue = 'mail' where id = "+tickets[0].Task.String())
	limit, err := s.SetLimit(t.Context(), by, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "t"}}, Concurrency: 1}.Change())
	if err == nil {
		err = s.Block(t.Context(), limit.After.ID, tickets)
	}
	if err != nil {
		t.Fatal(err)
	}
	give := func(when string, want int) {
		t.Helper()
		if released, err := s.ReleaseBlocked(t.Context(), 10); err != nil || released.Tasks != want {
			t.Fatalf("%s: %d tasks get permits, %v; want %d", when, released.Tasks, err, want)
		}
	}
	give("at first", 1)
	if _, err := s.Pause(t.Context(), by, store.PauseFor(store.Subject{Queue: "mail"}, 0)); err != nil {
		t.Fatal(err)
	}
	give("at the begin of the pause", 0) // a claim may still be in progress
	change(t, s, "update gates set closed_at = closed_at - interval '1 minute'")
	release(t, s, 1) // the sweep over all permits finds it
	if _, err := s.Resume(t.Context(), by, store.Subject{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Blocked || claims[1].Verdict != store.Claimed {
		t.Errorf("the claims are %+v, %v; want the first one blocked at the limit", claims, err)
	}
}

// expire stores pauses of n keys whose time has passed.
func expire(t *testing.T, s *postgres.Store, n int) {
	t.Helper()
	change(t, s, `insert into gates (kind, key, actor, surface, until, closed_at)
		select 'pause', 'tenant ' || n, 'anna', 'cli', now(), now() from generate_series(1, $1) n`, n)
}

// Many pauses end together. Each transaction opens a limited number, so people and workers need not wait for all.
func TestPausesThatEndTogetherLetOthersIn(t *testing.T) {
	t.Parallel()
	s, others := pgtest.Open(t), 0
	const pauses = 3000
	expire(t, s, pauses)
	opened := make(chan error, 1)
	go func() {
		for released := (store.Released{}); released.Next >= 0; {
			var err error
			if released, err = s.ReleaseBlocked(t.Context(), 100); err != nil {
				opened <- err
				return
			}
		}
		opened <- nil
	}()
	var err error
	for ended := false; !ended; others++ {
		select {
		case err = <-opened:
			ended = true
		default:
		}
		if err == nil {
			_, err = s.Pause(t.Context(), anna, store.PauseFor(store.Subject{Key: fmt.Sprint("other ", others)}, 0))
		}
		if err == nil {
			_, err = s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "new"}, time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	gates, err := s.Gates(t.Context())
	if err != nil || len(gates) != others {
		t.Errorf("%d gates are closed, %v; want %d", len(gates), err, others)
	}
	var all, most int
	err = pgtest.Admin(t).QueryRow(`select sum(n), max(n) from (
		select count(*) as n from `+s.Schema()+`.audit where action = 'resume' group by at) steps`).Scan(&all, &most)
	if err != nil || all != pauses || most > store.OpenStep {
		t.Errorf("%d gates are open, at most %d of one transaction, %v; want %d, at most %d", all, most, err, pauses, store.OpenStep)
	}
	var left int
	eventually(t, "the open gates are deleted", func() error {
		if _, err := s.ReleaseBlocked(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		err := pgtest.Admin(t).QueryRow("select count(*) from " + s.Schema() + ".gates where lifted_at is not null").Scan(&left)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d are left", left)
		}
		return err
	})
}

// While another process changes the gates, a janitor does not wait to open gates. It comes back soon.
func TestOpeningGatesWaitsForNoOtherChange(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	expire(t, s, 1)
	other, err := callersDB(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	if _, err := other.Exec(s.Text("gates_change")); err != nil {
		t.Fatal(err)
	}
	if released, err := s.ReleaseBlocked(t.Context(), 10); err != nil || released.Next < 0 {
		t.Fatalf("during another change: %+v, %v; want another call soon", released, err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if released, err := s.ReleaseBlocked(t.Context(), 10); err != nil || released.Next >= 0 {
		t.Errorf("after the other change: %+v, %v; want no other call", released, err)
	}
}

// If a janitor cannot open gates, it still gives permits and starts the next tasks of keys.
func TestAFailedStepDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	registerWorker(t, s)
	tickets := insert(t, s, 1)
	limit, err := s.SetLimit(t.Context(), anna, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "t"}}, Concurrency: 1}.Change())
	if err == nil {
		err = s.Block(t.Context(), limit.After.ID, tickets)
	}
	if err != nil {
		t.Fatal(err)
	}
	expire(t, s, 1)
	change(t, s, `create function refuse() returns trigger language plpgsql as $$ begin raise 'gates are broken'; end $$;
		create trigger refuse before update on gates for each row when (new.kind = 'pause') execute function refuse()`)
	if released, err := s.ReleaseBlocked(t.Context(), 10); err == nil || released.Tasks != 1 {
		t.Errorf("a call that cannot open gates: %+v, %v; want 1 task and an error", released, err)
	}
}

// If a limit of many keys is removed, each transaction deletes a limited number of its buckets. The gate remains until
// the last one is deleted.
func TestARemovedLimitIsDeletedInSteps(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	limit, err := s.SetLimit(t.Context(), anna, store.Limit{Scope: store.Scope{Per: store.PerKey}, Concurrency: 1}.Change())
	if err != nil {
		t.Fatal(err)
	}
	const buckets = 2*store.MaxOpened + 1
	change(t, s, "insert into buckets (gate_id, bucket, next_at) select $1, 'k' || n, '9999-01-01 00:00:00+00' from generate_series(1, $2) n", int64(limit.After.ID), buckets)
	if _, err := s.UnsetLimit(t.Context(), anna, limit.After.Scope); err != nil {
		t.Fatal(err)
	}
	for last := buckets; ; {
		if _, err := s.ReleaseBlocked(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		var gates, left int
		err := pgtest.Admin(t).QueryRow("select (select count(*) from "+s.Schema()+".gates), (select count(*) from "+s.Schema()+".buckets)").Scan(&gates, &left)
		switch {
		case err != nil || last-left > store.MaxOpened || left > 0 && gates == 0:
			t.Fatalf("%d buckets of %d and %d gates are left, %v", left, last, gates, err)
		case left == 0 && gates == 0:
			return
		}
		last = left
	}
}

// After the clock was set back, each transaction that corrects buckets changes a limited number of them, because it
// locks the gates.
func TestBucketsAreCorrectedInSteps(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	const buckets, step = 2500, 1000
	change(t, s, `insert into buckets (gate_id, bucket, next_at) select 1, 'k' || n, now() + interval '1 hour' from generate_series(1, $1) n`, buckets)
	change(t, s, "insert into turns (duty, taken_at) values ('clock', now() + interval '1 hour')")
	if setBack, err := s.CorrectTimes(t.Context()); err != nil || !setBack {
		t.Fatalf("the clock was set back: %t, %v", setBack, err)
	}
	var due, most int
	err := pgtest.Admin(t).QueryRow(`select sum(n), max(n) from (
		select count(*) as n from `+s.Schema()+`.buckets where next_at <= now() group by next_at) steps`).Scan(&due, &most)
	if err != nil || due != buckets || most > step {
		t.Errorf("%d buckets are due, at most %d of one transaction, %v; want %d, at most %d", due, most, err, buckets, step)
	}
}
