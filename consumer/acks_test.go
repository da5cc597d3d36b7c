package consumer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast/broker"
)

// fakeSubscription is a subscription that records which deliveries are acked and requeued.
type fakeSubscription struct {
	broker.Subscription
	acked, requeued map[uint64]bool
	received        uint64
}

func (w *fakeSubscription) Ack(tag uint64, mode broker.AckMode) error {
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

func (w *fakeSubscription) Requeue(tags ...uint64) error {
	for _, t := range tags {
		w.requeued[t] = true
	}
	return nil
}

// Deliveries finish in random order. acks never acks a delivery before it is finished or requeued, and settles all of
// them in the end.
func TestAcksCoverOnlyFinishedDeliveries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &fakeSubscription{acked: map[uint64]bool{}, requeued: map[uint64]bool{}}
		a := &acks{sub: w}
		settled := map[uint64]bool{}
		var open []uint64
		settle := func(n int, requeue bool) {
			tags := make([]uint64, 0, n)
			for range n {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				tags = append(tags, open[i])
				settled[open[i]] = true
				open = append(open[:i], open[i+1:]...)
			}
			var err error
			if requeue {
				err = a.requeue(tags)
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
				settle(rapid.IntRange(1, len(open)).Draw(t, "n"), rapid.Bool().Draw(t, "requeue"))
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
		if len(a.unacked) != 0 {
			t.Fatalf("%d deliveries are still unacked", len(a.unacked))
		}
	})
}

// Tasks finish in random order. The settled cursor never passes a page with an unfinished task, and reaches the last
// page when all tasks are finished.
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
					t.Fatalf("page %d has unfinished tasks, but the cursor is at %d", page, settled)
				}
			}
		}
		for page, n := range left {
			p.finish(page, n)
		}
		if taken, settled := p.cursors(); taken != settled {
			t.Fatalf("all tasks are finished, but the cursor is at %d of %d pages", settled, taken)
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
