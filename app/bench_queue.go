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

// benchType is the type of the tasks that are measured.
const benchType = "bench"

// BenchQueue is a backend as measurements see it: tasks of one type, in the default lane, with all promises kept. It runs
// whatever else waits in that lane, so the backend must have been made for it; see Bench. It is safe for concurrent use.
type BenchQueue struct {
	backend  *Backend
	producer *producer.Producer
	observer holdfast.Observer
}

var _ load.Queue = (*BenchQueue)(nil)

// NewBenchQueue returns a queue over a backend, which is the queue's to close. observer is the worker's and the janitor's:
// the metrics of a daemon take time too. It may be nil.
func NewBenchQueue(b *Backend, observer holdfast.Observer) *BenchQueue {
	own := *b
	own.Config.Roles = []string{configs.RoleWorker, configs.RoleJanitor}
	own.Config.Worker.Lanes = []string{holdfast.DefaultLane}
	return &BenchQueue{&own, own.Producer(nil), observer}
}

// Fill stores many tasks at once.
func (q *BenchQueue) Fill(ctx context.Context, payloads [][]byte) error {
	tasks := make([]holdfast.NewTask, len(payloads))
	for i, payload := range payloads {
		tasks[i] = benchTask(payload)
	}
	_, err := q.producer.EnqueueMany(ctx, tasks)
	return err
}

// Put stores one task.
func (q *BenchQueue) Put(ctx context.Context, payload []byte, delay time.Duration) error {
	task := benchTask(payload)
	task.Delay = delay
	_, err := q.producer.Enqueue(ctx, task)
	return err
}

func benchTask(payload []byte) holdfast.NewTask {
	return holdfast.NewTask{Type: benchType, Lane: holdfast.DefaultLane, Payload: payload}
}

// Work runs a worker and a janitor, as Serve does, until ctx is done.
func (q *BenchQueue) Work(ctx context.Context, handle func(payload []byte) error) error {
	return Serve(ctx, ServeOptions{Backend: q.backend, Observer: q.observer, Handlers: func(r *consumer.Registry) {
		r.Add(benchType, consumer.HandlerFunc(func(_ context.Context, t holdfast.Task) error { return handle(t.Payload) }))
	}})
}

// Close waits for calls under way and closes the backend.
func (q *BenchQueue) Close() error {
	return errors.Join(q.producer.Close(), q.backend.Close())
}
