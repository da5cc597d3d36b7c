package consumer

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// throughputWindow is the length of a window in which a worker counts ended attempts. The worker reports the current
// window together with the one before.
const throughputWindow = 10 * time.Second

// throughput counts ended attempts by subqueue.
type throughput struct {
	mu       sync.Mutex
	current  map[string]ended
	before   map[string]ended
	began    time.Time // beginning of the current window
	earlier  time.Time // beginning of the window before
	lastMean map[string]time.Duration
}

// ended is a number of ended attempts and their total duration.
type ended struct {
	attempts int
	took     time.Duration
}

func newThroughput(now time.Time) *throughput {
	return &throughput{current: make(map[string]ended), lastMean: make(map[string]time.Duration), began: now, earlier: now}
}

// note counts an ended attempt.
func (t *throughput) note(queue string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.current[queue]
	t.current[queue] = ended{e.attempts + 1, e.took + took}
}

// report returns the throughput of the queues that have ended attempts.
func (t *throughput) report(now time.Time) []store.QueueThroughput {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []store.QueueThroughput
	for _, counts := range []map[string]ended{t.before, t.current} {
		for queue, e := range counts {
			t.lastMean[queue] = e.took / time.Duration(e.attempts)
		}
	}
	for queue, mean := range t.lastMean {
		list = append(list, store.QueueThroughput{
			Queue: queue, Ended: t.before[queue].attempts + t.current[queue].attempts, Over: now.Sub(t.earlier), Mean: mean,
		})
	}
	if now.Sub(t.began) >= throughputWindow {
		t.before, t.earlier = maps.Clone(t.current), t.began
		clear(t.current)
		t.began = now
	}
	slices.SortFunc(list, func(a, b store.QueueThroughput) int {
		return cmp.Or(cmp.Compare(b.Ended, a.Ended), cmp.Compare(a.Queue, b.Queue))
	})
	return list[:min(len(list), store.MaxThroughput)]
}
