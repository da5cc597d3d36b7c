package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/internal/message"
)

// group is a set of results of finished jobs that are not committed. moves[i] is the transition of jobs[i].
type group struct {
	jobs  []*job
	moves []holdfast.Transition
	alone bool // the group has one result, whose write may take long; see job.alone
}

func (g group) size() int { return len(g.jobs) }

// part returns the results from index i up to, but not including, index n. It shares the memory of g, but appending to
// it does not change g.
func (g group) part(i, n int) group { return group{jobs: g.jobs[i:n:n], moves: g.moves[i:n:n]} }

// append returns g with more results.
func (g group) append(jobs []*job, moves []holdfast.Transition) group {
	return group{jobs: append(g.jobs, jobs...), moves: append(g.moves, moves...)}
}

// results are the results to write. While one group is being written, more results accumulate in the next group. So
// groups grow with the load, and a single result does not wait.
type results struct {
	mu          sync.Mutex
	waiting     []group       // oldest first; results are added to the last one
	lastBytes   int           // the size of the reports and effects in the last group
	spare       []group       // empty groups whose memory is used again
	outstanding int           // number of results that are expected, waiting or being written
	available   chan struct{} // has a token if results may wait
	allWritten  chan struct{} // closed while outstanding is 0
}

const (
	maxGroupResults = 500     // results of one write
	maxGroupBytes   = 4 << 20 // bytes of the reports and effects of one write; the last result may exceed the limit
	maxSpareGroups  = 8
)

func newResults() *results {
	r := &results{available: make(chan struct{}, 1), allWritten: make(chan struct{})}
	close(r.allWritten)
	return r
}

// expect announces a result, so that drained waits for it.
func (r *results) expect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outstanding == 0 {
		r.allWritten = make(chan struct{})
	}
	r.outstanding++
}

// add adds an announced result.
func (r *results) add(j *job, move *holdfast.Transition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.waiting) - 1
	alone := j.alone(move)
	if last < 0 || r.waiting[last].size() == maxGroupResults || r.lastBytes > maxGroupBytes || alone || r.waiting[last].alone {
		r.waiting, r.lastBytes, last = append(r.waiting, r.empty()), 0, last+1
	}
	g := &r.waiting[last]
	g.jobs, g.moves, g.alone = append(g.jobs, j), append(g.moves, *move), alone
	r.lastBytes += len(move.Report.Details) + len(move.Report.Error) + len(move.Report.Stack) + move.Effects.Size()
	r.signal()
}

// empty returns an empty group. The caller holds r.mu.
func (r *results) empty() group {
	last := len(r.spare) - 1
	if last < 0 {
		return group{}
	}
	g := r.spare[last]
	r.spare = r.spare[:last]
	return g
}

func (r *results) signal() {
	select {
	case r.available <- struct{}{}:
	default:
	}
}

// take removes the oldest group and returns it. If no result waits, the group is empty. When the group is no longer in
// use, the caller may pass it to reuse.
func (r *results) take() group {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return group{}
	}
	taken := r.waiting[0]
	r.waiting = slices.Delete(r.waiting, 0, 1)
	return taken
}

// reuse keeps the memory of a group for later results. A result needs 300 bytes, and a worker may have tens of
// thousands of results per second.
func (r *results) reuse(g group) {
	clear(g.jobs)
	clear(g.moves)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spare) < maxSpareGroups {
		r.spare = append(r.spare, group{jobs: g.jobs[:0], moves: g.moves[:0]})
	}
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

// drained returns a channel that is closed when no result is outstanding.
func (r *results) drained() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allWritten
}

const applyTimeout = 10 * time.Second

// settleResults writes results until ctx is done.
func (s *session) settleResults(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.results.available:
		}
		for g := s.results.take(); g.size() > 0; g = s.results.take() {
			if !s.write(ctx, g) {
				return
			}
			s.results.reuse(g)
		}
	}
}

// write writes a group of results. It tries until the store accepts the group, and returns false if ctx ends first.
//
// If the store answers renewals but does not accept the group, one of the results is the cause, for example because its
// row is locked. Then write writes each half of the group, and writes a single result in a goroutine of its own. An
// unavailable store answers no renewals, and then all results wait together.
func (s *session) write(ctx context.Context, g group) bool {
	if g.alone {
		s.writeAlone(ctx, g, nil)
		return true
	}
	began := time.Now()
	for pause := backoff.New(firstPause, longPause); ; {
		accepted, err := s.apply(ctx, g)
		switch {
		case err == nil:
			s.committed(g, accepted)
			return true
		case ctx.Err() != nil:
			return false
		case !s.requestFault(err, began):
			s.log.WithError(err).WithField("results", g.size()).Warn("results not written, trying again")
		case g.size() > 1:
			s.log.WithError(err).WithField("results", g.size()).Warn("group of results not written, writing its halves")
			half := g.size() / 2
			return s.write(ctx, g.part(0, half)) && s.write(ctx, g.part(half, g.size()))
		default:
			s.writeAlone(ctx, g, err)
			return true
		}
		if pause.Wait(ctx) != nil {
			return false
		}
	}
}

