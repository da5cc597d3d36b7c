package inproc_test

import (
	"runtime"
	"testing"

	"github.com/holdfastq/holdfast/broker"
)

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The test is not parallel, because it measures the heap of the whole process.
func TestABacklogIsCheapAndItsMemoryIsFreed(t *testing.T) {
	const count, batch, most = 1_000_000, 500, 60
	b := open(t)
	declare(t, b, "q")
	messages := make([]broker.Message, batch)
	for i := range messages {
		messages[i] = broker.Message{Queue: "q", Body: body}
	}
	before := heap()
	for range count / batch {
		_, err := b.Publish(t.Context(), messages)
		must(t, err)
	}
	each := float64(heap()-before) / count
	t.Logf("%.1f bytes for each waiting message of %d bytes", each, len(body))
	if each > most {
		t.Errorf("more than %d bytes", most)
	}

	sub := subscribe(t, b, "q", 1000)
	held := receive(t, sub) // stays unsettled while all other messages are settled
	for n := 2; n <= count; n++ {
		must(t, sub.Ack((<-sub.Deliveries()).Tag, broker.One))
	}
	if left := heap() - before; left > 1<<20 {
		t.Errorf("%d bytes are still in use after the queue was drained", left)
	}
	must(t, sub.Requeue(held.Tag))
	expect(t, sub, string(body))
}
