package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Paused is the result of Backend.Pause.
type Paused struct {
	store.Changed[store.Gate]
	Reach
}

// Reach says why a new gate may not do what its author expects.
type Reach struct {
	// Gateless are the live workers that ignore the gate, because their builds have no gates.
	Gateless []store.Worker
	// UnknownType means that no task of the type of the gate is stored, and that no live worker reports a handler for it.
	UnknownType bool
}

// Pause closes a gate, or changes it; see store.Gates. A queue must exist, because a pause of a misspelled name would have
// no effect. Pause returns an ErrNotFound if it does not.
func (b *Backend) Pause(ctx context.Context, by store.Actor, c store.PauseChange) (Paused, error) {
	if err := b.checkQueue(ctx, c.Subject); err != nil {
		return Paused{}, err
	}
	changed, err := b.Store.Pause(ctx, by, c)
	if err != nil {
		return Paused{}, err
	}
	paused := Paused{Changed: changed}
	if paused.Reach, err = b.reach(ctx, c.Subject); err != nil {
		return paused, fmt.Errorf("%s is paused, but %w", c.Subject, err)
	}
	return paused, nil
}

// reach returns the reach of a gate that was closed for s.
func (b *Backend) reach(ctx context.Context, s store.Subject) (r Reach, err error) {
	workers, err := b.Store.Workers(ctx, false)
	if err != nil {
		return r, fmt.Errorf("the workers are unknown: %w", err)
	}
	for _, w := range workers {
		if w.Gateless {
			r.Gateless = append(r.Gateless, w)
		}
	}
	if s.Type != "" && !slices.ContainsFunc(workers, func(w store.Worker) bool { return slices.Contains(w.Types, s.Type) }) {
		counts, err := b.Store.Count(ctx, store.Filter{Type: s.Type})
		if err != nil {
			return r, fmt.Errorf("its tasks are unknown: %w", err)
		}
		r.UnknownType = true
		for _, n := range counts.By {
			r.UnknownType = r.UnknownType && n == 0
		}
	}
	return r, nil
}

// Resume opens the gate that Pause has closed, and resets the breaker of a target. It returns an ErrNotFound if the
// subject has neither.
func (b *Backend) Resume(ctx context.Context, by store.Actor, s store.Subject) (store.Gate, error) {
	if err := b.checkQueue(ctx, s); err != nil {
		return store.Gate{}, err
	}
	return b.Store.Resume(ctx, by, s)
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
