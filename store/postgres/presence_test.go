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

	"github.com/holdfastq/holdfast/presence"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// A test that kills a process starts this binary again, which then shows the sign of this run, in this schema, until it is
// killed.
const (
	signVariable   = "HOLDFAST_TEST_SIGN"
	schemaVariable = "HOLDFAST_TEST_SCHEMA"
)

func TestMain(m *testing.M) {
	if run := os.Getenv(signVariable); run != "" {
		if err := showForEver(run, os.Getenv(schemaVariable)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	slow.Checks(15, 100)
	m.Run()
}

// showForEver is the life of such a process.
func showForEver(run, schema string) error {
	id, err := strconv.ParseInt(run, 10, 64)
	if err != nil {
		return err
	}
	s, err := postgres.Open(context.Background(), postgres.Options{URL: os.Getenv("DATABASE_URL"), Schema: schema})
	if err != nil {
		return err
	}
	_, release, err := s.Show(context.Background(), holdfast.RunID(id))
	if err != nil {
		return err
	}
	defer release()
	fmt.Println("shown")
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent is gone
	return err
}

// startShowing returns once another process shows the sign of the run, and how to kill it.
func startShowing(t *testing.T, s *postgres.Store, run holdfast.RunID) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), signVariable+"="+run.String(), schemaVariable+"="+s.Schema(), "DATABASE_URL="+pgtest.URL(t))
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
	if lines := bufio.NewScanner(stdout); !lines.Scan() || lines.Text() != "shown" {
		t.Fatalf("the process said %q", lines.Text())
	}
	return func() { must(cmd.Process.Kill()) }
}

func show(t *testing.T, s *postgres.Store, run holdfast.RunID) (gone <-chan struct{}, release func()) {
	t.Helper()
	gone, release, err := s.Show(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return gone, release
}

func renewShown(t *testing.T, s *postgres.Store, run holdfast.RunID, shown bool) {
	t.Helper()
	if _, err := s.Renew(t.Context(), store.Renewal{Run: run, Lease: time.Hour, Shown: shown}); err != nil {
		t.Fatal(err)
	}
}

// absentAre checks which runs are absent.
func absentAre(t *testing.T, s *postgres.Store, when string, want ...holdfast.RunID) {
	t.Helper()
	absences, err := s.Absent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := runsOf(absences); !slices.Equal(got, want) {
		t.Errorf("%s: absent are %v, want %v", when, got, want)
	}
}

func runsOf(absences []presence.Absence) (runs []holdfast.RunID) {
	for _, a := range absences {
		runs = append(runs, a.Run)
	}
	return runs
}

// becomesAbsent waits until the run is absent.
func becomesAbsent(t *testing.T, s *postgres.Store, run holdfast.RunID) {
	t.Helper()
	eventually(t, "the run is absent", func() error {
		absences, err := s.Absent(t.Context())
		if err == nil && !slices.Contains(runsOf(absences), run) {
			err = errors.New("not yet")
		}
		return err
	})
}

func ended(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody says that the sign is gone")
	}
}

func stays(t *testing.T, when string, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
		t.Errorf("%s: the sign is gone", when)
	default:
	}
}

// What dies is missed at once, whoever waits for its sign gets it, and it can be fenced.
func TestSignOfAKilledProcess(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	for range 5 {
		run := openRun(t, s)
		kill := startShowing(t, s, run)
		renewShown(t, s, run, true)
		absentAre(t, s, "it lives")
		kill()
		began := time.Now()
		becomesAbsent(t, s, run)
		took := time.Since(began)
		t.Logf("absent %s after kill -9", took.Round(time.Millisecond))
		if took > 5*time.Second {
			t.Errorf("it was seen for %s more", took)
		}
		absences, err := s.Absent(t.Context())
		now, nowErr := s.Now(t.Context())
		if err := errors.Join(err, nowErr); err != nil {
			t.Fatal(err)
		}
		if fenced, err := s.FenceAbsent(t.Context(), absences[0], now, 0); err != nil || !fenced {
			t.Errorf("fenced: %t, %v", fenced, err)
		}
		show(t, s, run)
	}
}

// A network that swallows everything ends no session soon. What the process says in its renewals counts.
func TestSignInASilentCut(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t)
	direct := pgtest.Connect(t, postgres.Options{URL: pgtest.URL(t), Schema: s.Schema()})
	run := openRun(t, s)
	gone, release := show(t, s, run)
	renewShown(t, s, run, true)
	proxy.Cut()
	absentAre(t, direct, "cut")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, _, err := s.Show(ctx, run+1); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("shown into the dark: %v", err)
	}
	release()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("giving up and a release took %s", took)
	}
	stays(t, "released", gone)
	absentAre(t, direct, "released, which nobody knows")
	renewShown(t, direct, run, false)
	proxy.Heal()
	eventually(t, "the server knows of the release", func() error {
		renewShown(t, direct, run, true)
		defer renewShown(t, direct, run, false)
		absences, err := direct.Absent(t.Context())
		if err == nil && len(absences) == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	absentAre(t, direct, "its renewal said that nothing is shown")
}

// Idle for weeks, and waiting for as long, are what these sessions are for.
func TestSignsHaveNoTimeLimits(t *testing.T) {
	t.Parallel()
	limited := func(address string) string { // some of these are unknown to older servers
		return address + "&statement_timeout=100&lock_timeout=100&idle_session_timeout=100"
	}
	address, name := pgtest.Schema(t)
	var version int
	if err := pgtest.Admin(t).QueryRow("select current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version < 140000 || !strings.Contains(address, "?") {
		t.Skip("this server knows no limit for idle sessions, or its URL has another form")
	}
	s := pgtest.Connect(t, postgres.Options{URL: limited(address) + "&application_name=" + name, Schema: name})
	gone, _ := show(t, s, 1)
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
	stays(t, "idle", gone)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, _, err := s.Show(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("waiting ended with %v", err)
	}
}

// Signs take no connection from anybody, and schemas of one database do not meet.
func TestSignsAreKeptApart(t *testing.T) {
	t.Parallel()
	s, other := named(t, postgres.Options{MaxConns: 1}), pgtest.Open(t)
	for range 30 {
		show(t, s, openRun(t, s))
		renewShown(t, other, openRun(t, other), true)
	}
	insert(t, s, 1)
	if absences, err := other.Absent(t.Context()); err != nil || len(absences) != 30 {
		t.Errorf("absent are %v, %v", runsOf(absences), err)
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
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

// A statement that waits for weeks would keep VACUUM from every row that died meanwhile.
func TestWaitingForASignHoldsBackNoVacuum(t *testing.T) {
	t.Parallel()
	slow.Skip(t) // it takes ten seconds
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
		eventually(t, "somebody waits", func() error { return pgtest.Admin(t).QueryRow(waits, s.Schema()).Scan(&since) })
		return since
	}
	first := since()
	eventually(t, "it waits anew", func() error {
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

// Reading the locks stops all others for a moment, and Absent is asked many times a second.
func TestAbsentReadsTheLocksOnceIfAtAll(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	plan := func() string {
		var lines []string
		rows, err := pgtest.Admin(t).Query("explain (analyze, costs off, timing off) " + s.Text("absent"))
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
			t.Errorf("the locks are not read as %q:\n%s", want, plan())
		}
	}
	openRun(t, s)
	locks("(never executed)")
	for range 30 {
		run := openRun(t, s)
		show(t, s, run)
		renewShown(t, s, run, true)
	}
	locks("loops=1)")
}
