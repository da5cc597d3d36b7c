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
		var want []letter
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 3*chunkSize)).Draw(t, "size")
				x := letter{[]byte(strings.Repeat(fmt.Sprint(len(want)%10), size)), rapid.Uint64().Draw(t, "returns")}
				f.push(x.returns, x.body)
				want = append(want, x)
			},
			"pop": func(t *rapid.T) {
				if len(want) == 0 {
					t.Skip("empty")
				}
				if got := f.pop(); got.returns != want[0].returns || string(got.body) != string(want[0].body) {
					t.Fatalf("got %d %q", got.returns, got.body)
				}
				want = want[1:]
			},
			"": func(t *rapid.T) {
				if f.length != len(want) {
					t.Fatalf("%d letters, want %d", f.length, len(want))
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
		t.Skip("nothing yet")
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
					want[l.add(letter{body: []byte(body)}, 1)] = body
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
						t.Fatalf("tag %d was left out", left)
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
						t.Fatalf("tag %d passes for one that was received", tag)
					}
				}
			},
		})
	})
}

// TestTheLedgerOfALongHeldDelivery is about its size while others pass by.
func TestTheLedgerOfALongHeldDelivery(t *testing.T) {
	t.Parallel()
	var l ledger
	held := l.add(letter{body: []byte("held")}, 1)
	for range 100_000 {
		if _, ok := l.settle(l.add(letter{}, 1)); !ok {
			t.Fatal("not settled")
		}
	}
	if cap(l.entries) > 16 {
		t.Errorf("room for %d entries, for one delivery", cap(l.entries))
	}
	if e, ok := l.settle(held); !ok || string(e.body) != "held" {
		t.Errorf("got %q, %t", e.body, ok)
	}
}

// rank is where a message stands: returned before fresh, each in their order.
type rank struct{ class, number int }

// sortedQueue is the simplest idea of a queue: ranks, of which the lowest goes first.
type sortedQueue struct {
	queue
	serial int
	waits  map[string]rank
	taken  map[string]rank
	offers map[string]offer // of taken
}

func (q *sortedQueue) choose(t *rapid.T) string {
	if len(q.offers) == 0 {
		t.Skip("nothing is taken")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(q.offers))).Draw(t, "message")
}

func (q *sortedQueue) first() (first string) {
	for body, r := range q.waits {
		if first == "" || cmp.Or(cmp.Compare(r.class, q.waits[first].class), cmp.Compare(r.number, q.waits[first].number)) < 0 {
			first = body
		}
	}
	return first
}

func (q *sortedQueue) takeOne(t *rapid.T) {
	if len(q.waits) == 0 {
		t.Skip("empty")
	}
	o, first := q.take(), q.first()
	if string(o.body) != first {
		t.Fatalf("took %q, want %q", o.body, first)
	}
	q.offers[first], q.taken[first] = o, q.waits[first]
	delete(q.waits, first)
}

func (q *sortedQueue) drop(body string) {
	delete(q.offers, body)
	delete(q.taken, body)
}

func TestTheOrderOfAQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := &sortedQueue{queue: queue{limit: -1}, waits: map[string]rank{}, taken: map[string]rank{}, offers: map[string]offer{}}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				q.serial++
				body := fmt.Sprint(q.serial)
				q.fresh.push(0, []byte(body))
				q.waits[body] = rank{1, q.serial}
			},
			"take": q.takeOne, "take more": q.takeOne,
			"restore": func(t *rapid.T) {
				body := q.choose(t)
				q.restore(q.offers[body])
				q.waits[body] = q.taken[body]
				q.drop(body)
			},
			"give back": func(t *rapid.T) {
				body := q.choose(t)
				q.serial++
				q.giveBack(q.offers[body].letter, nil)
				q.waits[body] = rank{0, q.serial}
				q.drop(body)
			},
			"settle": func(t *rapid.T) { q.drop(q.choose(t)) },
			"": func(t *rapid.T) {
				if q.waiting() != len(q.waits) {
					t.Fatalf("%d wait, want %d", q.waiting(), len(q.waits))
				}
			},
		})
	})
}
