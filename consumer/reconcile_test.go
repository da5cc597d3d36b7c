package consumer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// heldStore is a store with tasks that run under the worker.
type heldStore struct {
	Store
	held  []holdfast.Task
	calls int
	read  [][2]holdfast.TaskID // the ranges that were read
	apply func([]holdfast.Transition) ([]bool, error)
}

func (b *heldStore) Held(_ context.Context, _ holdfast.WorkerID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	if b.calls++; b.calls == 1 {
		return nil, errAway
	}
	b.read = append(b.read, [2]holdfast.TaskID{after, through})
	var held []holdfast.Task
	for _, task := range b.held {
		if task.ID > after && task.ID <= through {
			held = append(held, task)
		}
	}
	return held, nil
}

func (b *heldStore) Apply(_ context.Context, moves []holdfast.Transition) ([]bool, error) {
	return b.apply(moves)
}

var errAway = errors.New("no answer")

// Tasks that are being claimed, wait, run, or have an unwritten result are in progress. The worker hands back all other
// tasks that run under it in the store. These tasks cannot be claimed meanwhile.
func TestOnlyForgottenTasksAreHandedBack(t *testing.T) {
	t.Parallel()
	b := &heldStore{}
	o := Options{Store: b, Handlers: &Registry{}, Concurrency: 1, Lease: time.Hour}
	ready := 0
	o.OnReady = func(time.Duration) { ready++ }
	s := testSession(t, o, time.Now())
	for n := 1; n <= 6; n++ {
		j := jobFor(n)
		j.task.Worker = s.worker
		b.held = append(b.held, *j.task)
	}
	s.jobs.reserve([]message.Ticket{ticket(1), ticket(2), ticket(3), ticket(4)})
	block := make(chan struct{})
	defer close(block)
	s.jobs.start = func(*job) { <-block }
	jobs := []*job{jobFor(2), jobFor(3), jobFor(4)}
	for _, j := range jobs { // the first job runs, the others wait
		s.jobs.add(j)
	}
	s.jobs.takeWaiting(time.Now().Add(time.Hour)) // marks the waiting jobs as finished

	tries := 0
	b.apply = func(moves []holdfast.Transition) ([]bool, error) {
		if fresh, _ := s.jobs.reserve([]message.Ticket{ticket(5), ticket(6)}); len(fresh) > 0 {
			t.Errorf("%v can be claimed during the hand-back", fresh)
		}
		if len(moves) != 2 || moves[0].Task != 5 || moves[1].Task != 6 || moves[0].Event != holdfast.EventInterrupt || moves[0].Worker != s.worker {
			t.Errorf("the moves are %+v", moves)
		}
		if tries++; tries < 3 {
			return nil, errAway
		}
		return []bool{true, false}, nil // one of them was settled in between
	}
	s.claimedIDs.add([]message.Ticket{ticket(1), ticket(6)})
	s.handBackForgotten(t.Context(), errCommitsLost, s.claimedIDs.list())
	if tries != 3 || ready != 1 {
		t.Errorf("%d calls of Apply, %d ready tasks", tries, ready)
	}
	fresh, _ := s.jobs.reserve([]message.Ticket{ticket(1), ticket(2), ticket(3), ticket(4), ticket(5), ticket(6)})
	if !slices.Equal(fresh, []message.Ticket{ticket(5), ticket(6)}) {
		t.Errorf("%v can be claimed after the hand-back", fresh)
	}
}

func TestAChangedHistoryIsNoticedOnce(t *testing.T) {
	t.Parallel()
	s := testSession(t, Options{Handlers: &Registry{}, Concurrency: 1, Lease: time.Hour}, time.Now())
	for _, c := range []struct {
		history string
		look    bool
	}{{"1", false}, {"1", false}, {"", false}, {"1", false}, {"2", true}, {"2", false}, {"", false}, {"3", true}, {"2", true}} {
		s.noteHistory(c.history)
		look := false
		select {
		case <-s.historyChanged:
			look = true
		default:
		}
		if look != c.look {
			t.Errorf("history %q: reconcile is %t, want %t", c.history, look, c.look)
		}
	}
}

