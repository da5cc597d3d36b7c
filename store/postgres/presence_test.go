package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// A test that kills a process starts this binary with these environment variables. The process then acquires the
// presence lock of the worker in the schema, and keeps it until the process is killed.
const (
	workerVariable = "HOLDFAST_TEST_WORKER"
	schemaVariable = "HOLDFAST_TEST_SCHEMA"
)

func TestMain(m *testing.M) {
	if worker := os.Getenv(workerVariable); worker != "" {
		if err := keepPresence(worker, os.Getenv(schemaVariable)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	slow.Checks(15, 100)
	pgtest.Main(m)
}

// keepPresence is the main function of a process that holds a presence lock.
func keepPresence(worker, schema string) error {
	id, err := strconv.ParseInt(worker, 10, 64)
	if err != nil {
		return err
	}
	s, err := postgres.Open(context.Background(), postgres.Options{URL: os.Getenv("DATABASE_URL"), Schema: schema})
	if err != nil {
		return err
	}
	_, release, err := s.Acquire(context.Background(), holdfast.WorkerID(id))
	if err != nil {
		return err
	}
	defer release()
	fmt.Println("present")
	_, err = io.Copy(io.Discard, os.Stdin) // returns when the parent ends
	return err
}

// startPresent starts a process that holds the presence lock of the worker. kill kills the process.
func startPresent(t *testing.T, s *postgres.Store, worker holdfast.WorkerID) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerVariable+"="+worker.String(), schemaVariable+"="+s.Schema(), "DATABASE_URL="+pgtest.URL(t))
	cmd.Stderr = os.Stderr
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := cmd.StdinPipe()
	must(err)
	stdout, err := cmd.StdoutPipe()
	must(err)
	must(cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if lines := bufio.NewScanner(stdout); !lines.Scan() || lines.Text() != "present" {
		t.Fatalf("the process printed %q", lines.Text())
	}
	return func() { must(cmd.Process.Kill()) }
}

// acquire acquires the presence of the worker, and releases it when the test ends.
func acquire(t *testing.T, s *postgres.Store, worker holdfast.WorkerID) (gone <-chan struct{}, release func()) {
	t.Helper()
	gone, release, err := s.Acquire(t.Context(), worker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return gone, release
}

func renewPresent(t *testing.T, s *postgres.Store, worker holdfast.WorkerID, present bool) {
	t.Helper()
	if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour, Present: present}); err != nil {
		t.Fatal(err)
	}
}

func checkMissing(t *testing.T, s *postgres.Store, when string, want ...holdfast.WorkerID) {
	t.Helper()
	missing, err := s.Missing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := workersOf(missing); !slices.Equal(got, want) {
		t.Errorf("%s: missing workers are %v, want %v", when, got, want)
	}
}

func workersOf(missing []presence.MissingWorker) (workers []holdfast.WorkerID) {
	for _, m := range missing {
		workers = append(workers, m.Worker)
	}
	return workers
}

func waitMissing(t *testing.T, s *postgres.Store, worker holdfast.WorkerID) {
	t.Helper()
	eventually(t, "the worker is missing", func() error {
		missing, err := s.Missing(t.Context())
		if err == nil && !slices.Contains(workersOf(missing), worker) {
			err = errors.New("not yet")
		}
		return err
	})
}

func checkGone(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-time.After(slow.Patience()):
		t.Fatal("gone was not closed")
	}
}

func checkPresent(t *testing.T, when string, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
		t.Errorf("%s: gone was closed", when)
	default:
	}
}

// A worker is missing as soon as its process is killed. It can be fenced, and another session can acquire its presence.
func TestPresenceOfAKilledProcess(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	for range 5 {
		worker := registerWorker(t, s)
		kill := startPresent(t, s, worker)
		renewPresent(t, s, worker, true)
		checkMissing(t, s, "while the process lives")
		kill()
		began := time.Now()
		waitMissing(t, s, worker)
		took := time.Since(began)
		t.Logf("missing %s after kill -9", took.Round(time.Millisecond))
		if most := slow.Times(5 * time.Second); took > most {
			t.Errorf("the worker was missing %s after the kill, want at most %s", took, most)
		}
		missing, err := s.Missing(t.Context())
		now, nowErr := s.Now(t.Context())
		if err := errors.Join(err, nowErr); err != nil {
			t.Fatal(err)
		}
		if fenced, err := s.FenceMissing(t.Context(), missing[0], now, 0); err != nil || !fenced {
			t.Errorf("fenced: %t, %v", fenced, err)
		}
		acquire(t, s, worker)
	}
}

