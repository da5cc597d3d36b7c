package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// A last-chance task is a task whose next crash would be its last. It may have crashed its workers, or it may only have
// run beside the task that did. So it runs exclusively: the worker claims it while no other task is in progress, and
// takes no other task until it has ended. If the process dies meanwhile, no other task is charged, and a last-chance
// task is never charged for its neighbors.
//
// A worker runs the last-chance tasks of a page in one exclusive turn, one after another. Turns are bounded in time,
// and ordinary work gets as long as the turn took before the next one begins. The store parks the tasks that found no
// turn.

const (
	// turnLimit bounds how long an exclusive turn starts further tasks.
	turnLimit = 5 * time.Second
	// turnPatience is how long a page waits for an exclusive turn before the store parks its last-chance tasks.
	turnPatience = 5 * time.Second
	// turnPark is how long the store parks them the first time; the wait grows with each further time.
	turnPark = 2 * time.Second
	// aloneLimit bounds how long a worker takes no other task because of one task: once until the tasks in progress
	// have ended, and once while the task runs. After that the task runs beside others if an executor is free, because
	// a handler that hangs must not stop a worker.
	aloneLimit = time.Minute
	aloneCheck = 5 * time.Millisecond
	// idleCheck is how long a worker without ordinary work waits for ordinary work before the next exclusive turn.
	idleCheck = 100 * time.Millisecond
)

// errNoTurn says that another page has the worker's exclusive turn.
var errNoTurn = errors.New("no exclusive turn in time")

// interval says when the next exclusive turn may begin: while there is ordinary work, and while there is none.
type interval struct{ busy, idle time.Time }

// after returns the interval after a turn that began at the given time and ends now.
func after(began time.Time) interval {
	now := time.Now()
	return interval{now.Add(min(now.Sub(began), aloneLimit)), now.Add(idleCheck)}
}

func (i interval) over(idle bool) bool {
	now := time.Now()
	return !now.Before(i.busy) || idle && !now.Before(i.idle)
}

// takeTurn waits for the exclusive turn, at most turnPatience. The caller sends the interval after its turn to s.exclusive.
func (s *session) takeTurn(ctx context.Context) error {
	patience, cancel := context.WithTimeoutCause(ctx, turnPatience, errNoTurn)
	defer cancel()
	select {
	case last := <-s.exclusive:
		if s.until(patience, turnPatience, func() bool { return last.over(s.idle()) }) {
			return nil
		}
		s.exclusive <- last
	case <-patience.Done():
	}
	return context.Cause(patience)
}

// wantedBeside are the tasks that may run beside others. A limit of one
// leaves no room for suspicion.
func wantedBeside(types []string, policies map[string]holdfast.TypeSettings) []store.Wanted {
	wanted := store.AnyOf(types...)
	for i, t := range types {
		wanted[i].MostCrashes = max(0, policies[t].Policy.MaxCrashes-2)
	}
	return wanted
}

// takeSuspects runs the page's last-chance tasks in an exclusive turn, and asks the store to park those for which there
// was no time. After an error the caller must not ack their tickets.
func (p *page) takeSuspects(ctx context.Context) error {
	if len(p.suspects) == 0 {
		return nil
	}
	s := p.s
	switch err := s.takeTurn(ctx); {
	case errors.Is(err, errNoTurn):
		return p.postpone(ctx, p.suspects)
	case err != nil:
		return err
	}
	began := time.Now()
	leave := func() {
		s.room.open()
		s.exclusive <- after(began)
	}
	s.room.shut()
	s.until(ctx, aloneLimit, s.idle)
	if ctx.Err() != nil {
		leave()
		return context.Cause(ctx)
	}
	s.log.WithField("tasks", len(p.suspects)).Info("last-chance tasks run exclusively")
	last, left, err := p.takeAlone(ctx, p.suspects)
	s.takers.Go(func() {
		s.until(ctx, aloneLimit, func() bool { return !s.jobs.has(last) })
		leave()
	})
	if err != nil {
		return err
	}
	return p.postpone(ctx, left)
}

// takeAlone claims and runs tasks one after another. It returns the last one that it claimed, and those for which the
// turn was too short or no executor was free.
func (p *page) takeAlone(ctx context.Context, tickets []message.Ticket) (last message.Ticket, left []message.Ticket, err error) {
	s := p.s
	end := time.Now().Add(turnLimit)
	for left = tickets; len(left) > 0; {
		into := s.room.settle(0, 1, ordinary)
		if into == store.IntoBuffer { // the worker would hand it back from there, which uses up an attempt number
			s.room.leave(1, into)
			break
		}
		last, left = left[0], left[1:]
		alone := &page{s: s, into: into, wanted: store.AnyOf(s.types...), tickets: []message.Ticket{last}}
		if err := alone.take(ctx); err != nil {
			return last, left, err
		}
		if !s.until(ctx, time.Until(end), s.idle) {
			break
		}
	}
	if len(left) > 0 {
		err = context.Cause(ctx)
	}
	return last, left, err
}

// postpone asks the store to park tasks. It returns when the caller may ack their tickets: the store has parked the
// tasks, or the broker has confirmed the tickets in the rescue queue. It returns an error if ctx ends first.
func (p *page) postpone(ctx context.Context, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	rest := &page{s: p.s} // the letters of p are confirmed
	rest.parkOrRescue(ctx, tickets, turnPark, "one more crash would be its last, so it waits to run alone")
	return rest.mirror(ctx)
}

// idle reports whether no task is in progress in the worker.
func (s *session) idle() bool { return s.room.taken() == 0 && s.jobs.none() }

// until waits for a condition, at most limit and as long as ctx is not done. It reports whether the condition holds.
func (s *session) until(ctx context.Context, limit time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(aloneCheck)
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
