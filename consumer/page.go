package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

// page is what one intake took together.
type page struct {
	s         *session
	tags      []uint64 // of its messages
	tickets   []message.Ticket
	wanted    []store.Wanted
	into      store.Place
	suspects  []message.Ticket            // of tasks with more crashes than that
	sentinels map[string]message.Sentinel // by lane, the newest
	letters   []broker.Message            // to publish before the messages may be acked
	passed    []message.Ticket            // of them, those that go to the lane's other queue
	malformed int
	number    int64
}

func (s *session) newPage() *page { return &page{s: s, wanted: s.beside} }

// reading is a delivery and what it says.
type reading struct {
	broker.Delivery
	message message.Message
	err     error
}

func read(d broker.Delivery) reading {
	m, err := message.Decode(d.Body)
	return reading{d, m, err}
}

// add adds one delivery to the page.
func (p *page) add(r reading) {
	p.tags = append(p.tags, r.Tag)
	switch {
	case r.err != nil:
		p.quarantine(r.Body, r.err.Error())
	case r.message.Manifest != nil:
		p.quarantine(r.Body, "a manifest has no place in a lane")
	case r.message.Sentinel != nil && r.Redelivered:
		// It proves nothing: what is returned goes behind what was returned before, so tickets may be behind it now.
	case r.message.Sentinel != nil:
		if p.sentinels == nil {
			p.sentinels = make(map[string]message.Sentinel)
		}
		if s := *r.message.Sentinel; s.At.After(p.sentinels[s.Lane].At) { // which says all that an older one does
			p.sentinels[s.Lane] = s
		}
	default:
		p.tickets = append(p.tickets, r.message.Tickets...)
	}
}

// passOn keeps n tickets and sends the others to the queue again, from where whoever has room takes them.
func (p *page) passOn(queue string, n int) {
	rest := p.tickets[n:]
	p.tickets, p.passed = p.tickets[:n], rest
	for part := range slices.Chunk(rest, message.MaxTickets) {
		p.letters = append(p.letters, broker.Message{Queue: queue, Body: message.Message{Tickets: part}.Encode()})
	}
}

// quarantine puts a malformed message aside for a person.
func (p *page) quarantine(body []byte, reason string) {
	p.malformed++
	p.letters = append(p.letters, broker.Message{
		Queue: p.s.o.Topology.Quarantine(), Body: body,
		Headers: map[string]string{"holdfast-reason": reason, "holdfast-found-by": p.s.o.Name},
	})
}

// process claims the page, starts what is ours, mirrors it, and acks its messages.
// Whatever makes it give up leaves the messages unacked: they are delivered again, and the
// claim is idempotent.
func (p *page) process(ctx context.Context, acks *acks) {
	s := p.s
	err := p.take(ctx)
	if err == nil {
		err = p.takeSuspects(ctx)
	}
	if err != nil {
		s.log.WithError(err).Debug("a page was not taken; its messages are left to be delivered again")
		return
	}
	for _, sentinel := range p.sentinels {
		if err := s.o.Store.Drained(ctx, sentinel); err != nil { // the next sentinel will say it again
			s.log.WithError(err).Warn("a sentinel's arrival could not be noted")
		}
	}
	if err := acks.finish(p.tags); err != nil && !errors.Is(err, broker.ErrOver) {
		s.log.WithError(err).Warn("ack")
	}
}

// take claims the page's tickets, starts what is ours and mirrors it.
func (p *page) take(ctx context.Context) error {
	s := p.s
	if len(p.tickets) > 0 {
		fresh, inHand := s.jobs.reserve(p.tickets)
		s.room.leave(len(inHand), p.into)
		p.tickets = fresh
		if len(inHand) > 0 {
			// Perhaps these messages are those of the page that has them in hand, delivered again
			// over a new subscription, and its own manifest is not confirmed.
			p.manifest(s.run, 0, inHand)
		}
	}
	p.number = s.pages.begin(len(p.tickets) + 1) // the one more is this function's
	defer s.pages.finish(p.number, 1)

	claims, err := p.claim(ctx) // at once if there are no tickets
	if err != nil {
		s.unanswered.add(p.tickets)
		s.disown()
		s.room.leave(len(p.tickets), p.into)
		s.jobs.forget(p.tickets...)
		s.pages.finish(p.number, len(p.tickets))
		return fmt.Errorf("claim: %w", err)
	}
	p.sort(ctx, claims)
	if err := p.notePassed(ctx); err != nil {
		return fmt.Errorf("note tickets that are passed on: %w", err)
	}
	if err := p.mirror(ctx); err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	return nil
}

