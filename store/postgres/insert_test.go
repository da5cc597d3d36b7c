package postgres_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// callersDB returns a plain connection pool, like that of a program with its own tables.
func callersDB(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestInsertTx(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	db := callersDB(t)
	tasks := []holdfast.NewTask{
		{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3, Payload: []byte(`{"a": "é\"\\"}`)},
		{Type: "t", Queue: "new", MaxAttempts: 3, Delay: time.Hour},
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
		"sqlx":         func() (transaction, error) { return sqlx.NewDb(db, "postgres").Beginx() },
	} {
		for _, commit := range []bool{false, true} {
			tx, err := begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "set local search_path = pg_catalog"); err != nil {
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
			// Other callers can use the new queue before the commit.
			if _, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: "new", MaxAttempts: 1}}, 0); err != nil {
				t.Errorf("%s: %v", name, err)
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
			task, err := s.Task(t.Context(), plain.Tasks[0].ID)
			if stored := err == nil && string(task.Payload) == string(tasks[0].Payload); stored != commit {
				t.Errorf("%s, commit %t: %+v, %v", name, commit, task, err)
			}
		}
		if _, err := db.Exec("delete from " + s.Schema() + ".tasks"); err != nil {
			t.Fatal(err)
		}
	}
}

// Two callers insert the same keys in opposite order.
func TestInsertOppositeKeys(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	tasks := []holdfast.NewTask{{Type: "t", Queue: "default", MaxAttempts: 1, Unique: "a"}, {Type: "t", Queue: "default", MaxAttempts: 1, Unique: "b"}}
	tx, err := callersDB(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := s.InsertTx(t.Context(), tx, tasks[:1], 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		inserted, err := s.Insert(ctx, []holdfast.NewTask{tasks[1], tasks[0]}, 0)
		for held := new(store.KeyHeldError); errors.As(err, &held); { // a slow commit
			inserted, err = s.Insert(ctx, []holdfast.NewTask{tasks[1], tasks[0]}, 0)
		}
		if err == nil && (inserted.Tasks[0].Duplicate == inserted.Tasks[1].Duplicate) {
			err = errors.New("want exactly one duplicate")
		}
		done <- err
	}()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An insert with a unique key waits without success. The error says whether another transaction holds the key, stores
// the queue, or locks a table.
func TestInsertSaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	db := callersDB(t)
	keyed := []holdfast.NewTask{{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3, Unique: "k"}}
	if _, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3}}, time.Second); err != nil {
		t.Fatal(err)
	}
	insertDuring := func(other func(*sql.Tx) error) error {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := other(tx); err != nil {
			t.Fatal(err)
		}
		_, err = s.Insert(t.Context(), keyed, time.Second)
		return err
	}
	held := new(store.KeyHeldError)
	err := insertDuring(func(tx *sql.Tx) error {
		_, err := s.InsertTx(t.Context(), tx, keyed, time.Second)
		return err
	})
	if !errors.As(err, &held) || !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("during a transaction that holds the key: %v", err)
	}
	for _, table := range []string{"tasks", "outbox"} {
		err = insertDuring(func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "lock table "+s.Schema()+"."+table+" in share mode")
			return err
		})
		if errors.As(err, &held) || !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "locked a table") {
			t.Errorf("during a lock on %s: %v", table, err)
		}
	}
	// A failover has lost the queue, and an open transaction stores it again.
	execute(t, "delete from "+s.Schema()+".queues")
	err = insertDuring(func(tx *sql.Tx) error {
		_, err := s.InsertTx(t.Context(), tx, []holdfast.NewTask{{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3}}, time.Second)
		return err
	})
	if errors.As(err, &held) || !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "stores the same queue") {
		t.Errorf("during a transaction that stores the queue: %v", err)
	}
}