// writeAlone writes a group of one result in a goroutine of its own. err is why the store did not accept it before, or
// nil.
func (s *session) writeAlone(ctx context.Context, g group, err error) {
	single := group{}.append(g.jobs, g.moves) // a copy, because the memory of g will be reused
	s.singleWrites.Go(func() { s.writeSingle(ctx, single, err) })
}

// writeSingle writes a group of one result. It tries until ctx is done. err is why the store did not accept it before,
// or nil.
func (s *session) writeSingle(ctx context.Context, g group, err error) {
	log := s.logOf(g.jobs[0])
	for pause := backoff.New(firstPause, longPause); ; {
		if err != nil {
			if !errors.Is(err, holdfast.ErrUnavailable) {
				log.WithError(err).Error("result refused by the store, writing it without its report or effects")
				s.reduce(&g.moves[0], g.jobs[0])
			}
			if pause.Wait(ctx) != nil {
				return
			}
		}
		var accepted []bool
		if accepted, err = s.apply(ctx, g); err == nil {
			s.committed(g, accepted)
			return
		}
		if ctx.Err() != nil {
			return
		}
		log.WithError(err).Warn("result not written, trying again")
	}
}

var errEffects = errors.New("the store refused the output or the next tasks of the attempt; see the worker's log")

// reduce changes a transition that the store refuses to one that it accepts. Without its effects, a success would lose
// tasks. So the task is dead instead, and waits for a person.
func (s *session) reduce(move *holdfast.Transition, j *job) {
	if move.Effects != nil {
		dead, err := holdfast.Settle(*j.task, holdfast.Returned(holdfast.Permanent(errEffects)), j.storeTime(), s.o.Settings.For(j.task.Type).Policy)
		if err == nil {
			*move = dead
			return
		}
	}
	move.Report = holdfast.Report{Class: "unrecordable", Error: "the attempt's report could not be stored; see the worker's log"}
}

// requestFault reports whether the request caused err, not an unavailable store. Either err is not an ErrUnavailable,
// or the store has answered a renewal that was sent after the first try began.
func (s *session) requestFault(err error, began time.Time) bool {
	return !errors.Is(err, holdfast.ErrUnavailable) || s.lease.renewed().After(began)
}

// apply writes results and reports for each one whether the store accepted it. If the worker is fenced, apply hands no
// task back. A task may have stopped the process for longer than the lease, so the janitor hands it back and charges a
// crash.
//
// A fenced worker still gives up an interrupted task that runs at most once. The store accepts that only if the janitor
// has not taken the task back. Either way the task does not start again, and the worker knows better than the janitor
// that the handler has started.
func (s *session) apply(ctx context.Context, g group) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	if !s.fenced.Load() {
		return s.o.Store.Apply(ctx, g.moves)
	}
	var moves []holdfast.Transition
	var indexes []int
	for i := range g.moves {
		if g.moves[i].Event != holdfast.EventInterrupt {
			moves, indexes = append(moves, g.moves[i]), append(indexes, i)
		}
	}
	accepted := make([]bool, g.size())
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
func (s *session) committed(g group, accepted []bool) {
	tickets := make([]message.Ticket, g.size())
	for i, j := range g.jobs {
		tickets[i] = j.ticket()
	}
	s.jobs.forget(tickets...)
	for i, j := range g.jobs {
		move := &g.moves[i]
		s.pages.finish(j.page, 1)
		seen := holdfast.Observation{
			Kind: holdfast.ObservedSettled, Queue: j.task.Queue, Type: j.task.Type,
			Event: move.Event, Count: 1, Took: j.took,
		}
		switch {
		case !accepted[i] && j.effects.Completed(): // the transaction of the handler has committed
			seen.Event = holdfast.EventComplete
			s.o.OnReady(0)
		case !accepted[i]:
			seen.Kind = holdfast.ObservedRefused
		case move.To == holdfast.Ready:
			s.o.OnReady(move.Wait)
		case move.To == holdfast.Dead:
			logs.Dead(s.traced(j), *j.task, *move)
		}
		if accepted[i] && (move.MovesKey() || move.Effects != nil && len(move.Effects.Next) > 0) {
			s.o.OnReady(0) // for the next ordered task of the key, and for the outbox entries of next tasks
		}
		s.o.Observer.Observe(seen)
	}
	s.results.written(g.size())
	s.capacity.written(g.size())
}
