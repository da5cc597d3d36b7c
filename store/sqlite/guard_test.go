//go:build unix

package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// harms are changes of the files beside a database in use.
var harms = map[string]struct {
	do    func(path string) error
	taken bool // the harm destroys commits, so that no program can save them
}{
	"both deleted": {func(path string) error { return errors.Join(os.Remove(path+"-wal"), os.Remove(path+"-shm")) }, false},
	"-wal deleted": {func(path string) error { return os.Remove(path + "-wal") }, false},
	"-shm deleted": {func(path string) error { return os.Remove(path + "-shm") }, false},
	"-wal replaced": {func(path string) error {
		return errors.Join(os.Rename(path+"-wal", path+"-old"), os.WriteFile(path+"-wal", nil, 0o600))
	}, false},
	"-wal emptied": {func(path string) error { return os.Truncate(path+"-wal", 0) }, true},
	"-wal cut":     {func(path string) error { return os.Truncate(path+"-wal", 5000) }, true},
}

// If a file beside the database is deleted or changed while a process uses the database, no insert into the old files
// is accepted, and a second process may not create new ones. After a restart, every accepted task exists.
func TestLostFilesLoseNoAcceptedTask(t *testing.T) {
	t.Parallel()
	for name, harm := range harms {
		for _, end := range []string{"clean stop", "kill -9"} {
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				path := closedFile(t, 10)
				p := start(t, "insert twice", path)
				p.expect("stored")
				if err := harm.do(path); err != nil {
					t.Fatal(err)
				}
				if text := openError(t, path, true, holdfast.ErrUnavailable); !strings.Contains(text, path+"-") {
					t.Errorf("another process opens the file: %s", text)
				}
				p.begin()
				if text := strings.Join(p.expect("refused"), " "); !strings.Contains(text, path+"-") || !strings.Contains(text, "stores nothing more") {
					t.Errorf("an insert: %s", text)
				}
				if end == "kill -9" {
					p.kill()
				} else {
					p.begin()
					if err := p.cmd.Wait(); err != nil {
						t.Error(err)
					}
				}
				s := openAt(t, path)
				if n := number(t, s, "select count(*) from tasks"); n != 15 && !harm.taken || n < 10 {
					t.Errorf("the store has %d of 15 tasks", n)
				}
				checkIntegrity(t, s)
				insert(t, s, 5)
			})
		}
	}
}

// A stop also saves the commits if the deletion was not noticed before.
func TestAStopSavesADeletedLog(t *testing.T) {
	t.Parallel()
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := closedFile(t, 10)
			p := start(t, "insert twice", path)
			p.expect("stored")
			if err := harm.do(path); err != nil {
				t.Fatal(err)
			}
			_ = p.stdin.Close() // the next insert is refused
			if line, _ := p.line(); !strings.HasPrefix(line, "refused") {
				t.Error(line)
			}
			if err := p.cmd.Wait(); err != nil {
				t.Error(err)
			}
			if n := number(t, openAt(t, path), "select count(*) from tasks"); n != 15 && !harm.taken || n < 10 {
				t.Errorf("the store has %d of 15 tasks", n)
			}
		})
	}
}

// The error of a store that has lost a file stays, and has a hint. The process must end before it can use the file.
func TestALostFileEndsAllWrites(t *testing.T) {
	t.Parallel()
	s := open(t)
	insert(t, s, 5)
	db := callersDB(t, s, "&_txlock=immediate")
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(s.Path()+"-wal"), os.Remove(s.Path()+"-shm")); err != nil {
		t.Fatal(err)
	}
	_, err = s.InsertTx(t.Context(), tx, newTasks(1), 0)
	for range 2 {
		if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "everything that was accepted is in "+s.Path()) ||
			holdfast.HintOf(err).Kind != holdfast.HintReopenDatabase {
			t.Error(err)
		}
		err = s.Ready(t.Context())
	}
	if checks, err := s.Settings(t.Context()); err != nil || !strings.Contains(checks[0].Detail, "-wal was deleted") {
		t.Errorf("the doctor reports %+v, %v", checks, err)
	}
	if err := errors.Join(tx.Rollback(), s.Close()); err != nil {
		t.Error(err)
	}
	openError(t, s.Path(), false, holdfast.ErrUnavailable)
}

// A checkpoint of another program may truncate the log. The store does not treat that as a loss.
func TestACheckpointMayTruncateTheLog(t *testing.T) {
	t.Parallel()
	s := open(t)
	db := callersDB(t, s, "")
	for range 3 {
		insert(t, s, 200)
		var blocked, logged, saved int
		if err := db.QueryRow("pragma wal_checkpoint(truncate)").Scan(&blocked, &logged, &saved); err != nil || blocked != 0 {
			t.Fatal(blocked, err)
		}
		if info, err := os.Stat(s.Path() + "-wal"); err != nil || info.Size() != 0 {
			t.Errorf("the log is not empty: %v", err)
		}
		if err := s.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	}
	insert(t, s, 1)
}

// If another program has written to a new log, the store does not overwrite its commits.
func TestCommitsOfAnotherProgramAreKept(t *testing.T) {
	t.Parallel()
	path := closedFile(t, 10)
	p := start(t, "insert twice", path)
	p.expect("stored")
	if err := errors.Join(os.Remove(path+"-wal"), os.Remove(path+"-shm")); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", sqlite.DataSource(path))
	if err == nil {
		_, err = db.Exec("update tasks set type = 'changed'")
	}
	if err != nil {
		t.Fatal(err)
	}
	p.begin()
	if text := strings.Join(p.expect("refused"), " "); !strings.Contains(text, "another program has written") {
		t.Error(text)
	}
	p.begin()
	if err := errors.Join(p.cmd.Wait(), db.Close()); err != nil {
		t.Error(err)
	}
	s := openAt(t, path)
	if n := number(t, s, "select count(*) from tasks where type = 'changed'"); n != 10 {
		t.Errorf("the store has %d of 10 changed tasks", n)
	}
	checkIntegrity(t, s)
}

// A process that runs as root leaves no file that the owner of the database cannot open.
func TestRootLocksOutNoOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root")
	}
	path := closedFile(t, 1)
	if err := errors.Join(os.Chmod(path, 0o660), os.Chown(path, 1234, 5678)); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, path)
	release := own(t, s)
	insert(t, s, 1)
	for _, suffix := range []string{"-wal", "-shm", ".lock"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 1234 || stat.Gid != 5678 || info.Mode().Perm() != 0o660 {
			t.Errorf("%s belongs to %d:%d with mode %o", suffix, stat.Uid, stat.Gid, info.Mode().Perm())
		}
	}
	if err := errors.Join(release(), s.Close()); err != nil {
		t.Fatal(err)
	}
}
