package consumer

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// pause is a growing, jittered wait between tries.
type pause struct{ backoff *backoff.ExponentialBackOff }

func newPause() pause {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, time.Second
	b.Reset()
	return pause{b}
}

// wait returns early with the context's cause.
func (p pause) wait(ctx context.Context) error {
	timer := time.NewTimer(p.backoff.NextBackOff())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
