package measure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/producer"
)

// measurePriorities stores a backlog of low tasks that do nothing. One worker with the default concurrency works it
// off, in the process that stores the tasks. Meanwhile measurePriorities stores one high task after the other and
// measures how soon each one runs. It fails if the backlog ends before the last high task has run.
func measurePriorities(ctx context.Context, tb *testbed) ([]Figure, error) {
	f := Figure{Name: "A high task overtakes a backlog", What: fmt.Sprintf("return of Enqueue for a high task behind %d low tasks that do nothing, until the task runs", tb.o.Backlog), Unit: seconds}
	var low atomic.Int64
	high := make(chan time.Time, 1) // when each high task ran
	c := tb.services(ctx)
	p := tb.Producer(nil)
	defer p.Close()
	err := c.janitor()
	if err == nil {
		err = storeLow(ctx, p, tb.o.Backlog)
	}
	if err == nil {
		err = c.worker("worker", "nothing", 0, func(_ context.Context, task holdfast.Task) error {
			if task.Priority == holdfast.PriorityHigh {
				high <- time.Now()
			} else {
				low.Add(1)
			}
			return nil
		})
	}
	if err == nil {
		err = poll(ctx, waitLimit, func(context.Context) (bool, error) { return low.Load() > 0, nil })
	}
	for n := -1; err == nil && n < 8*tb.o.Trials; n++ {
		var waited time.Duration
		// The first task does not count: it waits until a janitor has declared the AMQP queues of the priority.
		if waited, err = waitOfHigh(ctx, p, high); err == nil && n >= 0 {
			f.Samples = append(f.Samples, waited.Seconds())
		}
	}
	if ran := low.Load(); err == nil && ran >= int64(tb.o.Backlog) {
		err = fmt.Errorf("all %d low tasks ran before the last high task; measure with a larger backlog", ran)
	}
	if ending := c.end(); err == nil {
		err = ending
	}
	return []Figure{f}, err
}

// storeLow stores n low tasks.
func storeLow(ctx context.Context, p *producer.Producer, n int) error {
	const part = 20_000 // limits the memory of a call
	tasks := make([]holdfast.NewTask, min(n, part))
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "nothing", Priority: holdfast.PriorityLow}
	}
	for stored := 0; stored < n; stored += part {
		if _, err := p.EnqueueMany(ctx, tasks[:min(part, n-stored)]); err != nil {
			return fmt.Errorf("store low tasks: %w", err)
		}
	}
	return nil
}

// waitOfHigh stores a high task, whose start the handler sends to high. It returns how long after the return of Enqueue
// the task ran, or 0 if the task ran before.
func waitOfHigh(ctx context.Context, p *producer.Producer, high <-chan time.Time) (time.Duration, error) {
	if _, err := p.Enqueue(ctx, holdfast.NewTask{Type: "nothing", Priority: holdfast.PriorityHigh}); err != nil {
		return 0, err
	}
	returned := time.Now()
	select {
	case began := <-high:
		return max(0, began.Sub(returned)), nil
	case <-time.After(waitLimit):
		return 0, fmt.Errorf("a high task did not run within %s", waitLimit)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
