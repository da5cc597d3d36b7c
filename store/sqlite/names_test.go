//go:build unix

package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// openError opens a file that the store must refuse, and returns the text of the error.
func openError(t *testing.T, path string, create bool, kind error) string {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Create: create})
	if err == nil {
		_ = s.Close()
		t.Fatalf("%s was opened", path)
	}
	if !errors.Is(err, kind) {
		t.Errorf("got %v, want %v", err, kind)
	}
	return err.Error()
}

// With two names, a file would have two write-ahead logs and two locks. So the store refuses both names.
func TestHardLinksAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	insert(t, s, 1)
	second := filepath.Join(t.TempDir(), "other.db")
	if err := os.Link(s.Path(), second); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{s.Path(), second} {
		if text := openError(t, path, true, holdfast.ErrInvalid); !strings.Contains(text, "hard links") {
			t.Error(text)
		}
	}
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	if err := openAt(t, s.Path()).CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
}

// If the write-ahead log of a moved file remains, the store creates no new file there: SQLite would delete the log.
func TestOrphanedLogIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := openAt(t, path)
	insert(t, s, 5)
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if text := openError(t, path, true, holdfast.ErrConflict); !strings.Contains(text, "jobs.db-wal does") {
		t.Error(text)
	}
	if _, err := s.Insert(t.Context(), newTasks(1), 0); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("an insert into the moved file: %v", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if n := number(t, openAt(t, path), "select count(*) from tasks"); n != 5 {
		t.Errorf("the store has %d of 5 tasks", n)
	}
}

// If a process has lost its lock file to another process, it must not write.
func TestDeletedLockIsDetected(t *testing.T) {
	t.Parallel()
	first := open(t)
	release, err := first.Own()
	if err != nil {
		t.Fatal(err)
	}
	worker := registerWorker(t, first)
	if err := os.Remove(first.Path() + ".lock"); err != nil {
		t.Fatal(err)
	}
	second := openAt(t, first.Path())
	releaseSecond, err := second.Own()
	if err != nil {
		t.Fatal(err)
	}
	_, err = first.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour})
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), ".lock was deleted or replaced") {
		t.Errorf("a renewal without the lock: %v", err)
	}
	if _, err := second.Insert(t.Context(), newTasks(1), 0); err != nil {
		t.Error(err)
	}
	if err := errors.Join(release(), releaseSecond()); err != nil {
		t.Error(err)
	}
}