// The error of an insert names exactly the unique keys that another open transaction holds.
func TestInsertNamesTheHeldKeys(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	keyed := func(keys ...string) []holdfast.NewTask {
		tasks := make([]holdfast.NewTask, len(keys))
		for i, key := range keys {
			tasks[i] = holdfast.NewTask{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3, Unique: key}
		}
		return tasks
	}
	tx, err := callersDB(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := s.InsertTx(t.Context(), tx, keyed("k3", "k7"), time.Second); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ tasks, held []string }{
		{[]string{"k7", "k7"}, []string{"k7"}},
		{[]string{"k1", "k7", "k2", "", "k3", "k4", "k3", "k5"}, []string{"k3", "k7"}},
	} {
		held := new(store.KeyHeldError)
		if _, err := s.Insert(t.Context(), keyed(test.tasks...), time.Second); !errors.As(err, &held) || !slices.Equal(held.Keys, test.held) {
			t.Errorf("insert of %q: %v", test.tasks, err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	inserted, err := s.Insert(t.Context(), keyed("k1", "k2", "k3"), time.Second)
	if err != nil || inserted.Tasks[0].Duplicate || inserted.Tasks[1].Duplicate || !inserted.Tasks[2].Duplicate {
		t.Errorf("after the commit: %+v, %v", inserted, err)
	}
}

// A step of a plan, and a result with next tasks, also name the keys that another open transaction holds.
func TestStepsAndResultsNameTheHeldKeys(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	claims, err := s.Claim(t.Context(), registerWorker(t, s), store.AnyOf("t"), insert(t, s, 1), store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	success, err := holdfast.Settle(*claims[0].Task, holdfast.Returned(nil), claims[0].Now, holdfast.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	created, err := s.CreatePlan(t.Context(), store.Actor{Name: "test", Surface: "cli"}, store.Plan{
		Kind: store.BatchKind, Name: "b", State: store.PlanRunning, Spec: json.RawMessage("{}"), Progress: json.RawMessage("{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	unique := func(key string) holdfast.NewTask {
		return holdfast.NewTask{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3, Unique: key}
	}
	tx, err := callersDB(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := s.InsertTx(t.Context(), tx, []holdfast.NewTask{unique("held"), orderedTask("order")}, time.Hour); err != nil {
		t.Fatal(err)
	}
	step := func(tasks ...holdfast.NewTask) error {
		_, err := s.StepPlan(t.Context(), store.PlanStep{From: created, Insert: tasks, Members: true}, func(store.Inserted) (store.Plan, []store.PlanItem) {
			return created, nil
		})
		return err
	}
	result := func(tasks ...holdfast.NewTask) error {
		success.Effects = &holdfast.Effects{Next: tasks}
		_, err := s.Apply(t.Context(), []holdfast.Transition{success})
		return err
	}
	for what, test := range map[string]struct {
		err  error
		keys []string
	}{
		"unique key of a step":    {step(unique("a"), unique("held"), unique("b")), []string{"held"}},
		"ordered key of a step":   {step(orderedTask("free"), orderedTask("order")), []string{"order"}},
		"unique key of a result":  {result(unique("a"), unique("held")), []string{"held"}},
		"ordered key of a result": {result(orderedTask("order")), []string{"order"}},
	} {
		if held := new(store.KeyHeldError); !errors.As(test.err, &held) || !slices.Equal(held.Keys, test.keys) {
			t.Errorf("%s: %v, want a KeyHeldError with the keys %q", what, test.err, test.keys)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := step(unique("held"), orderedTask("order")); err != nil {
		t.Errorf("after the other transaction: %v", err)
	}
}

// A task loses its unique key to an insert that waits for a janitor, which deletes that task.
func TestInsertReleasesTheKeyOfATaskThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	s := named(t, postgres.Options{})
	task := holdfast.NewTask{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 1, Unique: "k", UniqueFor: time.Hour}
	first, err := s.Insert(t.Context(), []holdfast.NewTask{task}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	change(t, s, "update tasks set state = 'done', finished_at = now()")
	janitor, err := callersDB(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = janitor.Rollback() }()
	if _, err := janitor.Exec("delete from " + s.Schema() + ".tasks"); err != nil {
		t.Fatal(err)
	}
	task.UniqueFor, task.UniqueWhileOpen = 0, true
	waited := make(chan struct{})
	go func() { // within keyWait, or the insert is refused and tries nothing again
		defer close(waited)
		for t.Context().Err() == nil && waiting(t, s) == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := janitor.Commit(); err != nil {
			t.Error(err)
		}
	}()
	second, err := s.Insert(t.Context(), []holdfast.NewTask{task}, time.Hour)
	<-waited
	if held := new(store.KeyHeldError); errors.As(err, &held) { // the machine is slow
		second, err = s.Insert(t.Context(), []holdfast.NewTask{task}, time.Hour)
	}
	if err != nil || second.Tasks[0].Duplicate || second.Tasks[0].ID == first.Tasks[0].ID {
		t.Errorf("Insert returned %+v, %v; want a new task", second.Tasks, err)
	}
}
