package storetest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

var counterTests = []test{
	{"counts by queue, type and state", testCountGroups},
	{"counts every move once", testCountMoves},
	{"counts right while everything changes", testCountStress},
}

// groups returns the groups of CountGroups.
func (s *suite) groups() []store.CountGroup {
	s.Helper()
	groups, err := s.CountGroups(s.ctx)
	s.must(err)
	return groups
}

// real counts the tasks one by one.
func (s *suite) real() []store.CountGroup {
	s.Helper()
	counts := make(map[store.CountGroup]int64)
	for f := (store.Filter{Limit: 1000}); ; {
		page, err := s.List(s.ctx, f)
		s.must(err)
		for _, task := range page.Tasks {
			counts[store.CountGroup{Queue: task.Queue, Priority: task.Priority, Type: task.Type, State: task.State}]++
		}
		if f.Before = page.Next; f.Before == 0 {
			break
		}
	}
	var groups []store.CountGroup
	for group, n := range counts {
		group.Tasks = n
		groups = append(groups, group)
	}
	slices.SortFunc(groups, func(a, b store.CountGroup) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Type, b.Type), cmp.Compare(a.State, b.State))
	})
	return groups
}

// checkCounters compares the counters with the tasks, before and after the changes are folded. No other call may change
// tasks meanwhile. It runs at the end of every test of a store.
func (s *suite) checkCounters() {
	s.Helper()
	want := s.real()
	if got := s.groups(); !slices.Equal(got, want) {
		s.Errorf("the counters have %v, the tasks are %v", got, want)
	}
	for n := 3; n == 3; {
		var err error
		n, err = s.FoldCounts(s.ctx, 3)
		s.must(err)
	}
	if got := s.groups(); !slices.Equal(got, want) {
		s.Errorf("after FoldCounts the counters have %v, the tasks are %v", got, want)
	}
	if n := s.recount(); n != 0 {
		s.Errorf("a recount has corrected %d tasks", n)
	}
}

// recount makes a few steps of a recount, and returns how many tasks they have corrected.
func (s *suite) recount() (corrected int64) {
	s.Helper()
	for range 3 {
		n, err := s.Recount(s.ctx)
		s.must(err)
		corrected += n
	}
	return corrected
}

func testCountGroups(s *suite) {
	if got := s.groups(); len(got) != 0 {
		s.Errorf("an empty store has the groups %v", got)
	}
	foreign, elsewhere, later := newTask(), newTask(), newTask()
	foreign.Type, elsewhere.Queue, later.Delay = other, "elsewhere", time.Hour
	tickets := s.insert(newTask(), newTask(), newTask(), foreign, elsewhere, later)
	s.mustClaim(s.registerWorker(), tickets[0])
	s.move(s.mustClaim(s.registerWorker(), tickets[1])[0], holdfast.Returned(nil))
	want := []store.CountGroup{
		{Queue: defaultQueue, Type: other, State: holdfast.Ready, Tasks: 1},
		{Queue: defaultQueue, Type: kind, State: holdfast.Done, Tasks: 1},
		{Queue: defaultQueue, Type: kind, State: holdfast.Ready, Tasks: 2},
		{Queue: defaultQueue, Type: kind, State: holdfast.Running, Tasks: 1},
		{Queue: "elsewhere", Type: kind, State: holdfast.Ready, Tasks: 1},
	}
	slices.SortFunc(want, func(a, b store.CountGroup) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Type, b.Type), cmp.Compare(a.State, b.State))
	})
	if got := s.groups(); !slices.Equal(got, want) {
		s.Errorf("the groups are %v, want %v", got, want)
	}
	for state, want := range map[holdfast.State]int64{holdfast.Ready: 2, holdfast.Running: 1, holdfast.Done: 1, holdfast.Dead: 0} {
		counts, err := s.Count(s.ctx, store.Filter{Queue: defaultQueue, Type: kind})
		s.must(err)
		if counts.By[state] != want || counts.Next != 0 {
			s.Errorf("Count returned %+v, want %d tasks %s", counts, want, state)
		}
	}
}

// A transition that is refused, and a call that fails, change no number. checkCounters compares the numbers at the end
// of the test.
func testCountMoves(s *suite) {
	worker := s.registerWorker()
	tickets := s.insertN(7)
	tasks := s.mustClaim(worker, tickets...)
	done := s.settle(tasks[0], holdfast.Returned(nil))
	if got := s.apply(done, done); !slices.Equal(got, []bool{true, false}) {
		s.Errorf("two equal successes: %v", got)
	}
	more := s.settle(tasks[1], holdfast.Returned(nil))
	if got := s.apply(more, done); !slices.Equal(got, []bool{true, false}) {
		s.Errorf("a success and an old one: %v", got)
	}
	if got := s.apply(done); got[0] {
		s.Error("a success was accepted twice")
	}
	s.checkCounters()
	dead := s.move(tasks[2], holdfast.Returned(holdfast.Permanent(errors.New("never"))))
	s.move(tasks[3], holdfast.Returned(errors.New("not now")))
	s.move(tasks[4], holdfast.Requested(holdfast.EventCancel))
	s.checkCounters()
	s.move(dead, holdfast.Requested(holdfast.EventRequeue))
	s.fence(worker)
	s.move(tasks[5], holdfast.Crashed(worker))
	s.checkCounters()
	canceled, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.Insert(canceled, []holdfast.NewTask{newTask()}, 0); err == nil {
		s.Error("Insert with a canceled context returned nil")
	}
}

