package consumer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// While the same priorities always have tasks, each starts its share, regardless of the past. The error is at most one
// page of each priority.
func TestEachPriorityGetsItsShare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const page, slack = 40, 2 * 40 * float64(levels)
		var s shares
		for range rapid.IntRange(0, 50).Draw(t, "pages before") { // priorities have tasks only at times
			s.started(rapid.IntRange(0, levels-1).Draw(t, "level"), rapid.IntRange(1, page).Draw(t, "tasks"))
		}
		var wanted [levels]bool
		sum := 0.0
		for l := range wanted {
			if wanted[l] = rapid.Bool().Draw(t, "wanted"); wanted[l] {
				sum += weights[l]
			}
		}
		if sum == 0 {
			if l := s.next(func(l int) bool { return wanted[l] }); l != -1 {
				t.Fatalf("no priority is wanted, and %d is next", l)
			}
			return
		}
		start := s // first a priority pays back what it had before
		var started [levels]int
		total := 0
		for total < 20_000 {
			l := s.next(func(l int) bool { return wanted[l] })
			if !wanted[l] {
				t.Fatalf("the next priority is %d, which is not wanted", l)
			}
			n := rapid.IntRange(1, page).Draw(t, "tasks")
			s.started(l, n)
			started[l], total = started[l]+n, total+n
		}
		for l := range wanted {
			if !wanted[l] {
				continue
			}
			debt := 0.0
			for other := range wanted {
				if wanted[other] {
					debt += weights[other] * (start.begin(other) - start.clock)
				}
			}
			share := float64(total) * weights[l] / sum
			if off := float64(started[l]) - share; off > debt+slack || off < -debt-slack {
				t.Fatalf("priority %d has started %d of %d tasks, its share is %.0f; before, the debt was %.0f", l, started[l], total, share, debt)
			}
		}
	})
}

// A priority that had no tasks goes first, regardless of how many lower priorities started.
func TestAPriorityThatWasIdleIsFirst(t *testing.T) {
	t.Parallel()
	var s shares
	for range 1000 {
		s.started(level(holdfast.PriorityLow), 400)
		s.started(level(holdfast.PriorityNormal), 7)
	}
	for _, p := range []holdfast.Priority{holdfast.PriorityHigh, holdfast.PriorityCritical} {
		if l := s.next(func(l int) bool { return l <= level(p) }); l != level(p) {
			t.Errorf("%s was idle, and the next priority is %d", p, l)
		}
	}
}

// A buffered job of a higher priority starts before jobs that were claimed earlier, and those keep their share.
func TestBufferedJobsStartByPriority(t *testing.T) {
	t.Parallel()
	w := newExecutors(1)
	defer w.jobs.stop()
	next := holdfast.TaskID(0)
	add := func(n int, p holdfast.Priority) {
		for range n {
			next++
			w.capacity.add(1)
			task := &holdfast.Task{ID: next, Attempt: 1, Priority: p}
			w.jobs.reserve([]message.Ticket{{Task: next, Attempt: 1}})
			w.jobs.add(&job{task: task, into: store.IntoBuffer, claimed: time.Now()})
		}
	}
	add(10, holdfast.PriorityLow)
	add(20, holdfast.PriorityCritical)
	var order []holdfast.Priority
	for w.count() > 0 {
		w.mu.Lock()
		order = append(order, w.running[0].task.Priority)
		w.mu.Unlock()
		w.end(0)
	}
	if order[1] != holdfast.PriorityCritical {
		t.Errorf("after the task that ran, %s starts", order[1])
	}
	lows := 0
	for _, p := range order[1:20] {
		if p == holdfast.PriorityLow {
			lows++
		}
	}
	if lows != 2 { // the priority low gets one start of nine
		t.Errorf("of 19 tasks %d are low: %v", lows, order)
	}
}

// A caller of a higher priority gets the next capacity before callers that waited longer.
func TestCapacityGoesToTheHighestPriority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCapacity(1)
		c.add(1)
		var order []holdfast.Priority
		got := make(chan holdfast.Priority)
		for _, p := range []holdfast.Priority{holdfast.PriorityLow, holdfast.PriorityNormal, holdfast.PriorityCritical, holdfast.PriorityHigh} {
			go func() {
				by := rank{priority: p}
				c.assign(c.reserve(t.Context(), 1, 1, 0, by), 1, by)
				got <- p
			}()
			synctest.Wait()
		}
		for range levels {
			c.release(1, store.IntoBuffer)
			order = append(order, <-got)
		}
		want := []holdfast.Priority{holdfast.PriorityCritical, holdfast.PriorityHigh, holdfast.PriorityNormal, holdfast.PriorityLow}
		if !slices.Equal(order, want) {
			t.Errorf("capacity goes to %v, want %v", order, want)
		}
	})
}
