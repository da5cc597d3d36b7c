package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func topicalTask(topic string) holdfast.NewTask {
	return holdfast.NewTask{Type: "work", Queue: holdfast.DefaultQueue, Topic: topic}
}

// topics is a store with a worker that runs all tasks of topics.
type topics struct {
	*testing.T
	*postgres.Store
	worker holdfast.WorkerID
}

func openTopics(t *testing.T, s *postgres.Store) *topics {
	t.Helper()
	worker, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "worker", Concurrency: 1000}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &topics{t, s, worker}
}

func (s *topics) insert(tasks ...holdfast.NewTask) holdfast.TaskID {
	s.Helper()
	inserted, err := s.Insert(s.Context(), tasks, time.Hour)
	if err != nil {
		s.Fatal(err)
	}
	return inserted.Tasks[len(tasks)-1].ID
}

// run runs the tasks that get slots, and returns them.
func (s *topics) run() []holdfast.TaskID {
	s.Helper()
	if _, err := s.ReleaseBlocked(s.Context(), 1000); err != nil {
		s.Fatal(err)
	}
	ids := dueNow(s.T, s.Store)
	for _, id := range ids {
		complete(s.T, s.Store, s.worker, id)
	}
	return ids
}

func (s *topics) progress(topic string) store.TopicProgress {
	s.Helper()
	progress, err := s.TopicProgress(s.Context(), topic)
	if err != nil {
		s.Fatal(err)
	}
	return progress
}

// await runs tasks until the cursor done of a topic has reached an id.
func (s *topics) await(topic string, id holdfast.TaskID) {
	s.Helper()
	for deadline := time.Now().Add(slow.Patience()); s.progress(topic).Done < id; s.run() {
		if time.Now().After(deadline) {
			s.Fatalf("the progress is %+v, want done up to %s", s.progress(topic), id)
		}
		s.insert(topicalTask("look")) // so that the next call gives slots
	}
}

