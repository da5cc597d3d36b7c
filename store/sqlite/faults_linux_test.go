package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// mount mounts a file system in memory with the given options, and returns its folder.
func mount(t *testing.T, options string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, options); err != nil {
		t.Skipf("NOT TESTED: a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// If the disk is full, no accepted task is lost. When space is free again, the same call succeeds.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	folder := mount(t, "size=4m")
	s := openAt(t, filepath.Join(folder, "jobs.db"))
	worker := registerWorker(t, s)
	ballast := filepath.Join(folder, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	accepted := fill(t, s)
	if n := number(t, s, "select count(*) from tasks"); n != int64(accepted) {
		t.Errorf("the store accepted %d tasks and has %d", accepted, n)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	tickets := insert(t, s, 100)
	if _, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets, store.IntoExecutors); err != nil {
		t.Error(err)
	}
	if n := number(t, s, "select count(*) from tasks"); n != int64(accepted)+100 {
		t.Errorf("the store accepted %d tasks and has %d", accepted+100, n)
	}
	checkIntegrity(t, s)
}

// fill inserts tasks until the disk is full, and returns the number of accepted tasks.
func fill(t *testing.T, s *sqlite.Store) (accepted int) {
	t.Helper()
	for range 10_000 {
		_, err := s.Insert(t.Context(), newTasks(100), 0)
		if err == nil {
			accepted += 100
			continue
		}
		if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), s.Path()) || !strings.Contains(err.Error(), "full") {
			t.Errorf("on a full disk: %v", err)
		}
		for range 3 { // further calls must fail, too
			if _, err := s.Insert(t.Context(), newTasks(100), 0); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("on a full disk, a further call: %v", err)
			}
		}
		return accepted
	}
	t.Fatal("10,000 inserts did not fill the disk")
	return 0
}

func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	folder := mount(t, "size=16m")
	path := filepath.Join(folder, "jobs.db")
	first, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Create: true})
	if err == nil {
		_, err = first.MigrateUp(t.Context())
	}
	if err = errors.Join(err, first.Close()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skipf("NOT TESTED: a file system cannot be made read-only here: %v", err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err == nil {
		_, err = s.Insert(t.Context(), newTasks(1), 0)
		defer func() { _ = s.Close() }()
	}
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(holdfast.HintOf(err).Arg, "write") {
		t.Errorf("on a read-only file system: %v", err)
	}
	if _, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(folder, "new", "jobs.db"), Create: true}); err == nil || !strings.Contains(err.Error(), "new") {
		t.Errorf("a new file on a read-only file system: %v", err)
	}
}

// descriptors returns the number of open files of a database in this process.
func descriptors(t *testing.T, path string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("NOT TESTED: this system does not list open files: %v", err)
	}
	for _, entry := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && strings.HasPrefix(target, path) {
			n++
		}
	}
	return n
}

// The store closes all files of a connection that it replaces or closes.
func TestConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	s := open(t)
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = s.Fail(ctx)
		insert(t, s, 1)
		if _, err := s.Workers(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	if n := descriptors(t, s.Path()); n == 0 || n > 6*3+1 { // six connections with three files each, and the log
		t.Errorf("%d files are open", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := descriptors(t, s.Path()); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(s.Path() + suffix); err == nil {
			t.Errorf("%s is left behind", suffix)
		}
	}
}

// A container may mount a single file. Such a file has a write-ahead log at each of its paths.
func TestMountedFilesAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	inside := filepath.Join(t.TempDir(), "jobs.db")
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(s.Path(), inside, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("NOT TESTED: a file cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(inside, unix.MNT_DETACH) })
	if text := openError(t, inside, true, holdfast.ErrInvalid); !strings.Contains(text, "mount its folder instead") {
		t.Error(text)
	}
}
