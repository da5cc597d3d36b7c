package app

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Limited is the result of Backend.SetLimit.
type Limited struct {
	Limit store.Limit
	Reach
}

// SetLimit sets or replaces a limit; see store.Limits. A queue must exist, as for Backend.Pause.
func (b *Backend) SetLimit(ctx context.Context, by store.Actor, l store.Limit) (Limited, error) {
	if err := l.Validate(); err != nil {
		return Limited{}, err
	}
	if err := b.checkQueue(ctx, l.Subject); err != nil {
		return Limited{}, err
	}
	set, err := b.Store.SetLimit(ctx, by, l)
	if err != nil {
		return Limited{}, err
	}
	limited := Limited{Limit: set}
	if limited.Reach, err = b.reach(ctx, l.Subject); err != nil {
		return limited, fmt.Errorf("the %s is set, but %w", l.Scope, err)
	}
	return limited, nil
}

// UnsetLimit removes the limit with a scope. It returns an ErrNotFound if no limit has the scope.
func (b *Backend) UnsetLimit(ctx context.Context, by store.Actor, s store.Scope) (store.Limit, error) {
	if err := s.Validate(); err != nil {
		return store.Limit{}, err
	}
	if err := b.checkQueue(ctx, s.Subject); err != nil {
		return store.Limit{}, err
	}
	return b.Store.UnsetLimit(ctx, by, s)
}

// UnsetLimitByID removes the limit with an id. It returns an ErrNotFound if no limit has that id.
func (b *Backend) UnsetLimitByID(ctx context.Context, by store.Actor, id store.ID) (store.Limit, error) {
	limits, err := b.Store.Limits(ctx)
	if err != nil {
		return store.Limit{}, err
	}
	i := slices.IndexFunc(limits, func(l store.LimitUse) bool { return l.ID == id })
	if i < 0 {
		return store.Limit{}, fmt.Errorf("%w: there is no limit %s", holdfast.ErrNotFound, id)
	}
	return b.Store.UnsetLimit(ctx, by, limits[i].Scope)
}
