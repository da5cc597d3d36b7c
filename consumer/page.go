package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// page is a set of messages that an intake takes together.
type page struct {
	s           *session
	tags        []uint64 // tags of its messages
	tickets     []message.Ticket
	wanted      []store.Wanted
	into        store.Place
	requeued    bool                        // its tickets come from a requeue queue
	lastChances []message.Ticket            // tickets of last-chance tasks
	sentinels   map[string]message.Sentinel // the newest of each queue
	messages    []broker.Message            // must be confirmed before the page's messages are acked
	passed      []message.Ticket            // tickets in messages that go to the requeue queue
	malformed   int                         // number of messages to quarantine
	unread      int                         // number of messages that go to the unread queue
	number      int64
}

func (s *session) newPage() *page { return &page{s: s, wanted: s.ordinary()} }

// decoded is a delivery with its decoded message, or the error of the decoder.
type decoded struct {
	broker.Delivery
	message message.Message
	err     error
}

func decode(d broker.Delivery) decoded {
	m, err := message.Decode(d.Body)
	return decoded{d, m, err}
}

// add adds one delivery to the page.
func (p *page) add(r decoded) {
	p.tags = append(p.tags, r.Tag)
	switch {
	case r.err != nil:
		p.divert(p.s.o.Topology.Undecodable(r.Body, r.err, p.s.o.Name))
	case r.message.Manifest != nil:
		p.divert(p.s.o.Topology.Malformed(r.Body, "unexpected manifest in a main queue or requeue queue", p.s.o.Name))
	case r.message.Sentinel != nil && r.Redelivered:
		// A redelivered sentinel proves nothing. Messages that were returned earlier are now in front of it, and
		// tickets that were in front of it may be behind it.
	case r.message.Sentinel != nil:
		if p.sentinels == nil {
			p.sentinels = make(map[string]message.Sentinel)
		}
		if s := *r.message.Sentinel; s.At.After(p.sentinels[s.Queue].At) { // the newest sentinel replaces older ones
			p.sentinels[s.Queue] = s
		}
	default:
		p.tickets = append(p.tickets, r.message.Tickets...)
	}
}

// passOn keeps the first n tickets. It adds the others to the messages for the requeue queue, so that any worker with
// free capacity can take them.
func (p *page) passOn(amqpQueue string, n int) {
	rest := p.tickets[n:]
	p.tickets, p.passed = p.tickets[:n], rest
	for part := range slices.Chunk(rest, message.MaxTickets) {
		p.messages = append(p.messages, broker.Message{Queue: amqpQueue, Body: message.Message{Tickets: part}.Encode()})
	}
}

// divert adds a message for the quarantine or the unread queue to the outgoing messages.
func (p *page) divert(m broker.Message) {
	if m.Queue == p.s.o.Topology.Unread() {
		p.unread++
	} else {
		p.malformed++
	}
	p.messages = append(p.messages, m)
}

// process claims the page, starts the claimed tasks, publishes the manifest, and acks the page's messages. After an
// error the messages stay unacked, so that the broker delivers them again. This is safe because the claim is
// idempotent.
func (p *page) process(ctx context.Context, acks *acks) {
	s := p.s
	err := p.take(ctx)
	if err == nil {
		err = p.takeLastChances(ctx)
	}
	if err != nil {
		s.log.WithError(err).Debug("page not taken: its messages will be delivered again")
		return
	}
	for _, sentinel := range p.sentinels {
		if err := s.o.Store.Drained(ctx, sentinel); err != nil { // not repeated, because the next sentinel replaces this one
			s.log.WithError(err).Warn("arrival of a sentinel not recorded")
		}
	}
	if err := acks.finish(p.tags); err != nil && !errors.Is(err, broker.ErrSubscriptionEnded) {
		s.log.WithError(err).Warn("messages not acked")
	}
}