// No cursor passes an id of an open transaction, although other transactions store and end tasks.
func TestCursorsWaitForOpenTransactions(t *testing.T) {
	t.Parallel()
	s := openTopics(t, pgtest.Open(t))
	db := callersDB(t)
	for i, topic := range []string{"a", "b"} { // the topics of the open transaction and of another one
		before := s.insert(topicalTask(topic))
		s.await(topic, before)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		inserted, err := s.InsertTx(t.Context(), tx, []holdfast.NewTask{topicalTask("a")}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		open, after := inserted.Tasks[0].ID, s.insert(topicalTask(topic))
		for ended := false; !ended; {
			ended = slices.Contains(s.run(), after)
		}
		for range 20 {
			s.insert(topicalTask("look"))
			s.run()
			if got := s.progress(topic); got.Done >= open || got.Scanned >= open || got.Done < before {
				t.Fatalf("round %d: the cursors are %+v, want less than %s, which an open transaction has stored", i, got.Cursors, open)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		s.await(topic, after)
	}
}

// looking returns a store in which each call of ReleaseBlocked makes a pass over the topics, because a task waits in a
// queue without a worker.
func looking(t *testing.T) *topics {
	t.Helper()
	s := pgtest.Open(t)
	worker, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "worker", Concurrency: 1000, Queues: []string{holdfast.DefaultQueue}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	opened := &topics{t, s, worker}
	waits := topicalTask("waits")
	waits.Queue = "other"
	opened.insert(waits)
	return opened
}

// The snapshot of a pass has no transaction that is newer than the last ended one. A cursor must wait for such a
// transaction, too.
func TestCursorsWaitForTheNewestTransaction(t *testing.T) {
	t.Parallel()
	s := looking(t)
	tx, err := callersDB(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for range 5 {
		s.run()
	}
	inserted, err := s.InsertTx(t.Context(), tx, []holdfast.NewTask{topicalTask("a")}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 { // no other transaction begins, unless another test runs
		s.run()
		if got := s.progress("a"); got.Done >= inserted.Tasks[0].ID {
			t.Fatalf("the cursors are %+v, and task %s is not committed", got.Cursors, inserted.Tasks[0].ID)
		}
	}
}

// The cursors reach the last task of a topic although no task is open when an older transaction ends.
func TestCursorsReachTheLastTask(t *testing.T) {
	t.Parallel()
	s := openTopics(t, pgtest.Open(t))
	s.await("a", s.insert(topicalTask("a")))
	tx, err := callersDB(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	var last holdfast.TaskID
	for range 3 {
		last = s.insert(topicalTask("a"))
		for ended := false; !ended; {
			ended = slices.Contains(s.run(), last)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(slow.Patience()); s.progress("a").Done < last; time.Sleep(10 * time.Millisecond) {
		if s.run(); time.Now().After(deadline) {
			t.Fatalf("all tasks have ended, and the progress is %+v, want %s", s.progress("a"), last)
		}
	}
}

// If a janitor is making a task wait for a slot, the task is locked. A pass does not change the row of that task.
func TestALookDoesNotForgetATaskThatIsLocked(t *testing.T) {
	t.Parallel()
	s := looking(t)
	id := s.insert(topicalTask("a"))
	tasks, err := s.TasksByID(t.Context(), []holdfast.TaskID{id})
	if err != nil {
		t.Fatal(err)
	}
	edit := store.Change{Action: store.ActionEdit, Task: tasks[0], Edit: &store.Edit{Payload: []byte(`{"n":1}`)}}
	if made, err := s.Change(t.Context(), store.Actor{Name: "anna", Surface: "cli"}, []store.Change{edit}); err != nil || !made[0] {
		t.Fatalf("the edit returned %v, %v", made, err)
	}
	s.insert(holdfast.NewTask{Type: "work", Queue: holdfast.DefaultQueue, At: time.Now().Add(-time.Hour)}, holdfast.NewTask{Type: "work", Queue: holdfast.DefaultQueue, Delay: time.Microsecond})
	looked := make(chan error, 1)
	published := false
	for deadline := time.Now().Add(slow.Patience()); !published && time.Now().Before(deadline); {
		_, err = s.DispatchDue(t.Context(), store.Queues{}, 100, func(ctx context.Context, due []store.Due) []bool {
			if published = true; len(due) > 0 {
				go func() { _, err := s.ReleaseBlocked(context.WithoutCancel(ctx), 1000); looked <- err }()
				time.Sleep(100 * time.Millisecond) // the broker confirms, and the pass waits for no lock
			}
			return slices.Repeat([]bool{true}, len(due))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-looked; err != nil {
		t.Logf("the look: %v", err)
	}
	for deadline := time.Now().Add(slow.Patience()); ; {
		if _, err := s.ReleaseBlocked(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(dueNow(t, s.Store), id) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the task gets no ticket: %+v", s.progress("a"))
		}
	}
}

// Callers store tasks in long and short transactions. The cursors never pass a task that has not ended.
func TestCursorsNeverPassAnOpenTask(t *testing.T) {
	t.Parallel()
	s := openTopics(t, pgtest.Open(t))
	db := callersDB(t)
	var mu sync.Mutex
	stored := make(map[holdfast.TaskID]bool) // by task: whether it has ended
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for n := range 30 {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Error(err)
					return
				}
				inserted, err := s.InsertTx(t.Context(), tx, []holdfast.NewTask{topicalTask("a"), topicalTask("a")}, time.Hour)
				if err == nil {
					time.Sleep(time.Duration(i*n%7) * time.Millisecond)
					mu.Lock() // after the commit, a cursor may pass the tasks
					if err = tx.Commit(); err == nil {
						stored[inserted.Tasks[0].ID], stored[inserted.Tasks[1].ID] = false, false
					}
					mu.Unlock()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { callers.Wait(); close(ended) }()
	var highest holdfast.TaskID
	check := func() (open int) {
		mu.Lock()
		defer mu.Unlock()
		got := s.progress("a")
		for id, done := range stored {
			if !done {
				open++
			}
			if !done && id <= got.Done {
				t.Fatalf("the cursor is at %s, and task %s has not ended", got.Done, id)
			}
			highest = max(highest, id)
		}
		return open
	}
	for running := true; running || check() > 0; {
		select {
		case <-ended:
			running = false
		default:
		}
		ran := s.run()
		mu.Lock()
		for _, id := range ran {
			stored[id] = true
		}
		mu.Unlock()
		check()
	}
	s.await("a", highest)
}

func TestEnqueueTopicInSQL(t *testing.T) {
	t.Parallel()
	opened, schema, db := openForSQL(t)
	s := openTopics(t, opened)
	enqueue := func(arguments string) (id holdfast.TaskID) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), "select "+schema+".enqueue("+arguments+")").Scan(&id); err != nil {
			t.Fatalf("%s: %v", arguments, err)
		}
		return id
	}
	first := enqueue(`'work', topic => 'a', unique_key => 'u'`)
	if again := enqueue(`'work', topic => 'b', unique_key => 'u'`); again != first {
		t.Errorf("the duplicate is task %s, want %s", again, first)
	}
	delayed := enqueue(`'work', topic => 'a', delay => '1 hour'`)
	ordered := enqueue(`'work', topic => 'a', key => 'k', ordered => true`)
	behind := enqueue(`'work', topic => 'a', key => 'k', ordered => true`)
	plain := enqueue(`'work', topic => ''`)
	if got := dueNow(t, opened); !slices.Equal(got, []holdfast.TaskID{plain}) {
		t.Fatalf("before slots are given, the tasks %v get tickets, want %s", got, plain)
	}
	var ran []holdfast.TaskID
	for deadline := time.Now().Add(slow.Patience()); len(ran) < 3 && time.Now().Before(deadline); {
		ran = append(ran, s.run()...)
	}
	if want := []holdfast.TaskID{first, ordered, behind}; fmt.Sprint(ran) != fmt.Sprint(want) {
		t.Errorf("the tasks %v have run, want %v", ran, want)
	}
	if got := s.progress("a"); len(got.Parts) != 1 || got.Parts[0].Later != 1 || got.Done >= delayed {
		t.Errorf("the progress is %+v, want only task %s open", got, delayed)
	}
	_, err := db.ExecContext(t.Context(), "select "+schema+".enqueue('work', topic => E'a\nb')")
	if err == nil || !strings.Contains(err.Error(), "the topic") {
		t.Errorf("enqueue with a control character in the topic returned %v", err)
	}
}
