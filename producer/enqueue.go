package producer

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// call is an Enqueue call that waits for its insert group.
type call struct {
	task       holdfast.NewTask
	done       chan struct{} // gets a value when result and err are set
	result     Result
	err        error
	callerLeft atomic.Bool // the caller's context has ended
}

// callBacklog is a set of calls that wait for an inserter. Calls with a unique key and calls with an ordered task have
// separate backlogs, because their inserts may wait for another transaction that holds the key.
type callBacklog struct {
	waiting   []*call
	inserting int // number of busy inserters
	storing   int // number of calls in their insert groups
	// locks says that an insert may wait for another transaction, which holds a key.
	locks bool
}

// wantsInserter reports whether the waiting calls should have another inserter, of at most so many. A second inserter
// starts only for as many calls as the first one stores. Fewer calls are stored earlier if they wait for those that come
// meanwhile and share their transaction. A caller that calls again after each answer would otherwise be stored alone. If
// an insert may wait for a key, the calls behind it do not wait for it.
func (l *callBacklog) wantsInserter(most int) bool {
	return l.inserting == 0 || l.inserting < most && (l.locks || len(l.waiting) >= l.storing)
}

// newCall returns a call. It reuses finished calls, because allocating a channel for each call takes measurable time.
func (p *Producer) newCall(task holdfast.NewTask) *call {
	c, ok := p.callPool.Get().(*call)
	if !ok {
		c = &call{done: make(chan struct{}, 1)}
	}
	c.task = task
	return c
}

// finish sets the result of the call and wakes its caller.
func (c *call) finish(result Result, err error) {
	c.result, c.err = result, err
	c.done <- struct{}{}
}

// Enqueue stores a task. The producer publishes its ticket after the call has returned. Concurrent calls share a
// transaction.
//
// If ctx ends while the insert is in progress, the task may or may not be stored. If the task has a unique key, it is
// safe to call Enqueue again.
func (p *Producer) Enqueue(ctx context.Context, task holdfast.NewTask) (Result, error) {
	settings := p.o.Settings.For(task.Type)
	if err := task.Complete(settings, p.o.MaxPayload, p.o.Check[task.Type]); err != nil {
		return Result{}, err
	}
	if p.o.Tracer == nil {
		return p.enqueue(ctx, task)
	}
	one := []holdfast.NewTask{task}
	end := p.o.Tracer.Enqueue(ctx, one)
	result, err := p.enqueue(ctx, one[0])
	end(result.ID, err)
	return result, err
}

// enqueue is Enqueue for a completed task.
func (p *Producer) enqueue(ctx context.Context, task holdfast.NewTask) (Result, error) {
	if err := p.publisher.admit(ctx, task.Subqueue()); err != nil {
		return Result{}, fmt.Errorf("enqueue: %w; the task was not stored", err)
	}
	c := p.newCall(task)
	if err := p.addCall(ctx, c); err != nil {
		return Result{}, err
	}
	select {
	case <-c.done:
		result, err := c.result, c.err
		c.task = holdfast.NewTask{}
		p.callPool.Put(c)
		return result, err
	case <-ctx.Done(): // c is not reused, because its insert group may still finish it
	}
	c.callerLeft.Store(true)
	if p.withdraw(c) {
		return Result{}, fmt.Errorf("enqueue: %w; the task was not stored", context.Cause(ctx))
	}
	return Result{}, fmt.Errorf("enqueue: %w; the task may have been stored", context.Cause(ctx))
}

// addCall adds the call to its backlog, and starts another inserter if the backlog wants one.
func (p *Producer) addCall(ctx context.Context, c *call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	l := p.backlogOf(c.task)
	l.waiting = append(l.waiting, c)
	if l.wantsInserter(p.inserters) {
		l.inserting++
		// The inserter also stores tasks of other callers, so it must not stop when this caller's context ends.
		ctx = context.WithoutCancel(ctx)
		p.calls.Go(func() { p.insertWaiting(ctx, l) })
	}
	return nil
}

func (p *Producer) backlogOf(task holdfast.NewTask) *callBacklog {
	switch {
	case task.Ordered:
		return &p.ordered
	case task.Unique != "":
		return &p.keyed
	}
	return &p.plain
}

// withdraw removes the call from its backlog. It returns false if an inserter has already taken the call.
func (p *Producer) withdraw(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.backlogOf(c.task)
	i := slices.Index(l.waiting, c)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// insertWaiting is the loop of an inserter. It stores the tasks of a backlog, one insert group after another, until the
// backlog no longer wants the inserter. While inserters are busy, calls accumulate. So insert groups grow with the load,
// and a single call does not wait for others.
func (p *Producer) insertWaiting(ctx context.Context, l *callBacklog) {
	for group := p.nextGroup(l, 0); len(group) > 0; group = p.nextGroup(l, len(group)) {
		p.insertGroup(ctx, group)
		if p.o.OneWriter { // callers that were answered and call again at once share the next group
			runtime.Gosched()
		}
	}
}

// nextGroup takes the calls of the next insert group from a backlog, after a group of so many calls. If the backlog does
// not want the inserter, it returns nil, and the inserter must end.
func (p *Producer) nextGroup(l *callBacklog, stored int) []*call {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.storing -= stored
	l.inserting--
	if len(l.waiting) == 0 || !l.wantsInserter(p.inserters) {
		return nil
	}
	l.inserting++
	group := slices.Clone(l.waiting[:fitting(l.waiting, func(c *call) int { return payloadOf(c.task) })])
	l.waiting = slices.Delete(l.waiting, 0, len(group))
	l.storing += len(group)
	return group
}

// insertGroup stores an insert group, finishes its calls, and adds their tickets to the publisher. If the store refuses
// a task, only the call of that task fails.
func (p *Producer) insertGroup(ctx context.Context, group []*call) {
	tasks, indexes := make([]holdfast.NewTask, len(group)), make([]int, len(group))
	for i, c := range group {
		tasks[i], indexes[i] = c.task, i
	}
	fail := func(i int, err error) { group[i].finish(Result{}, fmt.Errorf("enqueue: %w", err)) }
	work := partialInsert{
		producer: p, tasks: tasks, refused: fail,
		callerLeft: func(i int) bool { return group[i].callerLeft.Load() },
		stored: func(indexes []int, inserted store.Inserted) {
			for n, result := range p.resultsOf(inserted) {
				group[indexes[n]].finish(result, nil)
			}
			p.publisher.add(ctx, inserted.Entries, len(indexes))
		},
	}
	limited, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	undecided, err := work.insert(limited, indexes)
	for _, i := range undecided {
		fail(i, err)
	}
}
