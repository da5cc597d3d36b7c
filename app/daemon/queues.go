package daemon

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/surface"
)

const (
	// backlogAge is how old the published figures of queues may be, because the store reads all tasks that wait.
	backlogAge = 15 * time.Second
	// maxQueues is the maximum number of queues with gauges, and each priority counts.
	maxQueues = 1000
)

// newQueueCollector publishes the tasks of each queue by state, how long the oldest task that could run has waited, and
// the workers and executors.
func newQueueCollector(from surface.BacklogReader) *collector {
	const (
		tasks, oldest      = "holdfast_queue_tasks", "holdfast_queue_oldest_seconds"
		workers, executors = "holdfast_workers", "holdfast_executors"
	)
	read := atMostEvery(backlogAge, func(ctx context.Context) (surface.Backlog, error) { return surface.ReadBacklog(ctx, from) })
	queue, state := []string{"queue", "priority"}, []string{"state"}
	return newCollector([]gauge{
		{tasks, "Tasks of the queue by state, in the whole system. The ready tasks include those that are due, blocked or parked.", append(queue, state...)},
		{oldest, "At most how long the oldest task that could run now has been due. Tasks of a paused queue, and blocked, parked and delayed tasks do not count.", queue},
		{workers, "Workers with a valid lease, in the whole system.", state},
		{executors, "Executors of the workers, in the whole system, at their latest renewals.", state},
	}, func(ctx context.Context, set setter) error {
		b, err := read(ctx)
		if err != nil {
			return err
		}
		for _, q := range b.Queues[:min(len(b.Queues), maxQueues)] {
			for of, n := range map[string]int64{
				"ready": q.Ready, "due": q.Due, "running": q.Running, "blocked": q.Blocked, "parked": q.Parked, "dead": q.Dead,
			} {
				set(tasks, float64(n), q.Queue, q.Priority, of)
			}
			age := time.Duration(q.Oldest)
			if q.Due == 0 || q.Paused != nil {
				age = 0
			}
			set(oldest, age.Seconds(), q.Queue, q.Priority)
		}
		counts, of := b.Count()
		set(workers, float64(counts.Live), "live")
		set(workers, float64(counts.Draining), "draining")
		set(executors, float64(of.Busy), "busy")
		set(executors, float64(of.Free), "free")
		return nil
	})
}

// atMostEvery returns a function that reads a value at most once in a time, however often and by how many clients it is
// called. A failed read is repeated by the next call.
func atMostEvery[T any](age time.Duration, read func(context.Context) (T, error)) func(context.Context) (T, error) {
	lock := make(chan struct{}, 1)
	var value T
	var at time.Time
	return func(ctx context.Context) (T, error) {
		select {
		case lock <- struct{}{}:
			defer func() { <-lock }()
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
		if !at.IsZero() && time.Since(at) < age {
			return value, nil
		}
		fresh, err := read(ctx)
		if err == nil {
			value, at = fresh, time.Now()
		}
		return fresh, err
	}
}
