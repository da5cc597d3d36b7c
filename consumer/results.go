package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
)

// result is a judged job that waits to be committed.
type result struct {
	job  *job
	move holdfast.Transition
	took time.Duration
}

// results gather while earlier ones are being written, so batches grow with the load and
// a lone result waits for nobody.
type results struct {
	mu      sync.Mutex
	waiting []result
	open    int           // waiting or being written
	some    chan struct{} // has a token while results may wait
	none    chan struct{} // closed while open is 0
}

func newResults() *results {
	r := &results{some: make(chan struct{}, 1), none: make(chan struct{})}
	close(r.none)
	return r
}

func (r *results) add(one result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == 0 {
		r.none = make(chan struct{})
	}
	r.open++
	r.waiting = append(r.waiting, one)
	r.signal()
}

func (r *results) signal() {
	select {
	case r.some <- struct{}{}:
	default:
	}
}

// take removes the oldest results, at most n.
func (r *results) take(n int) []result {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.waiting))
	batch := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	if len(r.waiting) > 0 {
		r.signal()
	}
	return batch
}

// written notes that n results need no more care.
func (r *results) written(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open -= n; r.open == 0 {
		close(r.none)
	}
}

func (r *results) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// empty is closed when every result added so far is written.
func (r *results) empty() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.none
}

const (
	resultBatch  = 500
	applyTimeout = 10 * time.Second
)

// settleResults writes results until ctx is done.
func (s *session) settleResults(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.results.some:
		}
		for batch := s.results.take(resultBatch); len(batch) > 0; batch = s.results.take(resultBatch) {
			if !s.write(ctx, batch) {
				return
			}
		}
	}
}

// write commits a batch, trying until the store takes it; false if ctx ended first.
func (s *session) write(ctx context.Context, batch []result) bool {
	for pause := newPause(); ; {
		accepted, err := s.apply(ctx, batch)
		switch {
		case err == nil:
			s.committed(batch, accepted)
			return true
		case ctx.Err() != nil:
			return false
		case !errors.Is(err, holdfast.ErrUnavailable) && len(batch) > 1:
			// One result that the store cannot take must not hold up the others.
			s.log.WithError(err).Warn("a batch of results was refused, writing them one by one")
			for i := range batch {
				if !s.write(ctx, batch[i:i+1]) {
					return false
				}
			}
			return true
		case !errors.Is(err, holdfast.ErrUnavailable):
			s.log.WithError(err).WithField("task", batch[0].move.Task).Error("a result was refused, writing it without its report")
			batch[0].move.Report = holdfast.Report{Class: "unrecordable", Error: "the attempt's report could not be stored; see the worker's log"}
		default:
			s.log.WithError(err).WithField("results", len(batch)).Warn("results wait in memory for the store")
		}
		if pause.wait(ctx) != nil {
			return false
		}
	}
}

func (s *session) apply(ctx context.Context, batch []result) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	moves := make([]holdfast.Transition, len(batch))
	for i, r := range batch {
		moves[i] = r.move
	}
	return s.o.Store.Apply(ctx, moves)
}

// committed lets go of everything whose result is in the store, accepted or refused.
func (s *session) committed(batch []result, accepted []bool) {
	for i, r := range batch {
		s.jobs.forget(r.job.ticket())
		s.pages.finish(r.job.page, 1)
		seen := holdfast.Observation{
			Kind: holdfast.ObservedSettled, Lane: r.job.task.Lane, Type: r.job.task.Type,
			Event: r.move.Event, Count: 1, Took: r.took,
		}
		if !accepted[i] {
			seen.Kind = holdfast.ObservedRefused
		} else if r.move.To == holdfast.Ready {
			s.o.OnReady(r.move.Wait)
		}
		s.o.Observer.Observe(seen)
	}
	s.results.written(len(batch))
}
