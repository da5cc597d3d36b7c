package benchmarks

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

var (
	orderRounds = flag.Int("order.rounds", 5, "BenchmarkOrder: number of rounds")
	orderKeys   = flag.Int("order.keys", 5_000, "BenchmarkOrder: number of keys")
	orderEach   = flag.Int("order.each", 10, "BenchmarkOrder: number of tasks of each key")
	orderChain  = flag.Int("order.chain", 500, "BenchmarkOrder: number of ordered tasks of a single key")
)

// BenchmarkOrder measures how many tasks of many keys run in a second if they are ordered and if they are not; the
// conditions take turns. It also measures the time from the start of a task to the start of the next one if all tasks
// have the same key. It fails if tasks of a key do not start in their order.
func BenchmarkOrder(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			s := fixtures(b, backend, 1)[0]
			rates := make(map[bool][]float64)
			var steps []float64
			for b.Loop() {
				for round := range *orderRounds {
					for i := range 2 {
						ordered := (i+round)%2 == 1
						rate, _ := s.runKeys(b, *orderKeys, *orderEach, ordered)
						rates[ordered] = append(rates[ordered], rate)
					}
					_, chain := s.runKeys(b, 1, *orderChain, true)
					steps = append(steps, chain...)
				}
				b.ReportMetric(quantile(rates[false], 0.5), "unordered/s")
				b.ReportMetric(quantile(rates[true], 0.5), "ordered/s")
				b.ReportMetric(quantile(rates[true], 0.5)/quantile(rates[false], 0.5), "ratio")
				b.ReportMetric(1000*quantile(steps, 0.5), "step-p50-ms")
				b.ReportMetric(1000*quantile(steps, 0.99), "step-p99-ms")
				b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
			}
		})
	}
}

// runKeys stores the same number of tasks for each key, one key after the other, so that most of them wait. It returns
// how many of them ran in a second, from the first Enqueue to the last start, and the seconds between two starts of a
// key.
func (s *txFixture) runKeys(b *testing.B, keys, each int, ordered bool) (rate float64, steps []float64) {
	b.Helper()
	tasks := make([]holdfast.NewTask, keys*each)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "timed", Key: fmt.Sprint("key-", i/each), Ordered: ordered}
	}
	keyOf := make(map[holdfast.TaskID]int, len(tasks))
	began := time.Now()
	for part := range slices.Chunk(tasks, 1000) {
		results, err := s.producer.EnqueueMany(b.Context(), part)
		if err != nil {
			b.Fatal(err)
		}
		for _, result := range results {
			keyOf[result.ID] = len(keyOf) / each
		}
	}
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		n := len(s.started)
		s.mu.Unlock()
		if n >= len(tasks) {
			break
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d tasks have run", n, len(tasks))
		}
	}
	s.mu.Lock()
	started := maps.Clone(s.started)
	clear(s.started)
	s.mu.Unlock()
	last, lastOf := began, make(map[int]time.Time)
	for _, id := range slices.SortedFunc(maps.Keys(started), cmp.Compare) {
		at, key := started[id], keyOf[id]
		if before, ok := lastOf[key]; ok && ordered {
			if at.Before(before) {
				b.Fatalf("task %s of key %d started before an earlier one", id, key)
			}
			steps = append(steps, at.Sub(before).Seconds())
		}
		lastOf[key] = at
		if at.After(last) {
			last = at
		}
	}
	return float64(len(tasks)) / last.Sub(began).Seconds(), steps
}
