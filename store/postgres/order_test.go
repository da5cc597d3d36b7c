package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

func orderedTask(key string) holdfast.NewTask {
	return holdfast.NewTask{Type: "work", Queue: holdfast.DefaultQueue, Key: key, Ordered: true}
}

func complete(t *testing.T, s *postgres.Store, worker holdfast.WorkerID, id holdfast.TaskID) {
	t.Helper()
	claims, err := s.Claim(t.Context(), worker, store.AnyOf("work"), []message.Ticket{{Task: id, Attempt: 1}}, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		t.Fatalf("the claim of task %s: %+v, %v", id, claims, err)
	}
	move, err := holdfast.Settle(*claims[0].Task, holdfast.Returned(nil), claims[0].Now, holdfast.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	if accepted, err := s.Apply(t.Context(), []holdfast.Transition{move}); err != nil || !accepted[0] {
		t.Fatalf("the result of task %s: %v, %v", id, accepted, err)
	}
}

// dueNow returns the tasks that get a ticket now.
func dueNow(t *testing.T, s *postgres.Store) (ids []holdfast.TaskID) {
	t.Helper()
	_, err := s.DispatchDue(t.Context(), store.Queues{}, 100, func(_ context.Context, due []store.Due) []bool {
		for _, d := range due {
			ids = append(ids, d.Task)
		}
		return slices.Repeat([]bool{true}, len(due))
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.DispatchOutbox(t.Context(), store.Queues{}, 100, func(_ context.Context, entries []store.OutboxEntry) []bool {
		for _, entry := range entries {
			for _, ticket := range entry.Tickets {
				ids = append(ids, ticket.Task)
			}
		}
		return slices.Repeat([]bool{true}, len(entries))
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// An open transaction that has stored ordered tasks locks their keys. Only inserts of ordered tasks with these keys
// wait for it.
func TestOpenTransactionsHoldTheKeysOfOrderedTasks(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	db := callersDB(t)
	worker := registerWorker(t, s)
	insertOne := func(task holdfast.NewTask) (holdfast.TaskID, error) {
		inserted, err := s.Insert(t.Context(), []holdfast.NewTask{task}, time.Hour)
		if err != nil {
			return 0, err
		}
		return inserted.Tasks[0].ID, nil
	}
	first, err := insertOne(orderedTask("a"))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	inserted, err := s.InsertTx(t.Context(), tx, []holdfast.NewTask{orderedTask("new"), orderedTask("a"), orderedTask("a")}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "new"} {
		_, err := s.Insert(t.Context(), []holdfast.NewTask{orderedTask("free"), orderedTask(key)}, time.Hour)
		held := new(store.KeyHeldError)
		if !errors.As(err, &held) || !held.Ordered || !slices.Equal(held.Keys, []string{key}) || !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("the key %s: Insert returned %v, want a KeyHeldError with the key", key, err)
		}
	}
	plain := orderedTask("a")
	plain.Ordered = false
	for _, task := range []holdfast.NewTask{orderedTask("b"), plain} {
		if _, err := insertOne(task); err != nil {
			t.Errorf("another insert waits: %v", err)
		}
	}
	complete(t, s, worker, first)
	released, err := s.ReleaseBlocked(t.Context(), 100)
	if err != nil || released.Tasks != 0 || !released.Waiting || released.Next <= 0 {
		t.Errorf("while the transaction is open, ReleaseBlocked returns %+v, %v", released, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if released, err = s.ReleaseBlocked(t.Context(), 100); err != nil || released.Tasks != 1 || released.Next != 0 {
		t.Errorf("after the commit, ReleaseBlocked returns %+v, %v", released, err)
	}
	if got := dueNow(t, s); !slices.Equal(got, []holdfast.TaskID{inserted.Tasks[1].ID}) {
		t.Errorf("the tasks %v get tickets, want %v", got, inserted.Tasks[1].ID)
	}
	if released, err = s.ReleaseBlocked(t.Context(), 100); err != nil || released.Tasks != 0 || released.Waiting {
		t.Errorf("when all is done, ReleaseBlocked returns %+v, %v", released, err)
	}
}

// If two transactions insert the same keys in opposite orders, both lock the keys in the same order.
func TestOrderedKeysDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	keys := make([]holdfast.NewTask, 40)
	for i := range keys {
		keys[i] = orderedTask(fmt.Sprint("key ", i))
	}
	reversed := slices.Clone(keys)
	slices.Reverse(reversed)
	results := make(chan error)
	for _, tasks := range [][]holdfast.NewTask{keys, reversed, keys, reversed} {
		go func() {
			var err error
			for n := 0; n < 25 && (err == nil || errors.As(err, new(*store.KeyHeldError))); n++ {
				_, err = s.Insert(t.Context(), tasks, time.Hour)
			}
			if errors.As(err, new(*store.KeyHeldError)) { // on a slow machine
				err = nil
			}
			results <- err
		}()
	}
	for range 4 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// A build without ordered tasks completes and cancels tasks without a check of their key. A janitor of this build finds
// the key.
func TestTheNextOrderedTaskStartsAfterAnOlderWorker(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	inserted, err := s.Insert(t.Context(), []holdfast.NewTask{orderedTask("a"), orderedTask("a"), orderedTask("a")}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	change(t, s, "update tasks set state = 'cancelled', finished_at = now(), due_at = null where id = "+inserted.Tasks[1].ID.String())
	change(t, s, "update tasks set state = 'done', finished_at = now(), ticketed_at = null where id = "+inserted.Tasks[0].ID.String())
	for range 3 { // the first call finds the key, and the second one the cancelled task, at the latest
		if _, err := s.ReleaseBlocked(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
	if got := dueNow(t, s); !slices.Equal(got, []holdfast.TaskID{inserted.Tasks[2].ID}) {
		t.Errorf("the tasks %v get tickets, want %s", got, inserted.Tasks[2].ID)
	}
}

// A result does not wait for a transaction that has locked the next task of the key, for example to change the task.
func TestResultsDoNotWaitForTheNextOrderedTask(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	worker := registerWorker(t, s)
	inserted, err := s.Insert(t.Context(), []holdfast.NewTask{orderedTask("a"), orderedTask("a")}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := callersDB(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	if _, err := lock.ExecContext(t.Context(), "select from "+s.Schema()+".tasks where id = $1 for update", int64(inserted.Tasks[1].ID)); err != nil {
		t.Fatal(err)
	}
	complete(t, s, worker, inserted.Tasks[0].ID)
	if _, err := s.ReleaseBlocked(t.Context(), 100); err != nil {
		t.Error(err)
	}
	if got := dueNow(t, s); len(got) != 0 {
		t.Errorf("the tasks %v get tickets while the task is locked", got)
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReleaseBlocked(t.Context(), 100); err != nil {
		t.Error(err)
	}
	if got := dueNow(t, s); !slices.Equal(got, []holdfast.TaskID{inserted.Tasks[1].ID}) {
		t.Errorf("the tasks %v get tickets, want %s", got, inserted.Tasks[1].ID)
	}
}

// An insert waits for the transaction in which the active task dies. It dooms its task, although its statement began
// before the death.
func TestAnInsertThatWaitsSeesTheDeath(t *testing.T) {
	t.Parallel()
	s := named(t, postgres.Options{})
	insertOne := func() (holdfast.TaskID, error) {
		inserted, err := s.Insert(t.Context(), []holdfast.NewTask{orderedTask("a")}, time.Hour)
		if err != nil {
			return 0, err
		}
		return inserted.Tasks[0].ID, nil
	}
	first, err := insertOne()
	if err != nil {
		t.Fatal(err)
	}
	tx, err := callersDB(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{
		"select from " + s.Schema() + ".key_order for update",
		"update " + s.Schema() + ".tasks set state = 'dead', dead_at = now(), finished_at = now(), ticketed_at = null, ordered = 4 where id = " + first.String(),
		"update " + s.Schema() + ".key_order set dead = 2",
	} {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	type result struct {
		id  holdfast.TaskID
		err error
	}
	stored := make(chan result, 1)
	go func() {
		id, err := insertOne()
		stored <- result{id, err}
	}()
	eventually(t, "the insert waits", func() error {
		if waiting(t, s) < 1 && len(stored) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	second := <-stored
	if errors.As(second.err, new(*store.KeyHeldError)) { // on a slow machine
		second.id, second.err = insertOne()
	}
	if second.err != nil {
		t.Fatal(second.err)
	}
	if task, err := s.Task(t.Context(), second.id); err != nil || !task.Doomed {
		t.Errorf("the task behind the dead one is %+v, %v; want it doomed", task, err)
	}
}

func TestEnqueueOrderedInSQL(t *testing.T) {
	t.Parallel()
	s, schema, db := openForSQL(t)
	worker := registerWorker(t, s)
	enqueue := func(q interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}, arguments string) (id holdfast.TaskID) {
		t.Helper()
		if err := q.QueryRowContext(t.Context(), "select "+schema+".enqueue("+arguments+")").Scan(&id); err != nil {
			t.Fatalf("%s: %v", arguments, err)
		}
		return id
	}
	first := enqueue(db, `'work', key => 'a', ordered => true, unique_key => 'u'`)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	second := enqueue(tx, `'work', key => 'a', ordered => true`)
	if again := enqueue(tx, `'work', key => 'b', ordered => true, unique_key => 'u'`); again != first {
		t.Errorf("the duplicate is task %s, want %s", again, first)
	}
	delayed := enqueue(tx, `'work', key => 'a', ordered => true, delay => '1 hour'`)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := dueNow(t, s); !slices.Equal(got, []holdfast.TaskID{first}) {
		t.Fatalf("the tasks %v get tickets, want %s", got, first)
	}
	complete(t, s, worker, first)
	if got := dueNow(t, s); !slices.Equal(got, []holdfast.TaskID{second}) {
		t.Fatalf("the tasks %v get tickets, want %s", got, second)
	}
	complete(t, s, worker, second)
	if got := dueNow(t, s); len(got) != 0 {
		t.Errorf("the tasks %v get tickets, want none before task %s is due", got, delayed)
	}
	if place, err := s.OrderOf(t.Context(), delayed); err != nil || place.Active != delayed {
		t.Errorf("the place of the delayed task is %+v, %v", place, err)
	}
	if _, err := s.ReleaseBlocked(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if b := enqueue(db, `'work', key => 'b', ordered => true`); func() bool { place, err := s.OrderOf(t.Context(), b); return err != nil || place.Active != b }() {
		t.Errorf("task %s does not lead the key of a duplicate", b)
	}
	for _, arguments := range []string{`'work', ordered => true`, `'work', key => 'a', ordered => null`} {
		var id int64
		if err := db.QueryRowContext(t.Context(), "select "+schema+".enqueue("+arguments+")").Scan(&id); err == nil {
			t.Errorf("enqueue(%s) returned task %d, want an error", arguments, id)
		}
	}
}
