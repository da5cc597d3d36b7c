package producer

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// call is one Enqueue that waits for its batch.
type call struct {
	task   holdfast.NewTask
	done   chan struct{} // gets a value when result and err are set
	result Result
	err    error
	gone   atomic.Bool // its caller has left
}

// line is where calls wait for an inserter. Calls with a unique key have a separate line, because such an insert may
// have to wait for another transaction that holds the key.
type line struct {
	waiting   []*call
	inserting int // inserters that are busy
}

// newCall returns one that was answered before, if there is one: with hundreds at once, a new channel for each shows.
func (p *Producer) newCall(task holdfast.NewTask) *call {
	c, ok := p.answered.Get().(*call)
	if !ok {
		c = &call{done: make(chan struct{}, 1)}
	}
	c.task = task
	return c
}

// answer ends the call.
func (c *call) answer(result Result, err error) {
	c.result, c.err = result, err
	c.done <- struct{}{}
}

// Enqueue stores one task; its ticket is published while the caller goes on. Calls that come
// together share one transaction.
//
// If ctx ends while the task's batch is on its way, the task may be stored or not; a
// Unique key makes it safe to call again.
func (p *Producer) Enqueue(ctx context.Context, task holdfast.NewTask) (Result, error) {
	task, err := p.complete(task)
	if err != nil {
		return Result{}, err
	}
	if err := p.publisher.admit(ctx, task.Lane); err != nil {
		return Result{}, fmt.Errorf("enqueue: %w; the task was not stored", err)
	}
	c := p.newCall(task)
	if err := p.join(ctx, c); err != nil {
		return Result{}, err
	}
	select {
	case <-c.done:
		result, err := c.result, c.err
		c.task = holdfast.NewTask{}
		p.answered.Put(c)
		return result, err
	case <-ctx.Done(): // its batch may answer yet: it is no other caller's
	}
	c.gone.Store(true)
	if p.leave(c) {
		return Result{}, fmt.Errorf("enqueue: %w; the task was not stored", context.Cause(ctx))
	}
	return Result{}, fmt.Errorf("enqueue: %w; the task may have been stored", context.Cause(ctx))
}

// join puts the call among those that wait, and starts an inserter if not all of them are busy.
func (p *Producer) join(ctx context.Context, c *call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	l := p.lineOf(c.task)
	l.waiting = append(l.waiting, c)
	if l.inserting < inserters {
		l.inserting++
		// The inserter also stores tasks of other callers, so the end of this caller's context must not stop it.
		ctx = context.WithoutCancel(ctx)
		p.calls.Go(func() { p.insertWaiting(ctx, l) })
	}
	return nil
}

func (p *Producer) lineOf(task holdfast.NewTask) *line {
	if task.Unique != "" {
		return &p.keyed
	}
	return &p.plain
}

// leave takes the call back if it has not started.
func (p *Producer) leave(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lineOf(c.task)
	i := slices.Index(l.waiting, c)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// insertWaiting is an inserter: it stores what waits in the line, batch after batch, until no call waits. While all inserters are busy,
// calls gather, so batches grow with the load and a lone call waits for no other.
func (p *Producer) insertWaiting(ctx context.Context, l *line) {
	for batch := p.next(l); len(batch) > 0; batch = p.next(l) {
		p.send(ctx, batch)
	}
}

// next takes the calls of one batch. If no call waits, the inserter ends.
func (p *Producer) next(l *line) []*call {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(l.waiting) == 0 {
		l.inserting--
		return nil
	}
	batch := slices.Clone(l.waiting[:fitting(l.waiting, func(c *call) int { return payloadOf(c.task) })])
	l.waiting = slices.Delete(l.waiting, 0, len(batch))
	return batch
}

// send stores one batch, answers its calls and hands their tickets to the publisher. A task that the store refuses
// fails its own call only.
func (p *Producer) send(ctx context.Context, batch []*call) {
	tasks, indexes := make([]holdfast.NewTask, len(batch)), make([]int, len(batch))
	for i, c := range batch {
		tasks[i], indexes[i] = c.task, i
	}
	fail := func(i int, err error) { batch[i].answer(Result{}, fmt.Errorf("enqueue: %w", err)) }
	work := separation{
		producer: p, tasks: tasks, refused: fail,
		gone: func(i int) bool { return batch[i].gone.Load() },
		stored: func(indexes []int, inserted store.Inserted) {
			for n, result := range p.account(inserted) {
				batch[indexes[n]].answer(result, nil)
			}
			p.publisher.hand(ctx, inserted.Receipts, len(indexes))
		},
	}
	limited, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	undecided, err := work.insert(limited, indexes)
	for _, i := range undecided {
		fail(i, err)
	}
}
