package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/netfault"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func parse(t *testing.T, address string) *url.URL {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Skip("DATABASE_URL is not a URL: ", err)
	}
	return parsed
}

// behindProxy returns a store whose connections lead through a proxy.
func behindProxy(t *testing.T) (*postgres.Store, *netfault.Proxy) {
	t.Helper()
	address, name := pgtest.Schema(t)
	parsed := parse(t, address)
	proxy, err := netfault.New(parsed.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	parsed.Host = proxy.Addr()
	return pgtest.Connect(t, postgres.Options{URL: parsed.String(), Schema: name}), proxy
}

func registerWorker(t *testing.T, s *postgres.Store) holdfast.WorkerID {
	t.Helper()
	worker, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "worker", Concurrency: 4}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return worker
}

func insert(t *testing.T, s *postgres.Store, n int) []message.Ticket {
	t.Helper()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3}
	}
	inserted, err := s.Insert(t.Context(), tasks, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return inserted.Entries[0].Tickets
}

// A renewal must not wait for a lost answer, because the lease continues to run.
func TestCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t)
	worker, tickets := registerWorker(t, s), insert(t, s, 3)
	calls := map[string]func(context.Context) error{
		"renew": func(ctx context.Context) error {
			_, err := s.Renew(ctx, store.Renewal{Worker: worker, Lease: time.Hour})
			return err
		},
		"claim": func(ctx context.Context) error {
			_, err := s.Claim(ctx, worker, store.AnyOf("t"), tickets, store.IntoExecutors)
			return err
		},
		"dispatch": func(ctx context.Context) error {
			_, err := s.DispatchDue(ctx, store.Queues{}, 10, func(context.Context, []store.Due) []bool { return nil })
			return err
		},
		"migrate": func(ctx context.Context) error {
			_, err := s.MigrateUp(ctx)
			return err
		},
	}
	if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for name, fault := range map[string]func(){"nothing passes": proxy.Cut, "no answer passes": proxy.CutReplies} {
		fault()
		for call, f := range calls {
			for range 2 { // over an open connection, then over a new one
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				began := time.Now()
				err := f(ctx)
				cancel()
				if took := time.Since(began); took > slow.Times(10*time.Second) {
					t.Errorf("%s: %s returned after %s", name, call, took)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, holdfast.ErrUnavailable) {
					t.Errorf("%s: %s: %v", name, call, err)
				}
			}
		}
		proxy.Heal()
	}
	proxy.CutAbrupt()
	for call, f := range calls {
		if call != "dispatch" {
			eventually(t, call+" works again", func() error { return f(t.Context()) })
		}
	}
}

// eventually calls f until it succeeds. After slow.Patience the test fails.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	tick, late := time.NewTicker(5*time.Millisecond), time.After(slow.Patience())
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("timeout: %s: %v", what, err)
		}
	}
}

// If the answer to an insert is lost, the server may have committed the insert. If the store sent it again, it could
// store the tasks twice.
func TestLostAnswerIsNotRepeated(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t)
	insert(t, s, 1)
	proxy.CutReplies()
	failed := make(chan error, 1)
	go func() {
		_, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "lost", Queue: holdfast.DefaultQueue, MaxAttempts: 1}}, 0)
		failed <- err
	}()
	count := func() (n int64) {
		direct := pgtest.Admin(t)
		if err := direct.QueryRow("select count(*) from " + s.Schema() + ".tasks where type = 'lost'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, "the insert arrives", func() error {
		if count() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	proxy.CutAbrupt()
	proxy.Heal()
	if err := <-failed; !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("got %v, want an ErrUnavailable", err)
	}
	if n := count(); n != 1 {
		t.Errorf("the task was stored %d times", n)
	}
}

