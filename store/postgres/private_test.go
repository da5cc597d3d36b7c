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
	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// privateServer starts a PostgreSQL for this test alone. It returns its URL and how to call scripts/private-postgres for it.
func privateServer(t *testing.T) (address string, script func(args ...string) string) {
	t.Helper()
	pgtest.URL(t) // no servers wanted, no private ones either
	slow.Skip(t)
	address, script, installed := private(t, "private-postgres")
	if !installed {
		t.Skip("PostgreSQL is not installed, so there is no private one")
	}
	return address, script
}

// private starts a private server with a program of scripts/, which gets the settings as variables. It returns the URL of the
// server and how to call the program for it. installed is false if the software of the server is missing.
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

// When the server goes down all signs end, of those who live too. They say so, and nobody is fenced in the meantime.
func TestSignsAndTheirServer(t *testing.T) {
	t.Parallel()
	address, script := privateServer(t)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: "signs"})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	run := openRun(t, s)
	for name, inflict := range map[string]func(){
		"a restart": func() { script("restart") },
		"a crash":   func() { script("kill"); script("up") },
	} {
		gone, release, err := s.Show(t.Context(), run)
		if err != nil {
			t.Fatalf("before %s: %v", name, err)
		}
		renewShown(t, s, run, true)
		absentAre(t, s, "before "+name)
		inflict()
		ended(t, gone)
		becomesAbsent(t, s, run)
		absences, err := s.Absent(t.Context())
		now, nowErr := s.Now(t.Context())
		if err := errors.Join(err, nowErr); err != nil {
			t.Fatal(err)
		}
		if fenced, err := s.FenceAbsent(t.Context(), absences[0], now, time.Hour); err != nil || fenced {
			t.Errorf("after %s: fenced %t, %v", name, fenced, err)
		}
		renewShown(t, s, run, false)
		absentAre(t, s, "it says what happened")
		release()
	}
	// A server tells its clients of a setting like this one, but not in the middle of nothing.
	gone, release := show(t, s, run)
	script("psql", "-c", "alter system set intervalstyle = 'iso_8601'", "-c", "select pg_reload_conf()")
	eventually(t, "it is reloaded", func() error {
		if script("psql", "-At", "-c", "show intervalstyle") != "iso_8601" {
			return errors.New("not yet")
		}
		return nil
	})
	stays(t, "reloaded", gone)
	waitersAreTold(t, s, run, script)
	ended(t, gone)
	release()
}

// waitersAreTold stops the server under somebody who waits for the sign of the run.
func waitersAreTold(t *testing.T, s *postgres.Store, run holdfast.RunID, script func(...string) string) {
	t.Helper()
	waiting := make(chan error, 1)
	go func() {
		_, _, err := s.Show(t.Context(), run)
		waiting <- err
	}()
	eventually(t, "it waits", func() error {
		if script("psql", "-At", "-c", "select count(*) from pg_stat_activity where wait_event = 'advisory'") != "1" {
			return errors.New("not yet")
		}
		return nil
	})
	script("down")
	if err := <-waiting; !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("waiting ended with %v", err)
	}
	if _, _, err := s.Show(t.Context(), run); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
}
