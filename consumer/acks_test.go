package consumer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast/broker"
)

// wire is a subscription that records what a broker would make of acks and requeues.
type wire struct {
	broker.Subscription
	acked, requeued map[uint64]bool
	received        uint64
}

func (w *wire) Ack(tag uint64, mode broker.AckMode) error {
	first := tag
	if mode == broker.UpTo {
		first = 1
	}
	for t := first; t <= tag; t++ {
		if !w.requeued[t] {
			w.acked[t] = true
		}
	}
	return nil
}

func (w *wire) Requeue(tags ...uint64) error {
	for _, t := range tags {
		w.requeued[t] = true
	}
	return nil
}

// However deliveries finish, none is acked before it is finished or given back, and in the end
// every one is settled.
func TestAcksCoverOnlyFinishedDeliveries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &wire{acked: map[uint64]bool{}, requeued: map[uint64]bool{}}
		a := &acks{sub: w}
		settled := map[uint64]bool{}
		var open []uint64
		settle := func(n int, give bool) {
			tags := make([]uint64, 0, n)
			for range n {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				tags = append(tags, open[i])
				settled[open[i]] = true
				open = append(open[:i], open[i+1:]...)
			}
			var err error
			if give {
				err = a.giveBack(tags)
			} else {
				err = a.finish(tags)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "receive") {
				w.received++
				a.received(w.received)
				open = append(open, w.received)
			} else {
				settle(rapid.IntRange(1, len(open)).Draw(t, "n"), rapid.Bool().Draw(t, "give"))
			}
			for tag := range w.acked {
				if !settled[tag] {
					t.Fatalf("tag %d was acked before it was finished", tag)
				}
			}
		}
		if len(open) > 0 {
			settle(len(open), false)
		}
		for tag := uint64(1); tag <= w.received; tag++ {
			if !w.acked[tag] && !w.requeued[tag] {
				t.Fatalf("tag %d was never settled", tag)
			}
		}
		if len(a.queue) != 0 {
			t.Fatalf("%d deliveries are still remembered", len(a.queue))
		}
	})
}

// The run's cursor never passes a page with an open task, and reaches the last page when all
// are finished, in whatever order.
func TestSettledCursorStopsAtOpenPages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPages()
		left := map[int64]int{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if len(left) == 0 || rapid.Bool().Draw(t, "begin") {
				n := rapid.IntRange(1, 4).Draw(t, "tasks")
				left[p.begin(n)] = n
			} else {
				page := rapid.SampledFrom(keys(left)).Draw(t, "page")
				n := rapid.IntRange(1, left[page]).Draw(t, "n")
				p.finish(page, n)
				if left[page] -= n; left[page] == 0 {
					delete(left, page)
				}
			}
			_, settled := p.cursors()
			for page := range left {
				if page <= settled {
					t.Fatalf("page %d has open tasks, but the cursor is at %d", page, settled)
				}
			}
		}
		for page, n := range left {
			p.finish(page, n)
		}
		if taken, settled := p.cursors(); taken != settled {
			t.Fatalf("everything is finished, but of %d pages the cursor settled %d", taken, settled)
		}
	})
}

func keys(m map[int64]int) []int64 {
	var all []int64
	for page := int64(1); len(all) < len(m); page++ {
		if _, ok := m[page]; ok {
			all = append(all, page)
		}
	}
	return all
}
