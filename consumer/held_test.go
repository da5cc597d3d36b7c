package consumer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
)

// believer is a store that believes tasks to be held.
type believer struct {
	Store
	held  []holdfast.Task
	asked int
	read  [][2]holdfast.TaskID // the ranges
	apply func([]holdfast.Transition) ([]bool, error)
}

func (b *believer) Held(_ context.Context, _ holdfast.RunID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	if b.asked++; b.asked == 1 {
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

func (b *believer) Apply(_ context.Context, moves []holdfast.Transition) ([]bool, error) {
	return b.apply(moves)
}

var errAway = errors.New("no answer")

// What is being claimed, waits, runs, or has a result that is not written is in hand. The rest is handed back, and
// nobody can claim it beside that.
func TestOnlyForgottenTasksAreHandedBack(t *testing.T) {
	t.Parallel()
	b := &believer{}
	o := Options{Store: b, Handlers: &Registry{}, Concurrency: 1, Lease: time.Hour}
	ready := 0
	o.OnReady = func(time.Duration) { ready++ }
	s := testSession(t, o, time.Now())
	for n := 1; n <= 6; n++ {
		j := jobFor(n)
		j.task.Run = s.run
		b.held = append(b.held, j.task)
	}
	s.jobs.reserve([]message.Ticket{ticket(1), ticket(2), ticket(3), ticket(4)})
	block := make(chan struct{})
	defer close(block)
	s.jobs.start = func(*job) { <-block }
	jobs := []*job{jobFor(2), jobFor(3), jobFor(4)}
	for _, j := range jobs { // the first runs, the others wait
		s.jobs.add(j)
	}
	s.jobs.takeWaiting(time.Now().Add(time.Hour)) // these are judged

	tries := 0
	b.apply = func(moves []holdfast.Transition) ([]bool, error) {
		if fresh, _ := s.jobs.reserve([]message.Ticket{ticket(5), ticket(6)}); len(fresh) > 0 {
			t.Errorf("%v can be claimed while they are handed back", fresh)
		}
		if len(moves) != 2 || moves[0].Task != 5 || moves[1].Task != 6 || moves[0].Event != holdfast.EventInterrupt || moves[0].Run != s.run {
			t.Errorf("the moves are %+v", moves)
		}
		if tries++; tries < 3 {
			return nil, errAway
		}
		return []bool{true, false}, nil // one of them was settled meanwhile
	}
	s.touched.add([]message.Ticket{ticket(1), ticket(6)})
	s.handBackForgotten(t.Context(), errCommitsLost, s.touched.list())
	if tries != 3 || ready != 1 {
		t.Errorf("applied %d times, %d ready", tries, ready)
	}
	fresh, _ := s.jobs.reserve([]message.Ticket{ticket(1), ticket(2), ticket(3), ticket(4), ticket(5), ticket(6)})
	if !slices.Equal(fresh, []message.Ticket{ticket(5), ticket(6)}) {
		t.Errorf("free again are %v", fresh)
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
		case <-s.fellBack:
			look = true
		default:
		}
		if look != c.look {
			t.Errorf("history %q: a look is %t, want %t", c.history, look, c.look)
		}
	}
}

// A look reads only the neighborhood of what the run has asked for, a block at a time, however large the table is. Workers
// that look at the same time begin in different places.
func TestALookReadsOnlyWhatTheRunHasTouched(t *testing.T) {
	t.Parallel()
	b := &believer{asked: 1}
	s := testSession(t, Options{Store: b, Handlers: &Registry{}, Concurrency: 1, Lease: time.Hour}, time.Now())
	s.handBackForgotten(t.Context(), errCommitsLost, s.touched.list())
	if len(b.read) > 0 {
		t.Errorf("a run that has claimed nothing reads %v", b.read)
	}
	far := []holdfast.TaskID{0, 1, blockSize - 1, blockSize, 7*blockSize + 3, 5_000_000, 1 << 60}
	for _, id := range far {
		s.touched.add([]message.Ticket{{Task: id, Attempt: 1}})
	}
	firsts := map[holdfast.TaskID]bool{}
	for range 10 {
		b.read = nil
		s.handBackForgotten(t.Context(), errCommitsLost, s.touched.list())
		if len(b.read) != 5 {
			t.Fatalf("%d blocks were read: %v", len(b.read), b.read)
		}
		firsts[b.read[0][0]] = true
		for _, id := range far {
			if !slices.ContainsFunc(b.read, func(r [2]holdfast.TaskID) bool { return id > r[0] && id <= r[1] && r[1]-r[0] == blockSize }) {
				t.Fatalf("id %d was not read: %v", id, b.read)
			}
		}
	}
	if len(firsts) < 2 {
		t.Errorf("every look begins in the same place: %v", firsts)
	}
}

// A store that names no history may still find that it was set back.
func TestAHistoryThatIsNamedLateIsAChange(t *testing.T) {
	t.Parallel()
	s := testSession(t, Options{Handlers: &Registry{}, Concurrency: 1, Lease: time.Hour}, time.Now())
	s.noteHistory("")
	s.noteHistory("/1")
	if len(s.fellBack) != 1 {
		t.Error("no look follows")
	}
}

// After a failover that lost a run, its id may be given to another process, which runs the same tasks at the same attempts.
// What has finished is true all the same.
func TestAFencedRunHandsNothingBack(t *testing.T) {
	t.Parallel()
	var applied []holdfast.Transition
	b := &believer{apply: func(moves []holdfast.Transition) ([]bool, error) {
		applied = append(applied, moves...)
		return slices.Repeat([]bool{true}, len(moves)), nil
	}}
	s := testSession(t, Options{Store: b, Handlers: &Registry{}, Concurrency: 1, Lease: time.Hour}, time.Now())
	var batch []result
	for n, cause := range []holdfast.Cause{holdfast.Interrupted(holdfast.ErrLeaseLost), holdfast.Returned(nil), holdfast.Interrupted(holdfast.ErrLeaseLost)} {
		j := jobFor(n + 1)
		move, err := holdfast.Settle(j.task, cause, time.Now(), holdfast.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, result{job: j, move: move})
	}
	s.fenced.Store(true)
	accepted, err := s.apply(t.Context(), batch)
	if want := []bool{false, true, false}; err != nil || !slices.Equal(accepted, want) {
		t.Errorf("accepted are %v, %v, want %v", accepted, err, want)
	}
	if len(applied) != 1 || applied[0].Event != holdfast.EventComplete {
		t.Errorf("the store got %+v", applied)
	}
	if accepted, err := s.apply(t.Context(), batch[:1]); err != nil || accepted[0] || len(applied) != 1 {
		t.Errorf("alone: %v, %v", accepted, err)
	}
	s.fenced.Store(false)
	if accepted, err := s.apply(t.Context(), batch[:1]); err != nil || !accepted[0] {
		t.Errorf("of a run that is not fenced: %v, %v", accepted, err)
	}
}
