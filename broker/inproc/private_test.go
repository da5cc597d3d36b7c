package inproc

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
)

func TestFifoAgainstASlice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f fifo
		var want []message
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 3*chunkSize)).Draw(t, "size")
				x := message{[]byte(strings.Repeat(fmt.Sprint(len(want)%10), size)), rapid.Uint64().Draw(t, "requeues")}
				f.push(x.requeues, x.body)
				want = append(want, x)
			},
			"pop": func(t *rapid.T) {
				if len(want) == 0 {
					t.Skip("empty")
				}
				if got := f.pop(); got.requeues != want[0].requeues || string(got.body) != string(want[0].body) {
					t.Fatalf("got %d %q", got.requeues, got.body)
				}
				want = want[1:]
			},
			"": func(t *rapid.T) {
				if f.length != len(want) {
					t.Fatalf("%d messages, want %d", f.length, len(want))
				}
				if f.head != nil && f.length == 0 && cap(f.head.data) > chunkSize {
					t.Fatal("an empty fifo keeps a large chunk")
				}
			},
		})
	})
}

func anyTag(t *rapid.T, l *ledger) uint64 {
	if l.last == 0 {
		t.Skip("no tags yet")
	}
	return rapid.Uint64Range(1, l.last).Draw(t, "tag")
}

func TestLedgerAgainstAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l ledger
		want := map[uint64]string{} // not settled
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					body := fmt.Sprint(l.last + 1)
					want[l.add(message{body: []byte(body)}, 1)] = body
				}
			},
			"settle": func(t *rapid.T) {
				tag := anyTag(t, &l)
				e, ok := l.settle(tag)
				if body, open := want[tag]; ok != open || string(e.body) != body {
					t.Fatalf("tag %d: got %q, %t", tag, e.body, ok)
				}
				delete(want, tag)
			},
			"settle up to": func(t *rapid.T) {
				tag, last := anyTag(t, &l), uint64(0)
				for e := range l.settleUpTo(tag) {
					if e.tag <= last || string(e.body) != want[e.tag] || e.tag > tag {
						t.Fatalf("got tag %d with %q after %d", e.tag, e.body, last)
					}
					last = e.tag
					delete(want, e.tag)
				}
				for left := range want {
					if left <= tag {
						t.Fatalf("tag %d was not yielded", left)
					}
				}
			},
			"withdraw": func(t *rapid.T) {
				last := l.last
				x, ok := l.withdraw()
				if body, open := want[last]; ok != open || string(x.body) != body || ok != (l.last < last) {
					t.Fatalf("got %q, %t", x.body, ok)
				}
				delete(want, last)
			},
			"": func(t *rapid.T) {
				if l.open != len(want) {
					t.Fatalf("%d open, %d entries, want %d", l.open, len(l.entries), len(want))
				}
				for _, tag := range []uint64{0, l.last + 1} {
					if !errors.Is(l.check(tag), holdfast.ErrInvalid) {
						t.Fatalf("check accepts tag %d, which was never given", tag)
					}
				}
			},
		})
	})
}

// TestTheLedgerOfALongHeldDelivery tests that the ledger remains small while one delivery is unsettled and many others
// are added and settled.
func TestTheLedgerOfALongHeldDelivery(t *testing.T) {
	t.Parallel()
	var l ledger
	pending := l.add(message{body: []byte("held")}, 1)
	for range 100_000 {
		if _, ok := l.settle(l.add(message{}, 1)); !ok {
			t.Fatal("not settled")
		}
	}
	if cap(l.entries) > 16 {
		t.Errorf("capacity for %d entries, want at most 16 for one delivery", cap(l.entries))
	}
	if e, ok := l.settle(pending); !ok || string(e.body) != "held" {
		t.Errorf("got %q, %t", e.body, ok)
	}
}

// rank is the position of a message in a queue. Requeued messages (class 0) precede fresh ones (class 1); each class is
// sorted by number.
type rank struct{ class, number int }

// sortedQueue is a simple model of a queue: the message with the lowest rank is next.
type sortedQueue struct {
	queue
	serial   int
	ready    map[string]rank
	dequeued map[string]rank
	pending  map[string]pendingMessage // dequeued messages
}

func (q *sortedQueue) choose(t *rapid.T) string {
	if len(q.pending) == 0 {
		t.Skip("nothing is dequeued")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(q.pending))).Draw(t, "message")
}

func (q *sortedQueue) first() (first string) {
	for body, r := range q.ready {
		if first == "" || cmp.Or(cmp.Compare(r.class, q.ready[first].class), cmp.Compare(r.number, q.ready[first].number)) < 0 {
			first = body
		}
	}
	return first
}

func (q *sortedQueue) dequeueOne(t *rapid.T) {
	if len(q.ready) == 0 {
		t.Skip("empty")
	}
	o, first := q.dequeue(), q.first()
	if string(o.body) != first {
		t.Fatalf("dequeued %q, want %q", o.body, first)
	}
	q.pending[first], q.dequeued[first] = o, q.ready[first]
	delete(q.ready, first)
}

func (q *sortedQueue) drop(body string) {
	delete(q.pending, body)
	delete(q.dequeued, body)
}

func TestTheOrderOfAQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := &sortedQueue{queue: queue{limit: -1}, ready: map[string]rank{}, dequeued: map[string]rank{}, pending: map[string]pendingMessage{}}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				q.serial++
				body := fmt.Sprint(q.serial)
				q.fresh.push(0, []byte(body))
				q.ready[body] = rank{1, q.serial}
			},
			"dequeue": q.dequeueOne, "dequeue more": q.dequeueOne,
			"put back": func(t *rapid.T) {
				body := q.choose(t)
				q.putBack(q.pending[body])
				q.ready[body] = q.dequeued[body]
				q.drop(body)
			},
			"requeue": func(t *rapid.T) {
				body := q.choose(t)
				q.serial++
				q.requeue(q.pending[body].message, nil)
				q.ready[body] = rank{0, q.serial}
				q.drop(body)
			},
			"settle": func(t *rapid.T) { q.drop(q.choose(t)) },
			"": func(t *rapid.T) {
				if q.available() != len(q.ready) {
					t.Fatalf("%d available, want %d", q.available(), len(q.ready))
				}
			},
		})
	})
}
