package producer

import (
	"context"
	"errors"
	"fmt"

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

// EnqueueMany stores the tasks, a thousand or eight MiB in a transaction, and each part is published
// while the next is stored. Of each part it stores the tasks with unique keys after the others. The error is a *TaskError
// wrapping holdfast.ErrInvalid if a task is wrong; then nothing was stored. It is a TaskErrors if other open transactions hold
// unique keys of the tasks that it names; each of these wraps a *store.KeyHeldError, and has no result. After
// any other error the results are those of the leading tasks that are stored for certain.
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
	var held TaskErrors
	for stored := 0; stored < len(tasks); {
		part := make([]int, fitting(complete[stored:], payloadOf))
		for i := range part {
			part[i] = stored + i
		}
		plain, keyed := byKey(complete, part)
		err := p.admitPart(ctx, complete, part)
		if err == nil {
			err = p.insertPart(ctx, complete, plain, results)
		}
		if err == nil && len(keyed) > 0 {
			var more TaskErrors
			more, err = p.insertKeyed(ctx, complete, keyed, results)
			held = append(held, more...)
		}
		if err != nil {
			return results[:stored], errors.Join(held.orNil(), fmt.Errorf("store tasks: %w", err))
		}
		stored += len(part)
	}
	return results, held.orNil()
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

// insertKeyed stores the tasks of those indexes, which have unique keys, and returns those whose keys are held.
func (p *Producer) insertKeyed(ctx context.Context, tasks []holdfast.NewTask, indexes []int, results []Result) (held TaskErrors, err error) {
	err = p.insertPart(ctx, tasks, indexes, results)
	refused := new(store.KeyHeldError)
	switch {
	case !errors.As(err, &refused):
		return nil, err
	case len(indexes) == 1:
		return TaskErrors{{indexes[0], err}}, nil
	}
	for _, i := range indexes {
		one, err := p.insertKeyed(ctx, tasks, []int{i}, results)
		held = append(held, one...)
		if err != nil {
			return held, err
		}
	}
	return held, nil
}

// insertPart stores the tasks of those indexes in one transaction, and fills in their results.
func (p *Producer) insertPart(ctx context.Context, tasks []holdfast.NewTask, indexes []int, results []Result) error {
	if len(indexes) == 0 {
		return nil
	}
	part := make([]holdfast.NewTask, len(indexes))
	for n, i := range indexes {
		part[n] = tasks[i]
	}
	inserted, err := p.o.Store.Insert(ctx, part, p.o.OutboxGrace)
	if err != nil {
		return err
	}
	for n, result := range p.account(inserted) {
		results[indexes[n]] = result
	}
	p.publisher.hand(ctx, inserted.Receipts, 1)
	return nil
}
