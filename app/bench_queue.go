package app

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/load"
	"github.com/holdfastq/holdfast/producer"
)

// benchType is the type of the measured tasks.
const benchType = "bench"

// BenchQueue stores and runs tasks of one type in the default queue of a backend, with all promises of the system. It
// also runs any other tasks in that queue, so no other program may use the backend; see Bench. It is safe for
// concurrent use.
type BenchQueue struct {
	backend  *Backend
	producer *producer.Producer
	observer holdfast.Observer
}

var _ load.Queue = (*BenchQueue)(nil)

// NewBenchQueue returns a queue over a backend. Closing the queue closes the backend. observer is for the worker and
// the janitor, so that a measurement can include the cost of metrics. It may be nil.
func NewBenchQueue(b *Backend, observer holdfast.Observer) *BenchQueue {
	own := *b
	own.Config.Roles = []string{configs.RoleWorker, configs.RoleJanitor}
	own.Config.Worker.Queues = []string{holdfast.DefaultQueue}
	return &BenchQueue{&own, own.Producer(nil), observer}
}

// Fill stores one task for each payload, in one call.
func (q *BenchQueue) Fill(ctx context.Context, payloads [][]byte) error {
	tasks := make([]holdfast.NewTask, len(payloads))
	for i, payload := range payloads {
		tasks[i] = benchTask(payload)
	}
	_, err := q.producer.EnqueueMany(ctx, tasks)
	return err
}

// Put stores one task that is due after delay.
func (q *BenchQueue) Put(ctx context.Context, payload []byte, delay time.Duration) error {
	task := benchTask(payload)
	task.Delay = delay
	_, err := q.producer.Enqueue(ctx, task)
	return err
}

func benchTask(payload []byte) holdfast.NewTask {
	return holdfast.NewTask{Type: benchType, Queue: holdfast.DefaultQueue, Payload: payload}
}

// Work runs a worker and a janitor, as Serve does, until ctx is done.
func (q *BenchQueue) Work(ctx context.Context, handle func(payload []byte) error) error {
	return Serve(ctx, ServeOptions{Backend: q.backend, Observer: q.observer, Handlers: func(r *consumer.Registry) {
		r.Add(benchType, consumer.HandlerFunc(func(_ context.Context, t holdfast.Task) error { return handle(t.Payload) }))
	}})
}

// Close waits for calls in progress and closes the backend.
func (q *BenchQueue) Close() error {
	return errors.Join(q.producer.Close(), q.backend.Close())
}
