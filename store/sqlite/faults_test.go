package sqlite_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// If a file reaches SQLite's own size limit, the error is that of a full disk. The limit belongs to one session.
func TestDatabaseFull(t *testing.T) {
	t.Parallel()
	s := open(t)
	stored := insert(t, s, 100)
	change(t, s, "pragma max_page_count = 1") // the smallest possible value is the current size
	_, err := s.Insert(t.Context(), newTasks(5000), 0)
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(holdfast.HintOf(err).Arg, "free space") {
		t.Errorf("at the limit: %v", err)
	}
	// After the error, the store has replaced the session.
	insert(t, s, 5000)
	if n := number(t, s, "select count(*) from tasks"); n != int64(len(stored))+5000 {
		t.Errorf("there are %d tasks", n)
	}
	checkIntegrity(t, s)
}

// closedFile returns the path of a closed database with tasks, without a write-ahead log.
func closedFile(t *testing.T, tasks int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "jobs.db")
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert(t, s, tasks)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// damage overwrites a part of a file with random bytes.
func damage(t *testing.T, path string, offset, size int64) {
	t.Helper()
	noise := make([]byte, size)
	_, _ = rand.Read(noise)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt(noise, offset)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// useFile opens the file, reads all tasks and inserts some.
func useFile(t *testing.T, path string) error {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Create: true})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := s.CheckSchema(t.Context()); err != nil {
		return err
	}
	if _, err = s.List(t.Context(), store.Filter{Limit: 1 << 20}); err != nil {
		return err
	}
	_, err = s.Insert(t.Context(), newTasks(2000), 0)
	return err
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(path string){
		"the header":       func(path string) { damage(t, path, 0, 100) },
		"the magic string": func(path string) { damage(t, path, 0, 16) },
		"the first page":   func(path string) { damage(t, path, 100, 3900) },
		"in the middle": func(path string) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			damage(t, path, 4096, info.Size()-8192)
		},
		"a text file": func(path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("# notes\n", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		path := closedFile(t, 3000)
		harm(path)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		err = useFile(t, path)
		if holdfast.HintOf(err) != (holdfast.Hint{Kind: holdfast.HintRestoreDatabase, Arg: path}) {
			t.Errorf("%s: the hint is %+v", name, holdfast.HintOf(err))
		}
		for _, want := range []string{path, "damaged"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an error that names %q", name, err, want)
			}
		}
		if errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("%s: the error claims that a second try may succeed: %v", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || len(after) < len(before) {
			t.Errorf("%s: the file was replaced: %d bytes, then %d, %v", name, len(before), len(after), err)
		}
	}
}

