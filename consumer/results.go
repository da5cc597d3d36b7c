package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/logs"
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
	open    int           // expected, waiting or being written
	some    chan struct{} // has a token while results may wait
	none    chan struct{} // closed while open is 0
}

func newResults() *results {
	r := &results{some: make(chan struct{}, 1), none: make(chan struct{})}
	close(r.none)
	return r
}

// expect announces a result, so that nobody takes none to be left before it is added.
func (r *results) expect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == 0 {
		r.none = make(chan struct{})
	}
	r.open++
}

// add hands over a result that was expected.
func (r *results) add(one result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, one)
	r.signal()
}

func (r *results) signal() {
	select {
	case r.some <- struct{}{}:
	default:
	}
}

// take removes the oldest results, at most n and about maxResultBytes.
func (r *results) take(n int) []result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n = min(n, len(r.waiting)); n == 0 {
		return nil // and what was made for the next batch stays
	}
	for i, size := 0, 0; i < n; i++ {
		report := r.waiting[i].move.Report
		if size += len(report.Details) + len(report.Error) + len(report.Stack); size > maxResultBytes {
			n = i + 1
		}
	}
	batch := r.waiting[:n:n]
	if r.waiting = r.waiting[n:]; len(r.waiting) > 0 {
		r.signal()
	} else {
		r.waiting = make([]result, 0, n) // the next batch is mostly about as large
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
	resultBatch    = 500
	maxResultBytes = 4 << 20
	applyTimeout   = 10 * time.Second
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

// write commits a batch, trying until the store takes it; false if ctx ended first. If the store answers a renewal
// meanwhile and does not take the batch, it has trouble with one of the results, perhaps a locked row: write cuts the batch
// in halves, and a lone result waits aside. A store that is away answers no renewal: all results wait for it together.
func (s *session) write(ctx context.Context, batch []result) bool {
	began := time.Now()
	for pause := backoff.New(firstPause, longPause); ; {
		accepted, err := s.apply(ctx, batch)
		switch {
		case err == nil:
			s.committed(batch, accepted)
			return true
		case ctx.Err() != nil:
			return false
		case !s.blames(err, began):
			s.log.WithError(err).WithField("results", len(batch)).Warn("results wait in memory for the store")
		case len(batch) > 1:
			s.log.WithError(err).WithField("results", len(batch)).Warn("a batch of results was not written, writing its halves")
			half := len(batch) / 2
			return s.write(ctx, batch[:half]) && s.write(ctx, batch[half:])
		default:
			s.aside.Go(func() { s.writeAlone(ctx, batch[0], err) })
			return true
		}
		if pause.Wait(ctx) != nil {
			return false
		}
	}
}

// writeAlone writes one result that the store did not take, for as long as it takes.
func (s *session) writeAlone(ctx context.Context, r result, err error) {
	log := s.log.WithField("task", r.move.Task)
	for pause := backoff.New(firstPause, longPause); ; {
		if !errors.Is(err, holdfast.ErrUnavailable) {
			log.WithError(err).Error("a result was refused, writing it without its report")
			r.move.Report = holdfast.Report{Class: "unrecordable", Error: "the attempt's report could not be stored; see the worker's log"}
		}
		if pause.Wait(ctx) != nil {
			return
		}
		var accepted []bool
		if accepted, err = s.apply(ctx, []result{r}); err == nil {
			s.committed([]result{r}, accepted)
			return
		}
		if ctx.Err() != nil {
			return
		}
		log.WithError(err).Warn("a result waits for the store")
	}
}

// blames reports whether an error is about what was sent rather than the store being away: the error says so, or the store
// has answered a renewal that was sent after the first try began.
func (s *session) blames(err error, began time.Time) bool {
	return !errors.Is(err, holdfast.ErrUnavailable) || s.lease.renewed().After(began)
}

// apply reports which results the store accepted. A run that was fenced hands no task back: the janitor does that. If a
// failover lost the run and its id was given to another process, the store would take back a task that runs there.
func (s *session) apply(ctx context.Context, batch []result) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	fenced := s.fenced.Load()
	moves, of := make([]holdfast.Transition, 0, len(batch)), make([]int, 0, len(batch))
	for i, r := range batch {
		if !fenced || r.move.Event != holdfast.EventInterrupt {
			moves, of = append(moves, r.move), append(of, i)
		}
	}
	accepted := make([]bool, len(batch))
	if len(moves) == 0 {
		return accepted, nil
	}
	answers, err := s.o.Store.Apply(ctx, moves)
	for i, answer := range answers {
		accepted[of[i]] = answer
	}
	return accepted, err
}

// committed lets go of everything whose result is in the store, accepted or refused.
func (s *session) committed(batch []result, accepted []bool) {
	tickets := make([]message.Ticket, len(batch))
	for i, r := range batch {
		tickets[i] = r.job.ticket()
	}
	s.jobs.forget(tickets...)
	for i, r := range batch {
		s.pages.finish(r.job.page, 1)
		seen := holdfast.Observation{
			Kind: holdfast.ObservedSettled, Lane: r.job.task.Lane, Type: r.job.task.Type,
			Event: r.move.Event, Count: 1, Took: r.took,
		}
		switch {
		case !accepted[i]:
			seen.Kind = holdfast.ObservedRefused
		case r.move.To == holdfast.Ready:
			s.o.OnReady(r.move.Wait)
		case r.move.To == holdfast.Dead:
			logs.Dead(s.log, r.job.task, r.move)
		}
		s.o.Observer.Observe(seen)
	}
	s.results.written(len(batch))
	s.room.written(len(batch))
}
