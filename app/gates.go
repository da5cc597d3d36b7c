package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Closed is the result of Backend.Pause and Backend.SetLimit.
type Closed[T store.Gate | store.Limit] struct {
	store.Changed[T]
	Warnings []string // why the gate may not do what its author expects
}

// Pause closes a gate, or changes it; see store.Gates. Pause returns an ErrNotFound if the queue does not exist,
// because a pause of a misspelled queue would have no effect.
func (b *Backend) Pause(ctx context.Context, by store.Actor, c store.PauseChange) (Closed[store.Gate], error) {
	return closed(ctx, b, c.Subject, "pause", c.Subject.String()+" is paused", func() (store.Changed[store.Gate], error) {
		return b.Store.Pause(ctx, by, c)
	})
}

// SetLimit sets or changes a limit; see store.Limits. The queue must exist, as for Backend.Pause.
func (b *Backend) SetLimit(ctx context.Context, by store.Actor, c store.LimitChange) (Closed[store.Limit], error) {
	return closed(ctx, b, c.Subject, "limit", "the "+c.Scope.String()+" is set", func() (store.Changed[store.Limit], error) {
		return b.Store.SetLimit(ctx, by, c)
	})
}

// closed closes a gate for s, and warns if the gate may not do what its author expects. kind names the gate in
// warnings, and done says in an error what has happened.
func closed[T store.Gate | store.Limit](
	ctx context.Context, b *Backend, s store.Subject, kind, done string, change func() (store.Changed[T], error),
) (c Closed[T], err error) {
	if err = b.checkQueue(ctx, s); err != nil {
		return c, err
	}
	if c.Changed, err = change(); err != nil {
		return c, err
	}
	if c.Warnings, err = b.warnings(ctx, s, kind); err != nil {
		return c, fmt.Errorf("%s, but %w", done, err)
	}
	return c, nil
}

// warnings returns why a gate that was closed for s may not do what its author expects.
func (b *Backend) warnings(ctx context.Context, s store.Subject, kind string) ([]string, error) {
	if s.Type == "" {
		return []string{}, nil
	}
	workers, err := b.Store.Workers(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("the workers are unknown: %w", err)
	}
	if slices.ContainsFunc(workers, func(w store.Worker) bool { return slices.Contains(w.Types, s.Type) }) {
		return []string{}, nil
	}
	counts, err := b.Store.Count(ctx, store.Filter{Type: s.Type})
	if err != nil {
		return nil, fmt.Errorf("its tasks are unknown: %w", err)
	}
	for _, n := range counts.By {
		if n > 0 {
			return []string{}, nil
		}
	}
	return []string{fmt.Sprintf(
		"no task of the type %q is stored, and no live worker has a handler for it; the %s is for tasks that come later", s.Type, kind)}, nil
}

// Resume ends the pause of a subject, and resets the breaker of a target. It returns an ErrNotFound if the subject has
// neither.
func (b *Backend) Resume(ctx context.Context, by store.Actor, s store.Subject) (store.Gate, error) {
	if err := b.checkQueue(ctx, s); err != nil {
		return store.Gate{}, err
	}
	return b.Store.Resume(ctx, by, s)
}

// UnsetLimit removes the limit with a scope. It returns an ErrNotFound if no limit has the scope.
func (b *Backend) UnsetLimit(ctx context.Context, by store.Actor, s store.Scope) (store.Limit, error) {
	if err := b.checkQueue(ctx, s.Subject); err != nil {
		return store.Limit{}, err
	}
	return b.Store.UnsetLimit(ctx, by, s)
}

// checkQueue returns an ErrNotFound if the queue of a subject does not exist. The store refuses a name that is not valid.
func (b *Backend) checkQueue(ctx context.Context, s store.Subject) error {
	if (store.Subject{Queue: s.Queue}).Validate() != nil {
		return nil
	}
	names, err := b.Store.QueueNames(ctx)
	names = holdfast.QueuesOf(names)
	if err != nil || slices.Contains(names, s.Queue) {
		return err
	}
	err = fmt.Errorf("%w: there is no queue %q", holdfast.ErrNotFound, s.Queue)
	if len(names) == 0 {
		return err
	}
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintKnownQueues, Arg: strings.Join(names, ", ")})
}
