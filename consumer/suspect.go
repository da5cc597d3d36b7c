package consumer

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// A suspect is a task whose next crash would be its last. It may be what ended its workers, or only have been
// there each time; the next time shall tell. So it is not claimed while anything else is in hand, and nothing
// else is taken while it runs: a process that dies then charges nobody else, and a suspect is never charged
// for what was claimed beside it.

const (
	// aloneLimit bounds how long a worker takes nothing for the sake of one suspect: until what it has in hand
	// is done, and once more while the suspect runs. Whatever takes longer is in its company after all, for a
	// handler that hangs must not stop a worker.
	aloneLimit = time.Minute
	aloneCheck = 20 * time.Millisecond
	// suspectWait is how long a suspect waits in the store if this worker has another one.
	suspectWait = 2 * time.Second
)

// wantedBeside are the tasks that may run beside others. A limit of one
// leaves no room for suspicion.
func wantedBeside(types []string, policies map[string]holdfast.TypeSettings) []store.Wanted {
	wanted := store.AnyOf(types...)
	for i, t := range types {
		wanted[i].MostCrashes = max(0, policies[t].Policy.MaxCrashes-2)
	}
	return wanted
}

// takeSuspects runs the first of the page's suspects alone, unless this worker has one already, and lets the
// others wait in the store. After an error none of them may be acked.
func (p *page) takeSuspects(ctx context.Context) error {
	s, others := p.s, p.suspects
	if len(others) == 0 {
		return nil
	}
	var first []holdfast.Ticket
	select {
	case s.solo <- struct{}{}:
		first, others = others[:1], others[1:]
	default:
	}
	if err := p.postpone(ctx, others); err != nil {
		if len(first) > 0 {
			<-s.solo
		}
		return err
	}
	if len(first) == 0 {
		return nil
	}
	return p.takeAlone(ctx, first[0])
}

func (p *page) postpone(ctx context.Context, tickets []holdfast.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	return p.s.o.Store.Park(ctx, tickets, suspectWait, "one more crash would be its last, so it waits to run alone")
}

// takeAlone claims a suspect when nothing else is in hand. The worker's only place for suspects is the
// caller's, and is given up here.
func (p *page) takeAlone(ctx context.Context, suspect holdfast.Ticket) error {
	s := p.s
	s.room.shut()
	leave := func() {
		s.room.open()
		<-s.solo
	}
	s.until(ctx, func() bool { return s.room.taken() == 0 && s.jobs.none() })
	if ctx.Err() != nil {
		leave()
		return context.Cause(ctx)
	}
	s.log.WithField("task", suspect.Task).Info("one more crash would be this task's last: it runs alone")
	s.room.add(1)
	alone := &page{s: s, wanted: store.AnyOf(s.types...), tickets: []holdfast.Ticket{suspect}}
	err := alone.take(ctx)
	s.takers.Go(func() {
		s.until(ctx, func() bool { return !s.jobs.has(suspect) })
		leave()
	})
	return err
}

// until waits for a condition, at most aloneLimit and as long as the intake goes on.
func (s *session) until(ctx context.Context, holds func() bool) {
	ctx, cancel := context.WithTimeout(ctx, aloneLimit)
	defer cancel()
	tick := time.NewTicker(aloneCheck)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