// If the network drops all packets, the session does not end soon. Then the renewals decide whether the worker is
// present.
func TestPresenceInASilentCut(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t)
	direct := pgtest.Connect(t, postgres.Options{URL: pgtest.URL(t), Schema: s.Schema()})
	worker := registerWorker(t, s)
	gone, release := acquire(t, s, worker)
	renewPresent(t, s, worker, true)
	proxy.Cut()
	checkMissing(t, direct, "after the cut")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, _, err := s.Acquire(ctx, worker+1); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("Acquire without a network: %v", err)
	}
	release()
	if took := time.Since(began); took > slow.Times(4*time.Second) {
		t.Errorf("a failed Acquire and a release took %s", took)
	}
	checkPresent(t, "after the release", gone)
	checkMissing(t, direct, "after a release that the server does not know")
	renewPresent(t, direct, worker, false)
	proxy.Heal()
	eventually(t, "the server knows of the release", func() error {
		renewPresent(t, direct, worker, true)
		defer renewPresent(t, direct, worker, false)
		missing, err := direct.Missing(t.Context())
		if err == nil && len(missing) == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	checkMissing(t, direct, "after a renewal that said not present")
}

// The sessions of presence locks may be idle, and wait, for weeks.
func TestPresenceHasNoTimeLimits(t *testing.T) {
	t.Parallel()
	short := slow.Times(100 * time.Millisecond)
	limited := func(address string) string { // older servers lack some of these settings
		return fmt.Sprintf("%s&statement_timeout=%d&lock_timeout=%[2]d&idle_session_timeout=%[2]d", address, short.Milliseconds())
	}
	address, name := pgtest.Schema(t)
	var version int
	if err := pgtest.Admin(t).QueryRow("select current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version < 140000 || !strings.Contains(address, "?") {
		t.Skip("this server has no limit for idle sessions, or DATABASE_URL has another form")
	}
	s := pgtest.Connect(t, postgres.Options{URL: limited(address) + "&application_name=" + name, Schema: name})
	registerWorker(t, s) // the first session gets its settings when it is used
	gone, _ := acquire(t, s, 1)
	eventually(t, "idle sessions end", func() error {
		var n int
		if err := pgtest.Admin(t).QueryRow("select count(*) from pg_stat_activity where application_name = $1", name).Scan(&n); err != nil {
			return err
		}
		if n > 1 {
			return errors.New("not yet")
		}
		return nil
	})
	checkPresent(t, "in an idle session", gone)
	ctx, cancel := context.WithTimeout(t.Context(), 5*short)
	defer cancel()
	if _, _, err := s.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("Acquire returned %v while another session holds the lock", err)
	}
}

// Presence locks take no connections from the pool, and the schemas of one database do not conflict.
func TestSchemasDoNotSharePresence(t *testing.T) {
	t.Parallel()
	s, other := named(t, postgres.Options{MaxConns: 1}), pgtest.Open(t)
	for range 30 {
		acquire(t, s, registerWorker(t, s))
		renewPresent(t, other, registerWorker(t, other), true)
	}
	insert(t, s, 1)
	if missing, err := other.Missing(t.Context()); err != nil || len(missing) != 30 {
		t.Errorf("missing workers are %v, %v; want 30", workersOf(missing), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all sessions end", func() error {
		var n int
		if err := pgtest.Admin(t).QueryRow("select count(*) from pg_stat_activity where application_name = $1", s.Schema()).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%d sessions are left", n)
		}
		return nil
	})
}

// The store splits the wait for a lock into short statements. While a statement waits, VACUUM cannot remove rows that
// died since its start.
func TestWaitingForALockHoldsBackNoVacuum(t *testing.T) {
	t.Parallel()
	slow.Skip(t) // takes ten seconds
	s := named(t, postgres.Options{})
	_, release, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	watching := make(chan error, 1)
	go func() {
		_, release, err := s.Watch(t.Context())
		if err == nil {
			release()
		}
		watching <- err
	}()
	since := func() (since string) {
		const waits = "select query_start::text from pg_stat_activity where application_name = $1 and wait_event = 'advisory'"
		eventually(t, "a session waits", func() error { return pgtest.Admin(t).QueryRow(waits, s.Schema()).Scan(&since) })
		return since
	}
	first := since()
	eventually(t, "a new statement waits", func() error {
		if since() == first {
			return errors.New("not yet")
		}
		return nil
	})
	release()
	if err := <-watching; err != nil {
		t.Error(err)
	}
}

// Janitors call Missing many times a second, and reading the locks blocks other sessions. So Missing reads them at most
// once.
func TestMissingReadsTheLocksOnceIfAtAll(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	plan := func() string {
		var lines []string
		rows, err := pgtest.Admin(t).Query("explain (analyze, costs off, timing off) " + s.Text("missing"))
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, "\n")
	}
	locks := func(want string) {
		t.Helper()
		_, line, found := strings.Cut(plan(), "Function Scan on pg_lock_status")
		line, _, _ = strings.Cut(line, "\n")
		if !found || !strings.Contains(line, want) {
			t.Errorf("reading the locks: the plan does not contain %q:\n%s", want, plan())
		}
	}
	registerWorker(t, s)
	locks("(never executed)")
	for range 30 {
		worker := registerWorker(t, s)
		acquire(t, s, worker)
		renewPresent(t, s, worker, true)
	}
	locks("loops=1)")
}
