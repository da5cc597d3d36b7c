package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// pausedKey is the key of the tasks that the campaign pauses now and then.
const pausedKey = "paused"

// Pauses and the times between them last from leastPause to mostPause. Both are longer than a lease, in which a worker
// that is cut off from the database may start what it has claimed.
const (
	leastPause = 3 * lease
	mostPause  = 5 * lease
)

// Paused is the time from the end of the call that paused pausedKey until the begin of the call that resumed it.
type Paused struct{ Began, Ended time.Time }

// pause pauses and resumes pausedKey until ctx is done, and returns the pauses. At the end the key is not paused.
func (c *campaign) pause(ctx context.Context) (pauses []Paused) {
	by, subject := store.Actor{Name: "campaign", Surface: store.CommandLine}, store.Subject{Key: pausedKey}
	rng := rand.New(rand.NewPCG(c.Seed, 0x9b05688c2b3e6c1f))
	rest := func() { sleep(ctx, leastPause+time.Duration(rng.Int64N(int64(mostPause-leastPause)))) }
	for rest(); ctx.Err() == nil; rest() {
		done := untilDone(ctx, func(ctx context.Context) error {
			_, err := c.backend.Store.Pause(ctx, by, store.PauseFor(subject, 0))
			return err
		})
		paused := Paused{Began: time.Now()}
		rest()
		paused.Ended = time.Now()
		// Without a resume, the tasks never run, and Judge counts them as lost.
		untilDone(context.WithoutCancel(ctx), func(ctx context.Context) error {
			_, err := c.backend.Store.Resume(ctx, by, subject)
			if errors.Is(err, holdfast.ErrNotFound) { // an earlier call resumed it, and its answer was lost
				return nil
			}
			return err
		})
		if done {
			pauses = append(pauses, paused)
		}
	}
	return pauses
}

// untilDone calls f until it succeeds, because a fault may have hit the database. It reports false if ctx was done before,
// or readyLimit has passed.
func untilDone(ctx context.Context, f func(context.Context) error) bool {
	for until := time.Now().Add(readyLimit); ctx.Err() == nil && time.Now().Before(until); sleep(ctx, 200*time.Millisecond) {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := f(call)
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}
