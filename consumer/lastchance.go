package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// A last-chance task becomes dead if it crashes once more. Either the task itself has crashed its workers, or it ran
// beside the task that has crashed them. So a worker runs it exclusively: it claims the task while no other task is in
// progress, and claims no other task until it has ended. If the process crashes meanwhile, no other task is charged
// with the crash. And a last-chance task is never charged with a crash of another task.
//
// A worker runs the last-chance tasks of a page in one exclusive turn, one after another. The time of a turn is
// limited. After it, ordinary tasks run for as long as the turn took before the next turn begins. The store parks the
// tasks that got no turn.

const (
	// turnLimit is how long an exclusive turn may start further tasks.
	turnLimit = 5 * time.Second
	// turnPatience is how long a page waits for an exclusive turn before the store parks its last-chance tasks.
	turnPatience = 5 * time.Second
	// turnPark is how long the store parks these tasks the first time. The wait grows with each further time.
	turnPark = 2 * time.Second
	// exclusiveLimit is how long one last-chance task may keep a worker from claiming other tasks. It applies first
	// until the tasks in progress have ended, and then while the task runs. After that, the task runs beside others if
	// an executor is free, because a handler that hangs must not stop a worker.
	exclusiveLimit = time.Minute
	exclusiveCheck = 5 * time.Millisecond
	// idleCheck is how long an idle worker waits for ordinary tasks before the next exclusive turn.
	idleCheck = 100 * time.Millisecond
)

// errNoTurn means that no exclusive turn was free within turnPatience.
var errNoTurn = errors.New("no exclusive turn in time")

// turnGap is the gap between two exclusive turns. The next turn may begin at the time busy, or at idle if the worker is
// idle.
type turnGap struct{ busy, idle time.Time }

// gapAfter returns the gap after a turn that began at the given time and ends now.
func gapAfter(began time.Time) turnGap {
	now := time.Now()
	return turnGap{now.Add(min(now.Sub(began), exclusiveLimit)), now.Add(idleCheck)}
}

func (i turnGap) elapsed(idle bool) bool {
	now := time.Now()
	return !now.Before(i.busy) || idle && !now.Before(i.idle)
}

// acquireTurn waits for the exclusive turn, at most turnPatience. It returns errNoTurn, or the cause if ctx ends first.
// To end its turn, the caller must send the gap before the next turn to s.exclusive.
func (s *session) acquireTurn(ctx context.Context) error {
	patience, cancel := context.WithTimeoutCause(ctx, turnPatience, errNoTurn)
	defer cancel()
	select {
	case last := <-s.exclusive:
		if s.waitUntil(patience, turnPatience, func() bool { return last.elapsed(s.idle()) }) {
			return nil
		}
		s.exclusive <- last
		if ctx.Err() == nil { // patience may end slightly later than the wait
			return errNoTurn
		}
	case <-patience.Done():
	}
	return context.Cause(patience)
}

// ordinary returns the wanted tasks that may run beside others, which are all but last-chance tasks. It makes a new
// list only after a setting has changed.
func (s *session) ordinary() []store.Wanted {
	if known := s.wanted.Load(); known != nil && !slices.ContainsFunc(*known, func(w store.Wanted) bool {
		return w.MostCrashes != s.mostCrashes(w.Type)
	}) {
		return *known
	}
	wanted := store.AnyOf(s.types...)
	for i := range wanted {
		wanted[i].MostCrashes = s.mostCrashes(wanted[i].Type)
	}
	s.wanted.Store(&wanted)
	return wanted
}

// mostCrashes returns the maximum number of crashes of an ordinary task of a type. If the policy allows only one crash,
// tasks without a crash are treated as ordinary. If the type runs at most once, all tasks are ordinary, because the
// worker gives tasks with a crash up and does not call the handler.
func (s *session) mostCrashes(taskType string) int {
	policy := s.o.Settings.For(taskType).Policy
	if policy.AtMostOnce {
		return store.AnyCrashes
	}
	return max(0, policy.MaxCrashes-2)
}

// takeLastChances runs the page's last-chance tasks in an exclusive turn, and parks the tasks that got no turn. After
// an error the caller must not ack their tickets.
func (p *page) takeLastChances(ctx context.Context) error {
	if len(p.lastChances) == 0 {
		return nil
	}
	s := p.s
	switch err := s.acquireTurn(ctx); {
	case errors.Is(err, errNoTurn):
		return p.postpone(ctx, p.lastChances)
	case err != nil:
		return err
	}
	began := time.Now()
	endTurn := func() {
		s.capacity.resume()
		s.exclusive <- gapAfter(began)
	}
	s.capacity.pause()
	s.waitUntil(ctx, exclusiveLimit, s.idle)
	if ctx.Err() != nil {
		endTurn()
		return context.Cause(ctx)
	}
	s.log.WithField("tasks", len(p.lastChances)).Info("last-chance tasks run exclusively")
	last, left, err := p.takeExclusively(ctx, p.lastChances)
	s.receivers.Go(func() {
		s.waitUntil(ctx, exclusiveLimit, func() bool { return !s.jobs.has(last) })
		endTurn()
	})
	if err != nil {
		return err
	}
	return p.postpone(ctx, left)
}

// takeExclusively claims and runs tasks one after another. It returns the last task that it claimed. left has the tasks
// for which the turn was too short or no executor was free.
func (p *page) takeExclusively(ctx context.Context, tickets []message.Ticket) (last message.Ticket, left []message.Ticket, err error) {
	s := p.s
	end := time.Now().Add(turnLimit)
	for left = tickets; len(left) > 0; {
		into := s.capacity.assign(0, 1, rank{})
		if into == store.IntoBuffer { // if the task waited in the buffer, the worker would hand it back later, with a new attempt number
			s.capacity.release(1, into)
			break
		}
		last, left = left[0], left[1:]
		single := &page{s: s, into: into, wanted: store.AnyOf(s.types...), tickets: []message.Ticket{last}}
		if err := single.take(ctx); err != nil {
			return last, left, err
		}
		if !s.waitUntil(ctx, time.Until(end), s.idle) {
			break
		}
	}
	if len(left) > 0 {
		err = context.Cause(ctx)
	}
	return last, left, err
}

// postpone parks tasks. If it returns nil, the caller may ack their tickets: the store has parked the tasks, or the
// broker has confirmed the tickets in the rescue queue. It returns an error if ctx ends first.
func (p *page) postpone(ctx context.Context, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	rest := &page{s: p.s} // a separate page, because the outgoing messages of p are confirmed
	rest.parkOrRescue(ctx, tickets, turnPark, "its next crash would be its last, so it waits to run exclusively")
	return rest.publish(ctx)
}

// idle reports whether no task is in progress in the worker.
func (s *session) idle() bool { return s.capacity.inUse() == 0 && s.jobs.empty() }

// waitUntil waits until the condition holds, limit has passed or ctx is done. It reports whether the condition holds.
func (s *session) waitUntil(ctx context.Context, limit time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(exclusiveCheck)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
