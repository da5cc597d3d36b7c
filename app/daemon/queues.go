package daemon

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// queueReader is the part of a store from which the gauges of queues and workers are read.
type queueReader interface {
	Queues(ctx context.Context) ([]store.Queue, error)
	BlockedByQueue(ctx context.Context) (store.BlockedCounts, error)
	Gates(ctx context.Context) ([]store.Gate, error)
	Workers(ctx context.Context, ended bool) ([]store.Worker, error)
}

const (
	// backlogAge is how old the published figures of queues may be, because the store reads all tasks that wait.
	backlogAge = 15 * time.Second
	// maxQueues is the maximum number of queues with gauges, and each priority counts.
	maxQueues = 1000
)

// backlog is what a person watches of the queues and the workers.
type backlog struct {
	queues  []store.Queue
	blocked map[string]int64 // by subqueue
	paused  map[string]bool  // by queue
	workers []store.Worker
}

// newQueueCollector publishes the tasks of each queue by state, how long the oldest task that could run has waited, and
// the workers and executors.
func newQueueCollector(from queueReader) *collector {
	const (
		tasks, oldest      = "holdfast_queue_tasks", "holdfast_queue_oldest_seconds"
		workers, executors = "holdfast_workers", "holdfast_executors"
	)
	read := atMostEvery(backlogAge, func(ctx context.Context) (backlog, error) { return readBacklog(ctx, from) })
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
		for _, q := range b.queues[:min(len(b.queues), maxQueues)] {
			name, priority := q.Name, q.Priority.String()
			for of, n := range map[string]int64{
				"ready": q.Ready, "due": q.Due, "running": q.Running, "blocked": b.blocked[q.Subqueue()], "parked": q.Parked, "dead": q.Dead,
			} {
				set(tasks, float64(n), name, priority, of)
			}
			age := q.OldestDue
			if q.Due == 0 || b.paused[q.Name] {
				age = 0
			}
			set(oldest, age.Seconds(), name, priority)
		}
		live, draining, busy, free := 0, 0, 0, 0
		for _, w := range b.workers {
			if w.Draining {
				draining++
			} else {
				live++
				free += max(w.Concurrency-w.Running, 0)
			}
			busy += w.Running
		}
		set(workers, float64(live), "live")
		set(workers, float64(draining), "draining")
		set(executors, float64(busy), "busy")
		set(executors, float64(free), "free")
		return nil
	})
}

func readBacklog(ctx context.Context, from queueReader) (b backlog, err error) {
	if b.queues, err = from.Queues(ctx); err != nil {
		return b, err
	}
	blocked, err := from.BlockedByQueue(ctx)
	if err != nil {
		return b, err
	}
	gates, err := from.Gates(ctx)
	if err != nil {
		return b, err
	}
	b.blocked, b.paused = blocked.Tasks, make(map[string]bool)
	for _, gate := range gates {
		if gate.Kind == store.GatePause && gate.Subject == (store.Subject{Queue: gate.Queue}) {
			b.paused[gate.Queue] = true
		}
	}
	b.workers, err = from.Workers(ctx, false)
	return b, err
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
