// Package backoff waits between the tries of a loop.
//
// Every loop of the module that sleeps and tries again uses it, so that all of them grow, jitter and end alike.
package backoff

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Pauses are the waits between the tries of one loop. Each pause is about twice the one before, up to a longest one. A
// jitter of half a pause separates processes that failed together. Pauses are for one goroutine.
type Pauses struct{ exponential backoff.ExponentialBackOff }

// New returns pauses that begin with about first and grow to about longest.
func New(first, longest time.Duration) *Pauses {
	p := &Pauses{backoff.ExponentialBackOff{
		InitialInterval: first, MaxInterval: longest, Multiplier: 2, RandomizationFactor: 0.5,
	}}
	p.Reset()
	return p
}

// Next returns the next pause.
func (p *Pauses) Next() time.Duration { return p.exponential.NextBackOff() }

// Reset makes the next pause the first one again.
func (p *Pauses) Reset() { p.exponential.Reset() }

// Wait sleeps for the next pause. If ctx ends first, Wait returns the context's cause.
func (p *Pauses) Wait(ctx context.Context) error { return Sleep(ctx, p.Next()) }

// Sleep returns nil after d. If ctx ends first, Sleep returns the context's cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
