package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/internal/message"
)

// result is the result of a finished job that is not committed.
type result struct {
	job  *job
	move holdfast.Transition
	took time.Duration
}

// results are the results to write. While a group of results is being written, further results accumulate. So groups
// grow with the load, and a single result does not wait.
type results struct {
	mu          sync.Mutex
	waiting     []result
	outstanding int           // number of results that are expected, waiting or being written
	available   chan struct{} // has a token if results may wait
	allWritten  chan struct{} // closed while outstanding is 0
}

func newResults() *results {
	r := &results{available: make(chan struct{}, 1), allWritten: make(chan struct{})}
	close(r.allWritten)
	return r
}

// expect announces a result that will be added, so that empty waits for it.
func (r *results) expect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outstanding == 0 {
		r.allWritten = make(chan struct{})
	}
	r.outstanding++
}

// add adds a result that was expected.
func (r *results) add(one result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, one)
	r.signal()
}

func (r *results) signal() {
	select {
	case r.available <- struct{}{}:
	default:
	}
}

// take removes the oldest results and returns them: at most n results, of about maxGroupBytes.
func (r *results) take(n int) []result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n = min(n, len(r.waiting)); n == 0 {
		return nil // r.waiting keeps its capacity
	}
	for i, size := 0, 0; i < n; i++ {
		report := r.waiting[i].move.Report
		if size += len(report.Details) + len(report.Error) + len(report.Stack); size > maxGroupBytes {
			n = i + 1
		}
	}
	group := r.waiting[:n:n]
	if r.waiting = r.waiting[n:]; len(r.waiting) > 0 {
		r.signal()
	} else {
		r.waiting = make([]result, 0, n) // the next group is mostly about as large
	}
	return group
}

// written records that n results are written.
func (r *results) written(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outstanding -= n; r.outstanding == 0 {
		close(r.allWritten)
	}
}

// count returns the number of outstanding results.
func (r *results) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outstanding
}

// empty returns a channel that is closed when no result is outstanding.
func (r *results) empty() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allWritten
}

const (
	maxGroupResults = 500 // of one write, and maxGroupBytes of their reports
	maxGroupBytes   = 4 << 20
	applyTimeout    = 10 * time.Second
)

// settleResults writes results until ctx is done.
func (s *session) settleResults(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.results.available:
		}
		for group := s.results.take(maxGroupResults); len(group) > 0; group = s.results.take(maxGroupResults) {
			if !s.write(ctx, group) {
				return
			}
		}
	}
}

// write writes a group of results. It tries until the store accepts the group, and returns false if ctx ends first.
//
// If the store answers renewals but does not accept the group, one of the results is the cause, for example because its
// row is locked. Then write writes the halves of the group, and a single result in a goroutine of its own. If the store
// is unavailable, it answers no renewals, and all results wait together.
func (s *session) write(ctx context.Context, group []result) bool {
	began := time.Now()
	for pause := backoff.New(firstPause, longPause); ; {
		accepted, err := s.apply(ctx, group)
		switch {
		case err == nil:
			s.committed(group, accepted)
			return true
		case ctx.Err() != nil:
			return false
		case !s.requestFault(err, began):
			s.log.WithError(err).WithField("results", len(group)).Warn("results not written, trying again")
		case len(group) > 1:
			s.log.WithError(err).WithField("results", len(group)).Warn("group of results not written, writing its halves")
			half := len(group) / 2
			return s.write(ctx, group[:half]) && s.write(ctx, group[half:])
		default:
			s.singleWrites.Go(func() { s.writeSingle(ctx, group[0], err) })
			return true
		}
		if pause.Wait(ctx) != nil {
			return false
		}
	}
}

// writeSingle writes a result that the store did not accept with err. It tries until ctx is done.
func (s *session) writeSingle(ctx context.Context, r result, err error) {
	log := s.log.WithField("task", r.move.Task)
	for pause := backoff.New(firstPause, longPause); ; {
		if !errors.Is(err, holdfast.ErrUnavailable) {
			log.WithError(err).Error("result refused by the store, writing it without its report")
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
		log.WithError(err).Warn("result not written, trying again")
	}
}

// requestFault reports whether err is about the request, not about an unavailable store: err is not an ErrUnavailable,
// or the store has answered a renewal that was sent after the first try began.
func (s *session) requestFault(err error, began time.Time) bool {
	return !errors.Is(err, holdfast.ErrUnavailable) || s.lease.renewed().After(began)
}

// apply writes results and reports for each whether the store accepted it. A fenced worker hands no task back: the
// janitor does that and charges a crash, because a task may have stopped the process for longer than its lease.
func (s *session) apply(ctx context.Context, group []result) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	fenced := s.fenced.Load()
	moves, indexes := make([]holdfast.Transition, 0, len(group)), make([]int, 0, len(group))
	for i, r := range group {
		if !fenced || r.move.Event != holdfast.EventInterrupt {
			moves, indexes = append(moves, r.move), append(indexes, i)
		}
	}
	accepted := make([]bool, len(group))
	if len(moves) == 0 {
		return accepted, nil
	}
	answers, err := s.o.Store.Apply(ctx, moves)
	for i, answer := range answers {
		accepted[indexes[i]] = answer
	}
	return accepted, err
}

// committed removes jobs whose results the store has accepted or refused.
func (s *session) committed(group []result, accepted []bool) {
	tickets := make([]message.Ticket, len(group))
	for i, r := range group {
		tickets[i] = r.job.ticket()
	}
	s.jobs.forget(tickets...)
	for i, r := range group {
		s.pages.finish(r.job.page, 1)
		seen := holdfast.Observation{
			Kind: holdfast.ObservedSettled, Queue: r.job.task.Queue, Type: r.job.task.Type,
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
		if accepted[i] && r.move.MovesKey() {
			s.o.OnReady(0) // the next ordered task of the key
		}
		s.o.Observer.Observe(seen)
	}
	s.results.written(len(group))
	s.capacity.written(len(group))
}
