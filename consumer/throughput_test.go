package consumer

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
)

func TestThroughputCoversTheLastTwoWindows(t *testing.T) {
	t.Parallel()
	began := time.Now()
	n := newThroughput(began)
	at := func(after time.Duration, want ...store.QueueThroughput) {
		t.Helper()
		if got := n.report(began.Add(after)); !slices.Equal(got, want) {
			t.Errorf("after %s: %+v, want %+v", after, got, want)
		}
	}
	at(time.Second)
	n.note("a", 3*time.Second)
	n.note("a", time.Second)
	n.note("b", time.Second)
	a, b := store.QueueThroughput{Queue: "a", Ended: 2, Mean: 2 * time.Second}, store.QueueThroughput{Queue: "b", Ended: 1, Mean: time.Second}
	over := func(q store.QueueThroughput, d time.Duration) store.QueueThroughput { q.Over = d; return q }
	at(5*time.Second, over(a, 5*time.Second), over(b, 5*time.Second))
	at(10*time.Second, over(a, 10*time.Second), over(b, 10*time.Second)) // the second window begins
	n.note("b", 5*time.Second)
	n.note("b", 5*time.Second)
	b.Ended, b.Mean = 3, 5*time.Second
	at(15*time.Second, over(b, 15*time.Second), over(a, 15*time.Second))
	at(20*time.Second, over(b, 20*time.Second), over(a, 20*time.Second)) // the third one begins
	a.Ended, b.Ended = 0, 2
	at(25*time.Second, over(b, 15*time.Second), over(a, 15*time.Second)) // the mean remains known
}
