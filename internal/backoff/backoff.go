// Package backoff provides growing pauses between the tries of a loop.
//
// Every loop of the module that sleeps and retries uses it. So all pauses grow, vary and end in the same way.
package backoff

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Pauses are the waits between the tries of one loop. Each pause is about twice as long as the previous one, up to a
// maximum. A jitter of ±50% separates processes that failed together. Pauses are not safe for concurrent use.
type Pauses struct{ exponential backoff.ExponentialBackOff }

// New returns pauses that begin at about first and grow to about longest.
func New(first, longest time.Duration) *Pauses {
	p := &Pauses{backoff.ExponentialBackOff{
		InitialInterval: first, MaxInterval: longest, Multiplier: 2, RandomizationFactor: 0.5,
	}}
	p.Reset()
	return p
}

// Next returns the next pause.
func (p *Pauses) Next() time.Duration { return p.exponential.NextBackOff() }

// Reset restarts the pauses at the first one.
func (p *Pauses) Reset() { p.exponential.Reset() }

// Wait sleeps for the next pause. If ctx is done first, Wait returns its cause.
func (p *Pauses) Wait(ctx context.Context) error { return Sleep(ctx, p.Next()) }

// Sleep returns nil after d. If ctx is done first, Sleep returns its cause.
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