// A search reads only the id ranges in which the worker has claimed tasks, one range at a time. Workers that search at
// the same time begin with different ranges.
func TestALookReadsOnlyWhatTheWorkerHasTouched(t *testing.T) {
	t.Parallel()
	b := &heldStore{calls: 1}
	s := testSession(t, Options{Store: b, Handlers: &Registry{}, Concurrency: 1, Lease: time.Hour}, time.Now())
	s.handBackForgotten(t.Context(), errCommitsLost, s.claimedIDs.list())
	if len(b.read) > 0 {
		t.Errorf("a worker without claims reads %v", b.read)
	}
	far := []holdfast.TaskID{0, 1, rangeSize - 1, rangeSize, 7*rangeSize + 3, 5_000_000, 1 << 60}
	for _, id := range far {
		s.claimedIDs.add([]message.Ticket{{Task: id, Attempt: 1}})
	}
	firsts := map[holdfast.TaskID]bool{}
	for range 10 {
		b.read = nil
		s.handBackForgotten(t.Context(), errCommitsLost, s.claimedIDs.list())
		if len(b.read) != 5 {
			t.Fatalf("%d id ranges were read: %v", len(b.read), b.read)
		}
		firsts[b.read[0][0]] = true
		for _, id := range far {
			if !slices.ContainsFunc(b.read, func(r [2]holdfast.TaskID) bool { return id > r[0] && id <= r[1] && r[1]-r[0] == rangeSize }) {
				t.Fatalf("id %d was not read: %v", id, b.read)
			}
		}
	}
	if len(firsts) < 2 {
		t.Errorf("all looks begin with the same range: %v", firsts)
	}
}

// A store without a history may get one when it is restored from a snapshot. That is a change.
func TestAHistoryThatIsNamedLateIsAChange(t *testing.T) {
	t.Parallel()
	s := testSession(t, Options{Handlers: &Registry{}, Concurrency: 1, Lease: time.Hour}, time.Now())
	s.noteHistory("")
	s.noteHistory("/1")
	if len(s.historyChanged) != 1 {
		t.Error("the change is not noticed")
	}
}

// A fenced worker hands no task back, because the janitor does that and charges a crash. The worker still writes the
// results of finished tasks.
func TestAFencedWorkerHandsNothingBack(t *testing.T) {
	t.Parallel()
	var applied []holdfast.Transition
	b := &heldStore{apply: func(moves []holdfast.Transition) ([]bool, error) {
		applied = append(applied, moves...)
		return slices.Repeat([]bool{true}, len(moves)), nil
	}}
	s := testSession(t, Options{Store: b, Handlers: &Registry{}, Concurrency: 1, Lease: time.Hour}, time.Now())
	var g group
	for n, cause := range []holdfast.Cause{holdfast.Interrupted(holdfast.ErrLeaseLost), holdfast.Returned(nil), holdfast.Interrupted(holdfast.ErrLeaseLost)} {
		j := jobFor(n + 1)
		move, err := holdfast.Settle(*j.task, cause, time.Now(), holdfast.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		g = g.append([]*job{j}, []holdfast.Transition{move})
	}
	s.fenced.Store(true)
	accepted, err := s.apply(t.Context(), g)
	if want := []bool{false, true, false}; err != nil || !slices.Equal(accepted, want) {
		t.Errorf("accepted are %v, %v, want %v", accepted, err, want)
	}
	if len(applied) != 1 || applied[0].Event != holdfast.EventComplete {
		t.Errorf("the store got %+v", applied)
	}
	if accepted, err := s.apply(t.Context(), g.part(0, 1)); err != nil || accepted[0] || len(applied) != 1 {
		t.Errorf("one hand-back: %v, %v", accepted, err)
	}
	s.fenced.Store(false)
	if accepted, err := s.apply(t.Context(), g.part(0, 1)); err != nil || !accepted[0] {
		t.Errorf("a hand-back of a worker that is not fenced: %v, %v", accepted, err)
	}
}
