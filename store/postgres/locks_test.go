package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// named returns a store whose connections have the name of its schema as application_name.
func named(t *testing.T, o postgres.Options) *postgres.Store {
	t.Helper()
	address, name := pgtest.Schema(t)
	parsed := parse(t, address)
	query := parsed.Query()
	query.Set("application_name", name)
	parsed.RawQuery = query.Encode()
	o.URL, o.Schema = parsed.String(), name
	return pgtest.Connect(t, o)
}

// waiting returns the number of statements that wait for a lock, on connections of a store that named has opened.
func waiting(t *testing.T, s *postgres.Store) (n int) {
	t.Helper()
	err := pgtest.Admin(t).QueryRow("select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'", s.Schema()).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// DeregisterWorker waits for claims in progress. Otherwise a claim could commit after a janitor has searched for the
// tasks of the worker.
func TestDeregisterWorkerWaitsForClaims(t *testing.T) {
	t.Parallel()
	s := named(t, postgres.Options{})
	worker, tickets := registerWorker(t, s), insert(t, s, 1)
	lock, err := callersDB(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	if _, err := lock.Exec("select from " + s.Schema() + ".tasks for update"); err != nil {
		t.Fatal(err)
	}
	claimed, deregistered := make(chan error, 1), make(chan error, 1)
	go func() {
		claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets, store.IntoExecutors)
		if err == nil && claims[0].Verdict != store.Claimed {
			err = fmt.Errorf("the verdict is %d", claims[0].Verdict)
		}
		claimed <- err
	}()
	waits := func(n int) func() error {
		return func() error {
			if waiting(t, s) < n {
				return errors.New("not yet")
			}
			return nil
		}
	}
	eventually(t, "the claim waits", waits(1))
	go func() { deregistered <- s.DeregisterWorker(t.Context(), worker, false) }()
	eventually(t, "DeregisterWorker waits for the claim", func() error {
		if len(deregistered) > 0 {
			t.Fatal("the worker was deregistered while its claim was in progress")
		}
		return waits(2)()
	})
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-claimed, <-deregistered); err != nil {
		t.Fatal(err)
	}
	if tasks, err := s.Abandoned(t.Context(), 0, 10); err != nil || len(tasks) != 1 {
		t.Errorf("abandoned tasks: %v, %v; want one", tasks, err)
	}
}

// When the pool is busy, no lease may expire and the store must still be reachable.
func TestLeasesHaveConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := named(t, postgres.Options{MaxConns: 1})
	worker := registerWorker(t, s)
	if _, err := s.UnticketQueue(t.Context(), holdfast.DefaultQueue); err != nil {
		t.Fatal(err)
	}
	tickets := insert(t, s, 1)
	if _, err := s.Unticket(t.Context(), tickets); err != nil {
		t.Fatal(err)
	}
	_, err := s.DispatchDue(t.Context(), store.Queues{}, 1, func(_ context.Context, due []store.Due) []bool { // uses the only connection
		ctx, cancel := context.WithTimeout(t.Context(), slow.Times(5*time.Second))
		defer cancel()
		now, err := s.Now(ctx)
		if err != nil {
			t.Errorf("the time: %v", err)
		}
		if _, err := s.Renew(ctx, store.Renewal{Worker: worker, Lease: time.Hour}); err != nil {
			t.Errorf("renew: %v", err)
		}
		if _, err := s.Fence(ctx, now, 0, 0); err != nil {
			t.Errorf("fence: %v", err)
		}
		if err := s.DeregisterWorker(ctx, worker, false); err != nil {
			t.Errorf("deregister: %v", err)
		}
		return slices.Repeat([]bool{true}, len(due))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// If a dispatcher is frozen while it publishes, other dispatchers get its rows after publishLimit.
func TestFrozenDispatchersLetGo(t *testing.T) {
	t.Parallel()
	slow.Skip(t) // takes eleven seconds
	s := pgtest.Open(t)
	tickets := insert(t, s, 2)
	change(t, s, "update outbox set publish_after = now()")
	if _, err := s.Unticket(t.Context(), tickets); err != nil {
		t.Fatal(err)
	}
	thaw, frozen := make(chan struct{}), make(chan struct{}, 2)
	freeze := func(n int) []bool {
		frozen <- struct{}{}
		<-thaw
		return slices.Repeat([]bool{true}, n)
	}
	ended := make(chan error, 2)
	go func() {
		_, err := s.DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool { return freeze(len(due)) })
		ended <- err
	}()
	go func() {
		_, err := s.DispatchOutbox(t.Context(), store.Queues{}, 10, func(_ context.Context, r []store.OutboxEntry) []bool { return freeze(len(r)) })
		ended <- err
	}()
	<-frozen
	<-frozen
	began := time.Now()
	tasks, entries := 0, 0
	eventually(t, "other dispatchers get the tasks and the outbox entry", func() error {
		_, err := s.DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
			tasks = len(due)
			return slices.Repeat([]bool{true}, len(due))
		})
		if err == nil {
			_, err = s.DispatchOutbox(t.Context(), store.Queues{}, 10, func(_ context.Context, r []store.OutboxEntry) []bool {
				entries = len(r)
				return slices.Repeat([]bool{true}, len(r))
			})
		}
		if err == nil && (tasks != 2 || entries != 1) {
			err = errors.New("not yet")
		}
		return err
	})
	if took := time.Since(began); took < 9*time.Second {
		t.Errorf("the rows were unlocked after %s, while a dispatcher may still be publishing them", took)
	}
	close(thaw)
	for range 2 {
		if err := <-ended; !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("a frozen dispatcher returned %v, want an ErrUnavailable", err)
		}
	}
}
