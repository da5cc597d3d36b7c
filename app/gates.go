package app

import (
	"context"
	"errors"
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

// Pause closes a gate, or changes it; see store.Gates. A queue that does not exist yet is a warning, because its name may
// be misspelled.
func (b *Backend) Pause(ctx context.Context, by store.Actor, c store.PauseChange) (Closed[store.Gate], error) {
	return closed(ctx, b, c.Subject, "pause", c.Subject.String()+" is paused", func() (store.Changed[store.Gate], error) {
		return b.Store.Pause(ctx, by, c)
	})
}

// SetLimit sets or changes a limit; see store.Limits. It warns as Backend.Pause does.
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
	warnings := []string{}
	known, names, err := b.knowsQueue(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("the queues are unknown: %w", err)
	}
	if !known {
		warning := fmt.Sprintf("there is no queue %q yet; the %s is for tasks that come later", s.Queue, kind)
		if len(names) > 0 {
			warning += "; the queues are: " + strings.Join(names, ", ")
		}
		warnings = append(warnings, warning)
	}
	if s.Type == "" {
		return warnings, nil
	}
	workers, err := b.Store.Workers(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("the workers are unknown: %w", err)
	}
	if slices.ContainsFunc(workers, func(w store.Worker) bool { return slices.Contains(w.Types, s.Type) }) {
		return warnings, nil
	}
	counts, err := b.Store.Count(ctx, store.Filter{Type: s.Type})
	if err != nil {
		return nil, fmt.Errorf("its tasks are unknown: %w", err)
	}
	for _, n := range counts.By {
		if n > 0 {
			return warnings, nil
		}
	}
	return append(warnings, fmt.Sprintf(
		"no task of the type %q is stored, and no live worker has a handler for it; the %s is for tasks that come later", s.Type, kind)), nil
}

// Resume ends the pause of a subject, and resets the breaker of a target. It returns an ErrNotFound if the subject has
// neither.
func (b *Backend) Resume(ctx context.Context, by store.Actor, s store.Subject) (store.Gate, error) {
	gate, err := b.Store.Resume(ctx, by, s)
	return gate, b.orNoQueue(ctx, s, err)
}

// UnsetLimit removes the limit with a scope. It returns an ErrNotFound if no limit has the scope.
func (b *Backend) UnsetLimit(ctx context.Context, by store.Actor, s store.Scope) (store.Limit, error) {
	limit, err := b.Store.UnsetLimit(ctx, by, s)
	return limit, b.orNoQueue(ctx, s.Subject, err)
}

// orNoQueue returns err. If err is an ErrNotFound and the queue of the subject does not exist, orNoQueue returns an
// ErrNotFound that names the queue.
func (b *Backend) orNoQueue(ctx context.Context, s store.Subject, err error) error {
	if !errors.Is(err, holdfast.ErrNotFound) {
		return err
	}
	known, names, unknown := b.knowsQueue(ctx, s)
	if known || unknown != nil {
		return err
	}
	err = fmt.Errorf("%w: there is no queue %q", holdfast.ErrNotFound, s.Queue)
	if len(names) == 0 {
		return err
	}
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintKnownQueues, Arg: strings.Join(names, ", ")})
}

// knowsQueue reports whether the queue of a subject exists, or the subject has none. It also returns the names of all
// queues.
func (b *Backend) knowsQueue(ctx context.Context, s store.Subject) (known bool, names []string, err error) {
	if s.Queue == "" {
		return true, nil, nil
	}
	names, err = b.Store.QueueNames(ctx)
	names = holdfast.QueuesOf(names)
	return slices.Contains(names, s.Queue), names, err
}