// testCountStress inserts, claims, settles, cancels, retries, prunes, folds and recounts at the same time.
func testCountStress(s *suite) {
	const rounds, pairs = 12, 3
	var wait sync.WaitGroup
	repeat := func(f func(random *rand.Rand) error) {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for range rounds {
				if err := f(random); err != nil && !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrConflict) {
					s.Error(err)
					return
				}
			}
		})
	}
	workers := make([]holdfast.WorkerID, pairs)
	for i := range pairs {
		workers[i] = s.registerWorker()
		repeat(func(random *rand.Rand) error { return s.work(workers[i], random) })
		repeat(func(*rand.Rand) error {
			_, err := s.FoldCounts(s.ctx, 5)
			return err
		})
		repeat(func(*rand.Rand) error {
			corrected, err := s.Recount(s.ctx)
			if corrected != 0 {
				err = fmt.Errorf("a recount has corrected %d tasks", corrected)
			}
			return err
		})
		repeat(func(*rand.Rand) error {
			_, err := s.Prune(s.ctx, store.PruneAges{Done: time.Microsecond, Cancelled: time.Microsecond}, 7)
			return err
		})
		repeat(func(random *rand.Rand) error { return s.operate(random) })
	}
	wait.Wait()
}

// RunCountFaults checks the counters when the connections of a store break repeatedly. breaks breaks all connections. A
// call that was interrupted has changed tasks and numbers, or neither.
func RunCountFaults(t *testing.T, s desk.Store, breaks func()) {
	w := &suite{T: t, Store: s, ctx: t.Context()}
	ended := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
				breaks()
			}
		}
	})
	testCountStress(w)
	close(ended)
	wait.Wait()
	w.eventually("the store answers", func() bool { _, err := s.Now(w.ctx); return err == nil })
	w.checkCounters()
}

// work inserts tasks of two types, claims some of them and settles them.
func (s *suite) work(worker holdfast.WorkerID, random *rand.Rand) error {
	tasks := make([]holdfast.NewTask, 1+random.IntN(6))
	for i := range tasks {
		tasks[i] = newTask()
		if random.IntN(3) == 0 {
			tasks[i].Type = other
		}
		if random.IntN(4) == 0 {
			tasks[i].Unique = fmt.Sprint("key ", random.IntN(5))
		}
	}
	inserted, err := s.Insert(s.ctx, tasks, time.Hour)
	if err != nil {
		return err
	}
	var tickets []message.Ticket
	for _, task := range inserted.Tasks {
		if random.IntN(5) > 0 {
			tickets = append(tickets, message.Ticket{Task: task.ID, Attempt: 1})
		}
	}
	claims, err := s.Claim(s.ctx, worker, store.AnyOf(kind, other), tickets, store.IntoExecutors)
	if err != nil {
		return err
	}
	var moves []holdfast.Transition
	for _, claim := range claims {
		if claim.Verdict != store.Claimed {
			continue
		}
		outcome := []error{nil, nil, nil, errors.New("not now"), holdfast.Permanent(errors.New("never"))}[random.IntN(5)]
		move, err := holdfast.Settle(*claim.Task, holdfast.Returned(outcome), claim.Now, policy())
		if err != nil {
			return err
		}
		moves = append(moves, move)
	}
	_, err = s.Apply(s.ctx, append(moves, moves...)) // the second half is refused
	return err
}

// operate cancels, retries or archives a task.
func (s *suite) operate(random *rand.Rand) error {
	page, err := s.List(s.ctx, store.Filter{Limit: 20})
	if err != nil || len(page.Tasks) == 0 {
		return err
	}
	task := page.Tasks[random.IntN(len(page.Tasks))]
	event := []holdfast.Event{holdfast.EventCancel, holdfast.EventRequeue, holdfast.EventArchive}[random.IntN(3)]
	move, err := holdfast.Settle(task, holdfast.Requested(event), task.CreatedAt, policy())
	if err != nil {
		return err
	}
	_, err = s.Apply(s.ctx, []holdfast.Transition{move})
	return err
}

// RunRecount checks that Recount corrects the counters after changes by hand. s is empty and migrated. begin
// begins a transaction on its database, and exec executes a statement for its tables.
func RunRecount(t *testing.T, s desk.Store, begin func() *sql.Tx, exec func(statement string)) {
	w := &suite{T: t, Store: s, ctx: t.Context()}
	tickets := w.insertN(20)
	w.move(w.mustClaim(w.registerWorker(), tickets[0])[0], holdfast.Returned(nil))
	for _, commit := range []bool{false, true} {
		tx := begin()
		if _, err := s.InsertTx(w.ctx, tx, []holdfast.NewTask{newTask(), newTask()}, time.Hour); err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		w.checkCounters()
	}
	for _, statement := range []string{
		"update tasks set type = 'edited' where id = 4",
		"delete from counts",
		"update counts set n = n + 1000 where state = 'done'",
		"insert into counts (queue, type, state, block, n) values ('gone', 'gone', 'all', 77, 5), ('gone', 'gone', 'dead', 78, 5)",
	} {
		exec(statement)
		if slices.Equal(w.groups(), w.real()) {
			t.Errorf("%s: the counters are right", statement)
		}
		if w.recount()+w.recount() == 0 {
			t.Errorf("%s: nothing was corrected", statement)
		}
		w.checkCounters()
	}
}