// If the answer to a claim or a renewal is lost, a second call returns it.
func TestLostAnswerIsGivenAgain(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t)
	worker, tickets := registerWorker(t, s), insert(t, s, 2)
	lose := func(f func(context.Context) error) {
		proxy.CutReplies()
		ctx, cancel := context.WithTimeout(t.Context(), slow.Times(300*time.Millisecond)) // the call must arrive
		defer cancel()
		if err := f(ctx); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("with its answer cut off: %v", err)
		}
		proxy.CutAbrupt()
		proxy.Heal()
	}
	renew := func(ctx context.Context) ([]message.Ticket, error) {
		result, err := s.Renew(ctx, store.Renewal{Worker: worker, Lease: time.Hour})
		return result.Cancelled, err
	}
	if _, err := renew(t.Context()); err != nil {
		t.Fatal(err)
	}

	lose(func(ctx context.Context) error {
		_, err := s.Claim(ctx, worker, store.AnyOf("t"), tickets, store.IntoExecutors)
		return err
	})
	claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed || claims[1].Verdict != store.Claimed {
		t.Fatalf("second claim: %+v, %v", claims, err)
	}

	move, err := holdfast.Settle(*claims[0].Task, holdfast.Requested(holdfast.EventCancel), claims[0].Now, holdfast.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	if accepted, err := s.Apply(t.Context(), []holdfast.Transition{move}); err != nil || !accepted[0] {
		t.Fatalf("cancelled: %v, %v", accepted, err)
	}
	lose(func(ctx context.Context) error { _, err := renew(ctx); return err })
	if cancelled, err := renew(t.Context()); err != nil || len(cancelled) != 1 || cancelled[0] != tickets[0] {
		t.Errorf("renewal after a lost answer returned cancelled %v, %v; want the cancelled task", cancelled, err)
	}
	if cancelled, err := renew(t.Context()); err != nil || len(cancelled) != 0 {
		t.Errorf("next renewal returned cancelled %v, %v; want none", cancelled, err)
	}
}

// A restart of the server closes every idle connection. No call must fail.
func TestIdleConnectionsMayEnd(t *testing.T) {
	t.Parallel()
	address, name := pgtest.Schema(t)
	parsed := parse(t, address)
	query := parsed.Query()
	query.Set("application_name", name)
	parsed.RawQuery = query.Encode()
	s := pgtest.Connect(t, postgres.Options{URL: parsed.String(), Schema: name})
	for range 5 {
		insert(t, s, 1)
		if _, err := pgtest.Admin(t).Exec("select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = $1", name); err != nil {
			t.Fatal(err)
		}
	}
}

// If a call waits too long for a lock, statement_timeout ends it.
func TestStatementTimeoutIsUnavailable(t *testing.T) {
	t.Parallel()
	address, name := pgtest.Schema(t)
	separator := "?"
	if strings.Contains(address, "?") {
		separator = "&"
	}
	limit := fmt.Sprint("statement_timeout=", slow.Times(200*time.Millisecond).Milliseconds())
	s := pgtest.Connect(t, postgres.Options{URL: address + separator + limit, Schema: name})
	ticket := insert(t, s, 1)[0]
	lock, err := pgtest.Admin(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	if _, err := lock.Exec("select from " + name + ".tasks for update"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), registerWorker(t, s), store.AnyOf("t"), []message.Ticket{ticket}, store.IntoExecutors); !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an ErrUnavailable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Workers(ctx, true); !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

// After a change of a table the server refuses prepared statements. The call prepares them again.
func TestPreparedStatementsOutliveAChangeOfTheSchema(t *testing.T) {
	t.Parallel()
	address, name := pgtest.Schema(t)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: name, MaxConns: 1})
	worker := registerWorker(t, s)
	claim := func() {
		t.Helper()
		inserted, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3}}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), inserted.Entries[0].Tickets, store.IntoExecutors)
		if err != nil || claims[0].Verdict != store.Claimed {
			t.Fatalf("got %+v, %v", claims, err)
		}
	}
	claim()
	if _, err := pgtest.Admin(t).Exec("alter table " + name + ".tasks alter column last_error type varchar(100)"); err != nil {
		t.Fatal(err)
	}
	claim()
}
