package consumer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

// believer is a store that believes tasks to be held.
type believer struct {
	Store
	held  []holdfast.Task
	asked int
	apply func([]holdfast.Transition) ([]bool, error)
}

func (b *believer) Held(context.Context, holdfast.RunID) ([]holdfast.Task, error) {
	if b.asked++; b.asked == 1 {
		return nil, errAway
	}
	return b.held, nil
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
	s.jobs.reserve([]holdfast.Ticket{ticket(1), ticket(2), ticket(3), ticket(4)})
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
		if fresh, _ := s.jobs.reserve([]holdfast.Ticket{ticket(5), ticket(6)}); len(fresh) > 0 {
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
	s.handBackForgotten(t.Context())
	if tries != 3 || ready != 1 {
		t.Errorf("applied %d times, %d ready", tries, ready)
	}
	fresh, _ := s.jobs.reserve([]holdfast.Ticket{ticket(1), ticket(2), ticket(3), ticket(4), ticket(5), ticket(6)})
	if !slices.Equal(fresh, []holdfast.Ticket{ticket(5), ticket(6)}) {
		t.Errorf("free again are %v", fresh)
	}
}

func TestAChangedHistoryIsNoticedOnce(t *testing.T) {
	t.Parallel()
	s := testSession(t, Options{Handlers: &Registry{}, Concurrency: 1, Lease: time.Hour}, time.Now())
	for _, c := range []struct {
		history string
		look    bool
	}{{"", false}, {"1", false}, {"1", false}, {"", false}, {"1", false}, {"2", true}, {"2", false}, {"", false}, {"3", true}, {"2", true}} {
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