// take claims the page's tickets, starts the claimed tasks, and publishes the outgoing messages. When it returns nil,
// the broker has confirmed all of them.
func (p *page) take(ctx context.Context) error {
	s := p.s
	if len(p.tickets) > 0 {
		fresh, inProgress := s.jobs.reserve(p.tickets)
		s.capacity.release(len(inProgress), p.into)
		p.tickets = fresh
		if len(inProgress) > 0 {
			// The broker may have redelivered messages of an earlier page of this worker over a new subscription. The
			// manifest of that page may be unconfirmed, so the tickets need another one before they are acked.
			p.manifest(s.worker, 0, inProgress)
		}
	}
	p.number = s.pages.begin(len(p.tickets) + 1) // one more than the tickets, so that the page stays open until take returns
	defer s.pages.finish(p.number, 1)

	size := len(p.tickets)
	for left := p.tickets; len(left) > 0; {
		claims, err := p.claim(ctx, left, &size)
		if err != nil {
			s.unansweredIDs.add(left)
			s.disown()
			s.capacity.release(len(left), p.into)
			s.jobs.forget(left...)
			s.pages.finish(p.number, len(left))
			return fmt.Errorf("claim: %w", err)
		}
		claimed := left[:len(claims)]
		left = left[len(claims):]
		if err := p.handleClaims(ctx, claimed, claims); err != nil {
			s.capacity.release(len(left), p.into)
			s.jobs.forget(left...)
			s.pages.finish(p.number, len(left))
			return fmt.Errorf("pass on tickets of other types: %w", err)
		}
	}
	if err := p.recordPassed(ctx, p.passed); err != nil {
		return fmt.Errorf("record tickets that are passed on: %w", err)
	}
	if err := p.publish(ctx); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

const claimTimeout = 5 * time.Second

// claim claims the first of the given tickets, at most *size, and returns their claims. It tries until the store
// answers or the worker's lease ends. It must not give up earlier: an unanswered claim may be committed, and then only
// this worker can run its tasks. When the worker has ended, the janitor hands them back.
//
// If the store answers other calls but not this one, the payloads may be too large for one answer. Then claim lowers
// *size.
func (p *page) claim(ctx context.Context, tickets []message.Ticket, size *int) ([]store.Claim, error) {
	s := p.s
	s.claimedIDs.add(tickets)
	began := time.Now()
	for pause := backoff.New(firstPause, longPause); ; {
		if !s.lease.valid() {
			return nil, holdfast.ErrLeaseLost
		}
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
		claims, err := contain.Value(func() ([]store.Claim, error) {
			return s.o.Store.Claim(attempt, s.worker, p.wanted, tickets[:min(*size, len(tickets))], p.into)
		})
		cancel()
		if err == nil {
			return claims, nil
		}
		if errors.Is(err, store.ErrFenced) || errors.Is(context.Cause(ctx), holdfast.ErrLeaseLost) {
			return nil, err
		}
		s.log.WithError(err).Warn("page not claimed, trying again")
		if s.requestFault(err, began) {
			*size = max(1, *size/2)
		}
		if err := pause.Wait(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
	}
}

// handleClaims starts the claimed tasks. For each other verdict, it adds the required outgoing message. claims are the
// answers for the first tickets.
func (p *page) handleClaims(ctx context.Context, tickets []message.Ticket, claims []store.Claim) error {
	s := p.s
	var aheadOfStore, dropped []message.Ticket
	foreignTypes := make(map[string][]message.Ticket) // without a handler here, by type queue
	blocked := make(map[store.ID][]message.Ticket)    // by gate
	own, jobs := make([]message.Ticket, 0, len(claims)), make([]*job, 0, len(claims))
	foreign := make(map[holdfast.WorkerID][]message.Ticket)
	now := time.Now()
	for i := range claims {
		claim, ticket := &claims[i], tickets[i]
		if claim.Verdict == store.Claimed {
			own = append(own, ticket)
			s.observeClaim(claim)
			jobs = append(jobs, &job{session: s, task: claim.Task, probe: claim.Probe, page: p.number, into: p.into, now: claim.Now, claimed: now})
			continue
		}
		dropped = append(dropped, ticket)
		switch claim.Verdict {
		case store.Contended:
			foreign[claim.Owner] = append(foreign[claim.Owner], ticket)
		case store.Ahead:
			aheadOfStore = append(aheadOfStore, ticket)
		case store.Blocked:
			blocked[claim.Gate] = append(blocked[claim.Gate], ticket)
		case store.Unhandled:
			name := holdfast.TypeQueue(claim.Task.Subqueue(), claim.Task.Type)
			foreignTypes[name] = append(foreignTypes[name], ticket)
		case store.LastChance:
			p.lastChances = append(p.lastChances, ticket)
		}
	}
	s.capacity.release(len(dropped), p.into) // first, because the jobs that are added below may start on these executors
	s.handBack(s.jobs.add(jobs...))
	s.jobs.forget(dropped...)
	s.pages.finish(p.number, len(dropped))
	s.observe(holdfast.ObservedStale, len(dropped)-countTickets(foreignTypes)-len(aheadOfStore)-len(p.lastChances)-countTickets(foreign)-countTickets(blocked))
	s.observe(holdfast.ObservedContended, countTickets(foreign))

	if len(own) > 0 {
		p.manifest(s.worker, p.number, own)
	}
	for worker, tickets := range foreign {
		p.manifest(worker, 0, tickets)
	}
	p.rescue(aheadOfStore)
	p.block(ctx, blocked)
	return p.giveAway(ctx, foreignTypes)
}

// manifest adds a manifest to the outgoing messages.
func (p *page) manifest(worker holdfast.WorkerID, page int64, tickets []message.Ticket) {
	for part := range slices.Chunk(tickets, message.MaxTickets) {
		m := message.Manifest{Worker: worker, Page: page, Tickets: part}
		p.messages = append(p.messages, broker.Message{Queue: p.s.o.Topology.HoldingQueue(worker), Body: message.Message{Manifest: &m}.Encode()})
	}
}

// rescue adds tickets for the rescue queue to the outgoing messages.
func (p *page) rescue(tickets []message.Ticket) {
	for part := range slices.Chunk(tickets, message.MaxTickets) {
		p.messages = append(p.messages, broker.Message{Queue: p.s.o.Topology.Rescue(), Body: message.Message{Tickets: part}.Encode()})
	}
}

// parkOrRescue parks tasks, and returns the number of parked tasks.
func (p *page) parkOrRescue(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) (parked int) {
	return p.orRescue(ctx, "parked", tickets, func(ctx context.Context, tickets []message.Ticket) error {
		return p.s.o.Store.Park(ctx, tickets, wait, why)
	})
}

// block blocks tasks at the gates that concern them. The gates release the tasks.
func (p *page) block(ctx context.Context, blocked map[store.ID][]message.Ticket) {
	for gate, tickets := range blocked {
		n := p.orRescue(ctx, "blocked", tickets, func(ctx context.Context, tickets []message.Ticket) error {
			return p.s.o.Store.Block(ctx, gate, tickets)
		})
		if n > 0 {
			p.s.observe(holdfast.ObservedBlocked, n)
			p.s.o.OnBlocked()
		}
	}
}

// orRescue calls write, which makes the tasks wait in the store, and returns the number of waiting tasks. The worker is
// about to ack the tickets. So if write fails, orRescue adds them to the outgoing messages for the rescue queue. If the
// store refuses only some tasks as invalid, only these tickets go to the rescue queue.
func (p *page) orRescue(ctx context.Context, what string, tickets []message.Ticket, write func(context.Context, []message.Ticket) error) int {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	return p.writeOrRescue(ctx, what, tickets, write)
}

// writeOrRescue does the work of orRescue. If the store refuses all tickets together, it writes each half separately.
func (p *page) writeOrRescue(ctx context.Context, what string, tickets []message.Ticket, write func(context.Context, []message.Ticket) error) int {
	err := write(ctx, tickets)
	switch {
	case err == nil:
		return len(tickets)
	case errors.Is(err, holdfast.ErrInvalid) && len(tickets) > 1:
		half := len(tickets) / 2
		return p.writeOrRescue(ctx, what, tickets[:half], write) + p.writeOrRescue(ctx, what, tickets[half:], write)
	}
	p.s.log.WithError(err).WithField("tasks", len(tickets)).Warn("tasks not " + what + ": sending their tickets to the rescue queue")
	p.rescue(tickets)
	return 0
}

// recordPassed records in the store which tickets are about to go to a requeue queue or a type queue. Without the
// record, the next sentinel of the main queue would prove them lost. recordPassed tries until the store answers. If it
// returns an error because ctx has ended, the page must not pass the tickets on; the broker delivers their messages
// again.
func (p *page) recordPassed(ctx context.Context, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	return p.s.untilAnswered(ctx, "passed on tickets not recorded", func(ctx context.Context) error { return p.s.o.Store.PassedOn(ctx, tickets) })
}

// untilAnswered calls the store until it answers without an error. It returns an error if ctx ends first. failed
// describes a failure in the log.
func (s *session) untilAnswered(ctx context.Context, failed string, call func(context.Context) error) error {
	for pause := backoff.New(firstPause, longPause); ; {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
		err := call(attempt)
		cancel()
		if err == nil {
			return nil
		}
		s.log.WithError(err).Warn(failed + ", trying again")
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// publish publishes the outgoing messages until the broker has confirmed all of them.
func (p *page) publish(ctx context.Context) error {
	messages := p.messages
	for pause := backoff.New(firstPause, longPause); len(messages) > 0; {
		// The call is not cancelled with ctx, so that a drain does not interrupt a publish in progress. The broker has
		// a limit of its own.
		var left []broker.Message
		var err error
		for group := range broker.PublishGroups(messages) {
			outcomes, groupErr := p.s.o.Broker.Publish(context.WithoutCancel(ctx), group)
			for i, outcome := range outcomes {
				if outcome != broker.Stored {
					left = append(left, group[i])
				}
			}
			err = errors.Join(err, groupErr)
		}
		if messages = left; len(messages) == 0 {
			break
		}
		p.s.log.WithError(err).Info("manifest not confirmed, publishing it again")
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
	p.s.observe(holdfast.ObservedQuarantined, p.malformed)
	p.s.observe(holdfast.ObservedUnread, p.unread)
	return nil
}

func (s *session) observe(kind holdfast.ObservationKind, n int) {
	if n > 0 {
		s.o.Observer.Observe(holdfast.Observation{Kind: kind, Count: n})
	}
}

func (s *session) observeClaim(c *store.Claim) {
	s.o.Observer.Observe(holdfast.Observation{
		Kind: holdfast.ObservedClaimed, Queue: c.Task.Queue, Type: c.Task.Type, Count: 1, Late: c.Now.Sub(c.Task.NextRunAt),
	})
}

func countTickets[By comparable](m map[By][]message.Ticket) int {
	n := 0
	for _, tickets := range m {
		n += len(tickets)
	}
	return n
}