const claimTimeout = 5 * time.Second

// claim asks until the store answers. It must not give up on an unavailable store while the
// run lives: the claim may have been committed, and only this run can take up
// such tasks. When the run ends, they are found running under a run that is over. A
// store that answers others but not this is asked for less at a time: the payloads may be
// too much for one answer.
func (p *page) claim(ctx context.Context) ([]store.Claim, error) {
	s := p.s
	var claims []store.Claim
	size, began := len(p.tickets), time.Now()
	s.touched.add(p.tickets)
	for pause := backoff.New(firstPause, longPause); len(claims) < len(p.tickets); {
		if !s.lease.valid() {
			return nil, holdfast.ErrLeaseLost
		}
		left := p.tickets[len(claims):]
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
		part, err := s.o.Store.Claim(attempt, s.run, p.wanted, left[:min(size, len(left))], p.into)
		cancel()
		if err == nil {
			if claims == nil {
				claims = part // nearly always all of them: not copied
			} else {
				claims = append(claims, part...)
			}
			continue
		}
		if errors.Is(err, store.ErrFenced) || errors.Is(context.Cause(ctx), holdfast.ErrLeaseLost) {
			return nil, err
		}
		s.log.WithError(err).Warn("a page could not be claimed, trying again")
		if s.blames(err, began) {
			size = max(1, size/2)
		}
		if err := pause.Wait(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// sort acts on the verdicts: it starts what is ours and collects what must be published.
func (p *page) sort(ctx context.Context, claims []store.Claim) {
	s := p.s
	var unhandled, ahead, dropped []message.Ticket
	own, jobs := make([]message.Ticket, 0, len(claims)), make([]*job, 0, len(claims))
	foreign := make(map[holdfast.RunID][]message.Ticket)
	now := time.Now()
	for i := range claims {
		claim, ticket := &claims[i], p.tickets[i]
		if claim.Verdict == store.Claimed {
			own = append(own, ticket)
			s.seeClaim(claim)
			jobs = append(jobs, &job{task: claim.Task, page: p.number, into: p.into, now: claim.Now, claimed: now})
			continue
		}
		dropped = append(dropped, ticket)
		switch claim.Verdict {
		case store.Contended:
			foreign[claim.Owner] = append(foreign[claim.Owner], ticket)
		case store.Ahead:
			ahead = append(ahead, ticket)
		case store.Unhandled:
			unhandled = append(unhandled, ticket)
		case store.Suspect:
			p.suspects = append(p.suspects, ticket)
		}
	}
	s.room.leave(len(dropped), p.into) // before other jobs may start on the executors that were reserved for these
	s.handBack(s.jobs.add(jobs...))
	s.jobs.forget(dropped...)
	s.pages.finish(p.number, len(dropped))
	s.see(holdfast.ObservedStale, len(dropped)-len(unhandled)-len(ahead)-len(p.suspects)-count(foreign))
	s.see(holdfast.ObservedContended, count(foreign))

	if len(own) > 0 {
		p.manifest(s.run, p.number, own)
	}
	for run, tickets := range foreign {
		p.manifest(run, 0, tickets)
	}
	p.rescue(ahead)
	p.park(ctx, claims, unhandled)
}

// manifest adds a manifest to the letters.
func (p *page) manifest(run holdfast.RunID, page int64, tickets []message.Ticket) {
	for part := range slices.Chunk(tickets, message.MaxTickets) {
		m := message.Manifest{Run: run, Page: page, Tickets: part}
		p.letters = append(p.letters, broker.Message{Queue: p.s.o.Topology.Hold(run), Body: message.Message{Manifest: &m}.Encode()})
	}
}

// rescue adds tickets for the rescue queue to the letters.
func (p *page) rescue(tickets []message.Ticket) {
	for part := range slices.Chunk(tickets, message.MaxTickets) {
		p.letters = append(p.letters, broker.Message{Queue: p.s.o.Topology.Rescue(), Body: message.Message{Tickets: part}.Encode()})
	}
}

// parkOrRescue asks the store to park tasks, and reports whether the tasks are parked. If the store does not park them,
// parkOrRescue adds their tickets to the letters for the rescue queue, because the worker is about to ack them.
func (p *page) parkOrRescue(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) (parked bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	if err := p.s.o.Store.Park(ctx, tickets, wait, why); err != nil {
		p.s.log.WithError(err).WithField("tasks", len(tickets)).Warn("tasks not parked: their tickets go to the rescue queue")
		p.rescue(tickets)
		return false
	}
	return true
}

// park asks the store to park tasks of unknown types. People see them there, and another worker gets their tickets
// later.
func (p *page) park(ctx context.Context, claims []store.Claim, tickets []message.Ticket) {
	if len(tickets) == 0 {
		return
	}
	kind := ""
	for _, claim := range claims {
		if claim.Verdict == store.Unhandled {
			kind = claim.Task.Type
			break
		}
	}
	if !p.parkOrRescue(ctx, tickets, p.s.o.ParkFor, fmt.Sprintf("worker %s has no handler for its type", p.s.o.Name)) {
		return
	}
	p.s.see(holdfast.ObservedParked, len(tickets))
	if _, told := p.s.unhandled.LoadOrStore(kind, true); !told { // the tasks themselves say it from now on
		p.s.log.WithField("type", kind).Warn("no handler for this type here; its tasks wait")
	}
}

// notePassed records in the store which tickets are about to leave their queue. Otherwise the queue's next sentinel
// proves them lost. notePassed tries until the store answers. If ctx ends first, the page must not pass the tickets on:
// their messages are delivered again.
func (p *page) notePassed(ctx context.Context) error {
	if len(p.passed) == 0 {
		return nil
	}
	for pause := backoff.New(firstPause, longPause); ; {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
		err := p.s.o.Store.PassedOn(attempt, p.passed)
		cancel()
		if err == nil {
			return nil
		}
		p.s.log.WithError(err).Warn("tickets that are passed on not recorded, trying again")
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// mirror publishes the letters until the broker has confirmed all of them. A manifest of
// ours is not needed any more once the page's results are committed.
func (p *page) mirror(ctx context.Context) error {
	letters := p.letters
	for pause := backoff.New(firstPause, longPause); len(letters) > 0; {
		// A drain lets the letters on their way arrive; the broker has its own limit.
		var left []broker.Message
		var err error
		for parcel := range broker.Parcels(letters) {
			outcomes, parcelErr := p.s.o.Broker.Publish(context.WithoutCancel(ctx), parcel)
			for i, outcome := range outcomes {
				if outcome != broker.Stored {
					left = append(left, parcel[i])
				}
			}
			err = errors.Join(err, parcelErr)
		}
		if letters = left; len(letters) == 0 {
			break
		}
		p.s.log.WithError(err).Info("a page's manifest is not confirmed, publishing it again")
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
	p.s.see(holdfast.ObservedQuarantined, p.malformed)
	return nil
}

func (s *session) see(kind holdfast.ObservationKind, n int) {
	if n > 0 {
		s.o.Observer.Observe(holdfast.Observation{Kind: kind, Count: n})
	}
}

func (s *session) seeClaim(c *store.Claim) {
	s.o.Observer.Observe(holdfast.Observation{
		Kind: holdfast.ObservedClaimed, Lane: c.Task.Lane, Type: c.Task.Type, Count: 1, Late: c.Now.Sub(c.Task.NextRunAt),
	})
}

func count(m map[holdfast.RunID][]message.Ticket) int {
	n := 0
	for _, tickets := range m {
		n += len(tickets)
	}
	return n
}
