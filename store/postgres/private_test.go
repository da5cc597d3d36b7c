package postgres_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// privateServer starts a PostgreSQL server for this test only. It returns the URL of the server, and a function that
// calls scripts/private-postgres for it.
func privateServer(t *testing.T) (address string, script func(args ...string) string) {
	t.Helper()
	pgtest.URL(t) // skips the test if no server is configured
	slow.Skip(t)
	address, script, installed := private(t, "private-postgres")
	if !installed {
		t.Skip("PostgreSQL is not installed, so there is no private one")
	}
	return address, script
}

// private starts a private server with a program of scripts/. The settings are environment variables of the program.
// private returns the URL of the server, and a function that calls the program. installed is false if the server is not
// installed.
func private(t *testing.T, program string, settings ...string) (address string, script func(args ...string) string, installed bool) {
	t.Helper()
	path, err := filepath.Abs("../../scripts/" + program)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "holdfast-"+program+"-")
	if err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) (string, error) {
		cmd := exec.Command(path, args...)
		cmd.Env = append(append(os.Environ(), "RUN="+folder), settings...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = errors.Join(err, errors.New(stderr.String()))
		}
		return strings.TrimSpace(string(out)), err
	}
	t.Cleanup(func() {
		if _, err := call("wipe"); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(folder)
	})
	address, err = call("up")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 3 {
		t.Logf("%s: %v", program, err)
		return "", nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	return address, func(args ...string) string {
		t.Helper()
		out, err := call(args...)
		if err != nil {
			t.Fatalf("%s %s: %v", program, strings.Join(args, " "), err)
		}
		return out
	}, true
}

// When the server stops, all presence locks end, even those of live workers. FenceMissing fences none of these workers
// before they have reported the end in a renewal.
func TestPresenceAndItsServer(t *testing.T) {
	t.Parallel()
	address, script := privateServer(t)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: "presence"})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	worker := registerWorker(t, s)
	for name, stop := range map[string]func(){
		"a restart": func() { script("restart") },
		"a crash":   func() { script("kill"); script("up") },
	} {
		gone, release, err := s.Acquire(t.Context(), worker)
		if err != nil {
			t.Fatalf("before %s: %v", name, err)
		}
		renewPresent(t, s, worker, true)
		checkMissing(t, s, "before "+name)
		stop()
		checkGone(t, gone)
		waitMissing(t, s, worker)
		missing, err := s.Missing(t.Context())
		now, nowErr := s.Now(t.Context())
		if err := errors.Join(err, nowErr); err != nil {
			t.Fatal(err)
		}
		if fenced, err := s.FenceMissing(t.Context(), missing[0], now, time.Hour); err != nil || fenced {
			t.Errorf("after %s: fenced %t, %v", name, fenced, err)
		}
		renewPresent(t, s, worker, false)
		checkMissing(t, s, "after a renewal that said not present")
		release()
	}
	// The server reports a change of this setting to its clients, but not in an idle session.
	gone, release := acquire(t, s, worker)
	script("psql", "-c", "alter system set intervalstyle = 'iso_8601'", "-c", "select pg_reload_conf()")
	eventually(t, "the configuration is reloaded", func() error {
		if script("psql", "-At", "-c", "show intervalstyle") != "iso_8601" {
			return errors.New("not yet")
		}
		return nil
	})
	checkPresent(t, "after the reload", gone)
	checkWaiters(t, s, worker, script)
	checkGone(t, gone)
	release()
}

// checkWaiters stops the server while a call waits for the presence lock of the worker.
func checkWaiters(t *testing.T, s *postgres.Store, worker holdfast.WorkerID, script func(...string) string) {
	t.Helper()
	waiting := make(chan error, 1)
	go func() {
		_, _, err := s.Acquire(t.Context(), worker)
		waiting <- err
	}()
	eventually(t, "the call waits", func() error {
		if script("psql", "-At", "-c", "select count(*) from pg_stat_activity where wait_event = 'advisory'") != "1" {
			return errors.New("not yet")
		}
		return nil
	})
	script("down")
	if err := <-waiting; !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("the waiting call returned %v, want an ErrUnavailable", err)
	}
	if _, _, err := s.Acquire(t.Context(), worker); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("Acquire without a server: %v", err)
	}
}
