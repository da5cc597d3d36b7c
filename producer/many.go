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

// TaskErrors are the errors of the tasks that the store refused. All other tasks of the call were stored.
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

// EnqueueMany stores the tasks in parts of at most 1000 tasks or 8 MiB. It publishes each part while it stores the
// next. In each part it stores the tasks with unique keys first, in a transaction of their own.
//
// If a task is invalid, the error is a *TaskError that wraps holdfast.ErrInvalid, and nothing was stored.
//
// If the store refused some tasks, the error is a TaskErrors with these tasks. Their results are zero, and all others
// were stored. Each of its errors wraps holdfast.ErrUnavailable or holdfast.ErrInvalid. ErrUnavailable means that
// another open transaction holds a unique key; the error is usually a *store.KeyHeldError. ErrInvalid means that the
// store cannot hold the task.
//
// After any other error there are fewer results than tasks. They are the results of the first tasks of the call. These
// were all stored, except those in the TaskErrors that the error may wrap. Of the remaining tasks, those with unique
// keys may be stored, and it is safe to repeat them. A remaining task without a unique key is stored only if its insert
// was in progress when ctx ended or the connection to the server was lost.
func (p *Producer) EnqueueMany(ctx context.Context, tasks []holdfast.NewTask) ([]Result, error) {
	complete, err := p.completeAll(tasks)
	if err != nil {
		return nil, err
	}
	if p.o.Tracer == nil {
		return p.enqueueMany(ctx, complete)
	}
	end := p.o.Tracer.Enqueue(ctx, complete)
	results, err := p.enqueueMany(ctx, complete)
	end(idOf(results), err)
	return results, err
}

// enqueueMany is EnqueueMany for completed tasks.
func (p *Producer) enqueueMany(ctx context.Context, tasks []holdfast.NewTask) ([]Result, error) {
	exit, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer exit()
	results := make([]Result, len(tasks))
	var refused TaskErrors
	work := partialInsert{
		producer: p, tasks: tasks,
		stored: func(indexes []int, inserted store.Inserted) {
			for n, result := range p.resultsOf(inserted) {
				results[indexes[n]] = result
			}
			p.publisher.add(ctx, inserted.Entries, 1)
		},
		refused: func(i int, err error) { refused = append(refused, &TaskError{i, err}) },
	}
	for stored := 0; stored < len(tasks); {
		part := make([]int, fitting(tasks[stored:], payloadOf))
		for i := range part {
			part[i] = stored + i
		}
		if undecided, err := p.insertPart(ctx, &work, part); err != nil {
			stored = slices.Min(undecided)
			return results[:stored], errors.Join(refused.sortedBefore(stored).orNil(), fmt.Errorf("store tasks: %w", err))
		}
		stored += len(part)
	}
	return results, refused.sortedBefore(len(tasks)).orNil()
}

// insertPart stores the tasks with the given indexes, those with unique keys first. If these fail, the caller can
// repeat all tasks. After an error it returns the indexes of the tasks that are neither certainly stored nor refused.
func (p *Producer) insertPart(ctx context.Context, work *partialInsert, part []int) (undecided []int, err error) {
	if err := p.admitPart(ctx, work.tasks, part); err != nil {
		return part, err
	}
	plain, keyed := splitByKey(work.tasks, part)
	work.until = time.Time{}
	if undecided, err = work.insert(ctx, keyed); err != nil {
		return append(undecided, plain...), err
	}
	return work.insert(ctx, plain)
}

// admitPart waits until the queues of the tasks with the given indexes admit more tasks.
func (p *Producer) admitPart(ctx context.Context, tasks []holdfast.NewTask, indexes []int) error {
	last := ""
	for _, i := range indexes {
		subqueue := tasks[i].Subqueue()
		if subqueue == last {
			continue
		}
		last = subqueue
		if err := p.publisher.admit(ctx, last); err != nil {
			return err
		}
	}
	return nil
}

// sortedBefore returns the errors of the tasks whose index is less than n, sorted by index. It modifies es.
func (es TaskErrors) sortedBefore(n int) TaskErrors {
	es = slices.DeleteFunc(es, func(e *TaskError) bool { return e.Index >= n })
	slices.SortFunc(es, func(a, b *TaskError) int { return cmp.Compare(a.Index, b.Index) })
	return es
}

// orNil returns es as an error, or nil if es is empty.
func (es TaskErrors) orNil() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

// splitByKey splits the indexes into those of tasks without and with a unique key. Ordered tasks are in the first list,
// in their order.
func splitByKey(tasks []holdfast.NewTask, indexes []int) (plain, keyed []int) {
	for _, i := range indexes {
		if tasks[i].Unique == "" || tasks[i].Ordered {
			plain = append(plain, i)
		} else {
			keyed = append(keyed, i)
		}
	}
	return plain, keyed
}
