package surface

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// LimitScope is the part of a request that selects the tasks of a limit.
type LimitScope struct {
	Queue  string `json:"queue,omitempty" flag:"NAME" doc:"Only tasks of this queue."`
	Type   string `json:"type,omitempty" flag:"NAME" doc:"Only tasks of this type."`
	Key    string `json:"key,omitempty" flag:"KEY" doc:"Only tasks with this key."`
	Target string `json:"target,omitempty" flag:"URL" doc:"Only tasks of type http that call this target: a URL, of which the scheme, the host and the port count."`
	Per    string `json:"per,omitempty" flag:"FIELD" enum:"key,target" doc:"A limit of its own for each key or target."`
}

// Scope returns the scope that the request names. The store validates it.
func (r LimitScope) Scope() (s store.Scope, err error) {
	s = store.Scope{Subject: store.Subject{Queue: r.Queue, Type: r.Type, Key: r.Key}, Per: store.Per(r.Per)}
	if r.Target != "" {
		s.Target, err = parseTarget(r.Target)
	}
	return s, err
}

// NewLimit is a request to set a limit, or to change it.
type NewLimit struct {
	LimitScope
	Rate        Optional[string] `json:"rate,omitzero" flag:"RATE" doc:"How many tasks start in a time: 100/s, 5000/m, 10/h or 3/90s; null removes the rate; if it is missing, the rate stays."`
	Concurrency Optional[int]    `json:"concurrency,omitzero" flag:"N" doc:"How many tasks run at the same time; null removes it; if it is missing, it stays."`
	Reason      Optional[string] `json:"reason,omitzero" flag:"TEXT" doc:"Why, also for the audit log; null removes the reason; if it is missing, the reason of a limit stays."`
}

// change returns the change that the request describes.
func (r NewLimit) change() (c store.LimitChange, err error) {
	if !r.Rate.Given && !r.Concurrency.Given && !r.Reason.Given {
		return c, fmt.Errorf("%w: give a rate, a concurrency or a reason", holdfast.ErrInvalid)
	}
	if c.Scope, err = r.Scope(); err != nil {
		return c, err
	}
	c.NoReason = r.Reason.Removes("")
	if r.Rate.Given {
		c.Rate = new(store.Rate)
		if r.Rate.Value != nil {
			if *c.Rate, err = store.ParseRate(*r.Rate.Value); err != nil {
				return c, err
			}
		}
	}
	if r.Concurrency.Given {
		c.Concurrency = new(r.Concurrency.Or(0))
		if r.Concurrency.Value != nil && *c.Concurrency < 1 { // 0 would remove it
			return c, fmt.Errorf("%w: concurrency %d must be at least 1", holdfast.ErrInvalid, *c.Concurrency)
		}
	}
	return c, nil
}

// Limited is the answer to a request that sets a limit.
type Limited struct {
	store.Limit
	Before   *store.Limit `json:"before,omitempty" doc:"The limit before the change; missing if there was none."`
	Warnings []string     `json:"warnings" doc:"Why the limit may not do what the caller expects."`
}

// SetLimit sets or changes a limit; see store.Limits. check is [store.LimitChange.Check].
func SetLimit(ctx context.Context, b *app.Backend, by store.Actor, r NewLimit, check func(*store.Limit) error) (Limited, error) {
	c, err := r.change()
	if err != nil {
		return Limited{}, err
	}
	by.Reason, c.Check = r.Reason.Or(""), check
	l, err := b.SetLimit(ctx, by, c)
	return Limited{l.After, l.Before, l.Warnings}, err
}

// UnsetLimit removes the limit with a scope; see store.Limits.
func UnsetLimit(ctx context.Context, b *app.Backend, by store.Actor, r LimitScope) (store.Limit, error) {
	s, err := r.Scope()
	if err != nil {
		return store.Limit{}, err
	}
	return b.UnsetLimit(ctx, by, s)
}
