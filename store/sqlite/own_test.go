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

// own makes s the owner of the file, which must have no owner.
func own(t *testing.T, s *sqlite.Store) (release func() error) {
	t.Helper()
	release, err := s.Own()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = release() })
	return release
}

// ownConflict checks that Own fails, and that the error names the owner of the file.
func ownConflict(t *testing.T, s *sqlite.Store, owner string) {
	t.Helper()
	release, err := s.Own()
	if err == nil {
		_ = release()
		t.Fatal("two stores own the file")
	}
	if !strings.Contains(holdfast.HintOf(err).Arg, "stop") {
		t.Errorf("the hint is %+v", holdfast.HintOf(err))
	}
	for _, want := range []string{s.Path(), owner} {
		if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want an ErrConflict that names %q", err, want)
		}
	}
}

func checkServed(t *testing.T, s *sqlite.Store, want bool) {
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
	checkServed(t, second, false)
	release := own(t, first)
	pid := fmt.Sprintf("pid %d", os.Getpid())
	ownConflict(t, second, pid)
	ownConflict(t, first, pid)
	checkServed(t, first, true)
	checkServed(t, second, true)
	for range 2 {
		if err := release(); err != nil {
			t.Error(err)
		}
	}
	checkServed(t, second, false)
	own(t, second)
	ownConflict(t, first, pid)
}

func TestOwnIsForOneProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := openAt(t, path)
	p := start(t, "own", path)
	worker := holdfast.WorkerID(parse(t, p.expect("owned")[0]))
	checkServed(t, s, true)
	ownConflict(t, s, fmt.Sprintf("pid %d", p.cmd.Process.Pid))
	refused := start(t, "own", path)
	if line, _ := refused.line(); !strings.Contains(line, fmt.Sprintf("pid %d", p.cmd.Process.Pid)) {
		t.Errorf("the other process wrote %q", line)
	}

	// The kernel releases the lock of a killed process. The next owner gets the tasks and turns of that process at
	// once.
	tickets := insert(t, s, 2)
	claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		t.Fatalf("%+v, %v", claims, err)
	}
	if mine, err := s.Turn(t.Context(), "duty", time.Hour); err != nil || !mine {
		t.Fatal(err)
	}
	p.kill()
	own(t, s)
	states, err := s.WorkerStates(t.Context(), []holdfast.WorkerID{worker})
	if err != nil || states[worker].State != store.WorkerDead {
		t.Errorf("the worker of the killed process is %+v, %v", states, err)
	}
	if workers, err := s.Workers(t.Context(), true); err != nil || workers[0].EndedAt.IsZero() {
		t.Errorf("the workers are %+v, %v", workers, err)
	}
	if abandoned, err := s.Abandoned(t.Context(), 0, 10); err != nil || len(abandoned) != 2 {
		t.Errorf("abandoned tasks: %v, %v", abandoned, err)
	}
	if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("renewed: %v", err)
	}
	if mine, err := s.Turn(t.Context(), "duty", time.Hour); err != nil || !mine {
		t.Errorf("the turn of the killed process is not available: %t, %v", mine, err)
	}
}

func TestOwnNeedsTables(t *testing.T) {
	t.Parallel()
	s := connect(t, filepath.Join(t.TempDir(), "jobs.db"))
	if _, err := s.Own(); !errors.Is(err, store.ErrSchema) {
		t.Errorf("got %v, want an ErrSchema", err)
	}
	checkServed(t, s, false)
}