// If a crash has truncated the write-ahead log, whole transactions are lost, and no part of a transaction.
func TestTruncatedChanges(t *testing.T) {
	t.Parallel()
	s := open(t)
	for range 20 {
		insert(t, s, 100)
	}
	crashed := filepath.Join(t.TempDir(), "crashed.db")
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(s.Path() + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if suffix != "" {
			content = content[:len(content)-len(content)/3-17]
		}
		if err := os.WriteFile(crashed+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := connect(t, crashed)
	if err := other.CheckSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := number(t, other, "select count(*) from tasks"); n == 0 || n >= 2000 || n%100 != 0 {
		t.Errorf("%d tasks are left", n)
	}
	checkIntegrity(t, other)
	insert(t, other, 100)
}

// A backup during writes is a consistent snapshot of the database.
func TestBackupWhileOthersWrite(t *testing.T) {
	t.Parallel()
	s := open(t)
	worker := registerWorker(t, s)
	stop := make(chan struct{})
	var group sync.WaitGroup
	begun := make(chan struct{}, 2)
	for range 2 {
		group.Go(func() {
			for n := 0; ; n++ {
				inserted, err := s.Insert(t.Context(), newTasks(50), time.Hour)
				if err == nil {
					_, err = s.Claim(t.Context(), worker, store.AnyOf("t"), inserted.Entries[0].Tickets[:20], store.IntoExecutors)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n == 5 {
					begun <- struct{}{}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	<-begun
	var copies []string
	db := callersDB(t, s, "")
	for _, name := range []string{"a.db", "b.db"} {
		copies = append(copies, filepath.Join(t.TempDir(), name))
		if _, err := db.Exec("vacuum into ?", copies[len(copies)-1]); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	group.Wait()
	for _, path := range copies {
		backup := connect(t, path)
		if err := errors.Join(backup.CheckIntegrity(t.Context()), backup.CheckSchema(t.Context())); err != nil {
			t.Fatal(err)
		}
		counts, err := backup.Count(t.Context(), store.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		inserted := number(t, backup, "select coalesce(sum(json_array_length(task_ids)), 0) from outbox")
		if all := counts.By[holdfast.Ready] + counts.By[holdfast.Running]; all != inserted || all%50 != 0 || counts.By[holdfast.Running]%20 != 0 {
			t.Errorf("the backup has %v, and outbox entries for %d tasks", counts, inserted)
		}
		insert(t, backup, 10)
	}
}

// If the context of a call ends while it waits, the call leaves no open transaction, and the next call succeeds.
func TestCancelledCallsLeaveNoTransaction(t *testing.T) {
	t.Parallel()
	s := open(t)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n*(i+1))*20*time.Microsecond)
				_, err := s.Insert(ctx, newTasks(20), 0)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				_, err = s.List(ctx, store.Filter{})
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	group.Wait()
	insert(t, s, 20)
	insert(t, openAt(t, s.Path()), 20) // another connection also gets the lock
	if n := number(t, s, "select count(*) % 20 from tasks"); n != 0 {
		t.Errorf("parts of batches were stored")
	}
	checkIntegrity(t, s)
}

// If the context of a waiting writer ends, only that call fails.
func TestCancelWhileWaitingToWrite(t *testing.T) {
	t.Parallel()
	s := open(t)
	release, err := s.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := s.Insert(ctx, newTasks(1), 0)
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := s.Workers(t.Context(), true); err != nil {
		t.Errorf("a call that only reads waits for a writer: %v", err)
	}
	release()
	insert(t, s, 1)
}

// Data in a deleted file would be lost, so the store refuses to write to it.
func TestFileGone(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(path string) error{
		"deleted":  os.Remove,
		"moved":    func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		s := open(t)
		insert(t, s, 1)
		if err := remove(s.Path()); err != nil {
			t.Fatal(err)
		}
		_, insertErr := s.Insert(t.Context(), newTasks(1), 0)
		_, nowErr := s.Now(t.Context())
		for operation, err := range map[string]error{"insert": insertErr, "now": nowErr} {
			if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), s.Path()) {
				t.Errorf("%s, %s: %v", name, operation, err)
			}
		}
	}
}

// A panic in a transaction must not keep the transaction open.
func TestPanicEndsTheTransaction(t *testing.T) {
	t.Parallel()
	s := open(t)
	if n, err := s.Unticket(t.Context(), insert(t, s, 1)); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = s.Write(t.Context(), func() { panic("in a transaction") })
	}()
	insert(t, s, 1)
	insert(t, openAt(t, s.Path()), 1)
}

// The store must not change the database of another program, not even its journal mode.
func TestForeignDatabase(t *testing.T) {
	t.Parallel()
	for name, statements := range map[string]string{
		"with tables":                "create table bookmarks (url text); insert into bookmarks values ('x')",
		"with an id":                 "pragma application_id = 252006673; create table repository (x)",
		"with a table named tasks":   "create table tasks (id integer primary key, title text)",
		"with migrations of its own": "create table migrations (version); create table users (id)",
	} {
		path := filepath.Join(t.TempDir(), "other.db")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", sqlite.DataSource(path))
		if err == nil {
			_, err = db.Exec(statements)
			err = errors.Join(err, db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = sqlite.Open(t.Context(), sqlite.Options{Path: path, Create: true})
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another program") {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Errorf("%s: the file was changed, %v", name, err)
		}
	}
}
