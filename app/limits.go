package app

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast/store"
)

// Limited is the result of Backend.SetLimit.
type Limited struct {
	store.Changed[store.Limit]
	Reach
}

// SetLimit sets or changes a limit; see store.Limits. A queue must exist, as for Backend.Pause.
func (b *Backend) SetLimit(ctx context.Context, by store.Actor, c store.LimitChange) (Limited, error) {
	if err := b.checkQueue(ctx, c.Subject); err != nil {
		return Limited{}, err
	}
	changed, err := b.Store.SetLimit(ctx, by, c)
	if err != nil {
		return Limited{}, err
	}
	limited := Limited{Changed: changed}
	if limited.Reach, err = b.reach(ctx, c.Subject); err != nil {
		return limited, fmt.Errorf("the %s is set, but %w", c.Scope, err)
	}
	return limited, nil
}

// UnsetLimit removes the limit with a scope. It returns an ErrNotFound if no limit has the scope.
func (b *Backend) UnsetLimit(ctx context.Context, by store.Actor, s store.Scope) (store.Limit, error) {
	if err := b.checkQueue(ctx, s.Subject); err != nil {
		return store.Limit{}, err
	}
	return b.Store.UnsetLimit(ctx, by, s)
}
