package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// TaskErrors says which tasks of a call were not stored; all others were.
type TaskErrors []*TaskError

func (es TaskErrors) Error() string { return errors.Join(es.Unwrap()...).Error() }

// Unwrap returns the errors of the tasks.
func (es TaskErrors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, err := range es {
		errs[i] = err
	}
	return errs
}

// EnqueueMany stores the tasks in parts of a thousand tasks or eight MiB. It publishes each part while it stores the
// next. Of each part it stores the tasks with unique keys before the others, in a transaction of their own.
//
// The error is a *TaskError wrapping holdfast.ErrInvalid if a task is wrong; then nothing was stored. It is a TaskErrors if
// the store refused the tasks that it names, and stored all others. Each of these errors wraps a holdfast.ErrUnavailable if
// another open transaction holds a unique key, mostly as a *store.KeyHeldError, or a holdfast.ErrInvalid if the store cannot
// hold the task. The result of such a task is zero.
//
// After any other error there are fewer results than tasks: those of the leading tasks, of which all are stored for certain
// except those in the TaskErrors that the error wraps, if any. Of the tasks behind them, those with unique keys may be
// stored too, and it is safe to repeat them. A task without a unique key is stored behind them only if its insert was in
// progress when ctx ended or the server was lost.
func (p *Producer) EnqueueMany(ctx context.Context, tasks []holdfast.NewTask) ([]Result, error) {
	complete, err := p.completeAll(tasks)
	if err != nil {
		return nil, err
	}
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	results := make([]Result, len(tasks))
	var refused TaskErrors
	work := separation{
		producer: p, tasks: complete,
		stored: func(indexes []int, inserted store.Inserted) {
			for n, result := range p.account(inserted) {
				results[indexes[n]] = result
			}
			p.publisher.hand(ctx, inserted.Receipts, 1)
		},
		refused: func(i int, err error) { refused = append(refused, &TaskError{i, err}) },
	}
	for stored := 0; stored < len(tasks); {
		part := make([]int, fitting(complete[stored:], payloadOf))
		for i := range part {
			part[i] = stored + i
		}
		if undecided, err := p.insertPart(ctx, &work, part); err != nil {
			stored = slices.Min(undecided)
			return results[:stored], errors.Join(refused.before(stored).orNil(), fmt.Errorf("store tasks: %w", err))
		}
		stored += len(part)
	}
	return results, refused.before(len(tasks)).orNil()
}

// insertPart stores the tasks of those indexes. After an error it returns the indexes of the tasks that are neither
// stored for certain nor refused. Tasks with unique keys come first: if they fail, the caller can repeat all.
func (p *Producer) insertPart(ctx context.Context, work *separation, part []int) (undecided []int, err error) {
	if err := p.admitPart(ctx, work.tasks, part); err != nil {
		return part, err
	}
	plain, keyed := byKey(work.tasks, part)
	work.until = time.Time{}
	if undecided, err = work.insert(ctx, keyed); err != nil {
		return append(undecided, plain...), err
	}
	return work.insert(ctx, plain)
}

// admitPart waits for the queues of the tasks of those indexes.
func (p *Producer) admitPart(ctx context.Context, tasks []holdfast.NewTask, indexes []int) error {
	last := ""
	for _, i := range indexes {
		if tasks[i].Lane == last {
			continue
		}
		last = tasks[i].Lane
		if err := p.publisher.admit(ctx, last); err != nil {
			return err
		}
	}
	return nil
}

// before returns the errors of the tasks whose index is less than n, in their order.
func (es TaskErrors) before(n int) TaskErrors {
	es = slices.DeleteFunc(es, func(e *TaskError) bool { return e.Index >= n })
	slices.SortFunc(es, func(a, b *TaskError) int { return cmp.Compare(a.Index, b.Index) })
	return es
}

// orNil returns no error if there are none.
func (es TaskErrors) orNil() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

// byKey divides the tasks of those indexes into those without and those with a unique key.
func byKey(tasks []holdfast.NewTask, indexes []int) (plain, keyed []int) {
	for _, i := range indexes {
		if tasks[i].Unique == "" {
			plain = append(plain, i)
		} else {
			keyed = append(keyed, i)
		}
	}
	return plain, keyed
}
