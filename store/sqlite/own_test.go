package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// own takes the file, which must be free.
func own(t *testing.T, s *sqlite.Store) (release func() error) {
	t.Helper()
	release, err := s.Own()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = release() })
	return release
}

// refusedOwn checks that the file is taken, and that the error says by whom.
func refusedOwn(t *testing.T, s *sqlite.Store, who string) {
	t.Helper()
	release, err := s.Own()
	if err == nil {
		_ = release()
		t.Fatal("two own the file")
	}
	if !strings.Contains(holdfast.HintOf(err).Arg, "stop") {
		t.Errorf("the hint is %+v", holdfast.HintOf(err))
	}
	for _, want := range []string{s.Path(), who} {
		if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want an ErrConflict that names %q", err, want)
		}
	}
}

func served(t *testing.T, s *sqlite.Store, want bool) {
	t.Helper()
	if got, err := s.Served(); err != nil || got != want {
		t.Errorf("served: %t, %v; want %t", got, err, want)
	}
}

func TestOwnIsForOneStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	link := filepath.Join(t.TempDir(), "link.db")
	first := openAt(t, path)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	second := openAt(t, link)
	served(t, second, false)
	release := own(t, first)
	pid := fmt.Sprintf("pid %d", os.Getpid())
	refusedOwn(t, second, pid)
	refusedOwn(t, first, pid)
	served(t, first, true)
	served(t, second, true)
	for range 2 {
		if err := release(); err != nil {
			t.Error(err)
		}
	}
	served(t, second, false)
	own(t, second)
	refusedOwn(t, first, pid)
}

func TestOwnIsForOneProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := openAt(t, path)
	p := start(t, "own", path)
	run := holdfast.RunID(parse(t, p.said("owned")[0]))
	served(t, s, true)
	refusedOwn(t, s, fmt.Sprintf("pid %d", p.cmd.Process.Pid))
	refused := start(t, "own", path)
	if line, _ := refused.line(); !strings.Contains(line, fmt.Sprintf("pid %d", p.cmd.Process.Pid)) {
		t.Errorf("another process said %q", line)
	}

	// The kernel lets the lock go, and what the process had in hand is free at once.
	tickets := insert(t, s, 2)
	claims, err := s.Claim(t.Context(), run, store.AnyOf("t"), tickets, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		t.Fatalf("%+v, %v", claims, err)
	}
	if mine, err := s.Turn(t.Context(), "duty", time.Hour); err != nil || !mine {
		t.Fatal(err)
	}
	p.kill()
	own(t, s)
	states, err := s.RunStates(t.Context(), []holdfast.RunID{run})
	if err != nil || states[run].State != store.RunDead {
		t.Errorf("the run of the process that is gone is %+v, %v", states, err)
	}
	if runs, err := s.Runs(t.Context(), true); err != nil || runs[0].EndedAt.IsZero() {
		t.Errorf("the runs are %+v, %v", runs, err)
	}
	if abandoned, err := s.Abandoned(t.Context(), 0, 10); err != nil || len(abandoned) != 2 {
		t.Errorf("abandoned are %v, %v", abandoned, err)
	}
	if _, err := s.Renew(t.Context(), store.Renewal{Run: run, Lease: time.Hour}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("renewed: %v", err)
	}
	if mine, err := s.Turn(t.Context(), "duty", time.Hour); err != nil || !mine {
		t.Errorf("the turn of a process that is gone is not free: %t, %v", mine, err)
	}
}

func TestOwnNeedsTables(t *testing.T) {
	t.Parallel()
	s := connect(t, filepath.Join(t.TempDir(), "jobs.db"))
	if _, err := s.Own(); !errors.Is(err, store.ErrSchema) {
		t.Errorf("got %v, want an ErrSchema", err)
	}
	served(t, s, false)
}
