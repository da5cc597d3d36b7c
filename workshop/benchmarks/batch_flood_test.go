package benchmarks

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
)

// BenchmarkBatchFlood measures how much a batch with very many subtasks delays the subtasks of another type that has a
// queue of its own. Subtasks of both types take 10 ms. In each round it adds small pages for some seconds, once beside
// the flood and once alone. It reports the ratios of the waits, from a subtask's creation to its start.
func BenchmarkBatchFlood(b *testing.B) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	var halves, tails []float64
	for round := 0; b.Loop(); round++ {
		waits := make(map[string]map[string]float64)
		order := []string{"alone", "flooded"}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, role := range order {
			waits[role] = runRole(b, isolatedEnv(b, 1_000_000), role)
		}
		halves = append(halves, waits["flooded"]["p50"]/waits["alone"]["p50"])
		tails = append(tails, waits["flooded"]["p99"]/waits["alone"]["p99"])
		b.Logf("alone: p50 %.2f ms, p99 %.2f ms; beside the flood: p50 %.2f ms, p99 %.2f ms; %.0f subtasks of the flood ended",
			waits["alone"]["p50"], waits["alone"]["p99"], waits["flooded"]["p50"], waits["flooded"]["p99"], waits["flooded"]["flood"])
	}
	slices.Sort(halves)
	slices.Sort(tails)
	b.ReportMetric(halves[len(halves)/2], "p50-ratio")
	b.ReportMetric(tails[len(tails)/2], "p99-ratio")
	b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
}

// smallPages adds pages of subtasks of the type small for some seconds, and prints how long they waited. If flooded is
// set, a batch of the type flood runs at the same time.
func smallPages(flooded bool) func(int) error {
	return func(tasks int) error {
		const pages, perPage, pause, work = 40, 20, 150 * time.Millisecond, 10 * time.Millisecond
		var mu sync.Mutex
		var waits []float64
		ended := 0
		return runQueue(func(q *queue.Client) error {
			split := func(ctx context.Context, n int, to *queue.Split[int]) error {
				begin := 0
				if cursor := to.Cursor(); cursor != "" {
					begin, _ = strconv.Atoi(cursor)
				}
				for i := begin; i < n; i++ {
					if err := to.Add(ctx, i, strconv.Itoa(i+1)); err != nil {
						return err
					}
				}
				return nil
			}
			nothing := func(context.Context, holdfast.Task, int) (any, error) {
				time.Sleep(work)
				mu.Lock()
				defer mu.Unlock()
				ended++
				return nil, nil
			}
			if err := queue.HandleBatch(q, "flood", queue.Batch[int, int, any]{Split: split, Map: nothing}, queue.Queue("flood")); err != nil {
				return err
			}
			return queue.Handle(q, "small", func(_ context.Context, _ holdfast.Task, sent time.Time) error {
				wait := time.Since(sent).Seconds() * 1000
				time.Sleep(work)
				mu.Lock()
				defer mu.Unlock()
				waits = append(waits, wait)
				return nil
			}, queue.Queue("small"))
		}, func(ctx context.Context, q *queue.Client) error {
			if flooded {
				if _, err := q.StartBatch(ctx, "flood", tasks); err != nil {
					return err
				}
				time.Sleep(2 * time.Second) // the flood fills its window
			}
			small, err := q.OpenBatch(ctx)
			if err != nil {
				return err
			}
			for range pages {
				page := make([]any, perPage)
				for i := range page {
					page[i] = time.Now()
				}
				if err := small.Add(ctx, "small", page...); err != nil {
					return err
				}
				time.Sleep(pause)
			}
			if err := small.Seal(ctx); err != nil {
				return err
			}
			if _, err := q.WaitBatch(ctx, small.ID()); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(waits)
			fmt.Printf("p50 %f\np99 %f\nflood %d\n", waits[len(waits)/2], waits[len(waits)*99/100], ended)
			return nil
		})
	}
}
