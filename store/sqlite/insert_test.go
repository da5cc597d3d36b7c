package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// callersDB returns a pool of connections to the file, like that of a program with its own tables in the same file.
func callersDB(t *testing.T, s *sqlite.Store, parameters string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", sqlite.DataSource(s.Path())+parameters)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestInsertTx(t *testing.T) {
	t.Parallel()
	s := open(t)
	db := callersDB(t, s, "&_txlock=immediate")
	long := []byte(`"` + strings.Repeat("é", 3000) + `"`)
	tasks := []holdfast.NewTask{
		{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3, Payload: []byte(`{"a": "é\"\\<>"}`)},
		{Type: "t", Queue: "new", MaxAttempts: 3, Delay: time.Hour, Payload: long},
		{Type: "t", Queue: "new", MaxAttempts: 3, Unique: "k"},
		{Type: "t", Queue: "new", MaxAttempts: 3, Unique: "k"},
	}
	type transaction interface {
		store.Tx
		Commit() error
		Rollback() error
	}
	for name, begin := range map[string]func() (transaction, error){
		"database/sql": func() (transaction, error) { return db.Begin() },
		"sqlx":         func() (transaction, error) { return sqlx.NewDb(db, "sqlite").Beginx() },
	} {
		for _, commit := range []bool{false, true} {
			tx, err := begin()
			if err != nil {
				t.Fatal(err)
			}
			plain, err := s.InsertTx(t.Context(), tx, tasks[:2], time.Hour)
			if err != nil || len(plain.Entries) != 1 {
				t.Fatalf("%s: %+v, %v", name, plain, err)
			}
			unique, err := s.InsertTx(t.Context(), tx, tasks[2:], time.Second)
			if err != nil || !unique.Tasks[1].Duplicate || unique.Tasks[1].ID != unique.Tasks[0].ID {
				t.Fatalf("%s: %+v, %v", name, unique, err)
			}
			if _, err := s.Task(t.Context(), plain.Tasks[0].ID); !errors.Is(err, holdfast.ErrNotFound) {
				t.Errorf("%s: the task is visible before the commit: %v", name, err)
			}
			checkCommitted := func(want bool) {
				t.Helper()
				if found, err := s.CommittedOutbox(t.Context(), []int64{plain.Entries[0].ID}); err != nil || (len(found) == 1) != want {
					t.Errorf("%s, commit %t: found %v, %v; want the outbox entry: %t", name, commit, found, err, want)
				}
			}
			checkCommitted(false)
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			checkCommitted(commit)
			for i, task := range plain.Tasks {
				got, err := s.Task(t.Context(), task.ID)
				if stored := err == nil && bytes.Equal(got.Payload, tasks[i].Payload); stored != commit {
					t.Errorf("%s, commit %t: %+v, %v", name, commit, got, err)
				}
			}
			queues, err := s.QueueNames(t.Context())
			if err != nil || (len(queues) == 2) != commit {
				t.Errorf("%s, commit %t: the queues are %v, %v", name, commit, queues, err)
			}
		}
		change(t, s, "delete from tasks")
		change(t, s, "delete from queues where name = 'new'")
	}
}

// While a caller's transaction is open, other writers wait. They continue when it ends.
func TestInsertTxBlocksOtherWriters(t *testing.T) {
	t.Parallel()
	s := open(t)
	tx, err := callersDB(t, s, "&_txlock=immediate").Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := s.InsertTx(t.Context(), tx, newTasks(1), 0); err != nil {
		t.Fatal(err)
	}
	s.SetBusyLimit(50 * time.Millisecond)
	_, err = s.Insert(t.Context(), newTasks(1), 0)
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), s.Path()) || !strings.Contains(holdfast.HintOf(err).Arg, "fuser") {
		t.Errorf("during a transaction that does not end: %v", err)
	}
	s.SetBusyLimit(slow.Patience()) // the deadline must end first, even on a busy machine
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err = s.Insert(ctx, newTasks(1), 0); !errors.Is(err, holdfast.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a deadline: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Insert(t.Context(), newTasks(1), 0)
		done <- err
	}()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := number(t, s, "select count(*) from tasks"); n != 2 {
		t.Errorf("there are %d tasks, want 2", n)
	}
}

// A transaction that has read cannot write after another connection has written.
func TestInsertTxCannotUpgradeAfterWrite(t *testing.T) {
	t.Parallel()
	s := open(t)
	tx, err := callersDB(t, s, "").Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRow("select count(*) from tasks").Scan(&n); err != nil {
		t.Fatal(err)
	}
	insert(t, s, 1)
	_, err = s.InsertTx(t.Context(), tx, newTasks(1), 0)
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(holdfast.HintOf(err).Arg, "_txlock=immediate") {
		t.Errorf("got %v, want an ErrUnavailable with advice", err)
	}
}

// The store never assigns an id twice, even if the newest task was deleted.
func TestIDsAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	s := open(t)
	last := insert(t, s, 3)[2]
	change(t, s, "delete from tasks")
	if next := insert(t, s, 1)[0]; next.Task <= last.Task {
		t.Errorf("task %s was followed by task %s", last.Task, next.Task)
	}
}

// A long payload is not in the row of the task, which every transition writes. The store deletes it with that row.
func TestLongPayloads(t *testing.T) {
	t.Parallel()
	s := open(t)
	task := newTasks(1)
	task[0].Payload, task[0].Unique = []byte(`"`+strings.Repeat("x", 100_000)+`"`), "once"
	for _, duplicate := range []bool{false, true} {
		inserted, err := s.Insert(t.Context(), task, 0)
		if err != nil || inserted.Tasks[0].Duplicate != duplicate {
			t.Fatalf("inserted %+v, %v", inserted, err)
		}
	}
	if n := number(t, s, "select count(*) from payloads"); n != 1 {
		t.Errorf("there are %d long payloads", n)
	}
	change(t, s, "update tasks set state = 'done', finished_at = 1, ticketed_at = null")
	if n, err := s.Prune(t.Context(), store.PruneAges{Done: time.Second}, 10); err != nil || n != 1 {
		t.Errorf("pruned %d, %v", n, err)
	}
	if n := number(t, s, "select count(*) from payloads"); n != 0 {
		t.Errorf("%d long payloads are left", n)
	}
}
