package producer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

const (
	// maxGroupTickets is the maximum number of tickets in a publish group. maxPending is the maximum number of waiting
	// tickets over all queues. Each queue gets an equal share, but at least minPending. If a queue has more, its
	// callers wait.
	maxGroupTickets = 4000
	maxPending      = 20_000
	minPending      = 1000
	// firstProbe is the pause before the publisher first probes a silent queue. The pauses grow up to lastProbe.
	firstProbe = 500 * time.Millisecond
	lastProbe  = 5 * time.Second
	// deleteAfter is how long confirmed outbox entries accumulate before the publisher deletes them. No caller waits
	// for the deletion. An earlier deletion would delay the claims, which come at the same time.
	deleteAfter = 250 * time.Millisecond
	// The publisher waits from the start of a publish group to the start of the next: intervalPerTicket for each ticket
	// of the first, but at most maxGroupInterval. Below four tickets per millisecond, the wait makes no difference,
	// because the confirms arrive later. Above that rate, tickets accumulate during the wait: a few large groups cost
	// the broker and this process much less than many small ones.
	intervalPerTicket = 250 * time.Microsecond
	maxGroupInterval  = 20 * time.Millisecond
)

// publisher publishes the tickets of outbox entries after their calls have returned, and waits for the confirms. Each
// queue has publish groups of its own, so that the confirms of one queue never delay the tickets of another.
// Unconfirmed tickets stay in the outbox.
type publisher struct {
	broker   broker.Publisher
	topology broker.Topology
	store    store.Inserter
	limit    time.Duration // maximum time of a publish group, and of a delete
	observer holdfast.Observer
	log      logrus.FieldLogger

	mu        sync.Mutex
	queues    map[string]*outgoingQueue // by name: queues with tickets, and silent queues
	confirmed []int64                   // outbox entries to delete
	deleting  bool
	closing   chan struct{} // closed when tickets and entries must not wait for others
	closed    sync.Once
	running   sync.WaitGroup
}

// outgoingQueue has the tickets of one queue that wait for publishing. The publisher's mu guards it.
type outgoingQueue struct {
	queue      string
	pending    []pendingEntry
	tickets    int           // number of tickets in pending
	shrunk     chan struct{} // closed and replaced when tickets decreases
	publishing bool          // a goroutine runs publishAll
	groupBegan time.Time     // when the publish group in progress began; zero if there is none
	full       chan struct{} // gets a value when enough tickets wait to fill a publish group
	failures   int           // publish groups in a row without a confirm in time; above 0 the queue is silent
	probeAt    time.Time     // when the publisher probes a silent queue
}

// pendingEntry is an outbox entry to publish, with the number of calls in its insert group.
type pendingEntry struct {
	store.OutboxEntry
	calls int
}

// admit waits while too many tickets of a queue wait, so that callers do not store tasks faster than the queue accepts
// tickets. It does not wait for a silent queue, because the tickets of that queue stay in the outbox. If ctx ends,
// admit returns the cause.
func (p *publisher) admit(ctx context.Context, queue string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		q := p.queues[queue]
		if q == nil || q.tickets < p.share() {
			return nil
		}
		patience := p.patience(q)
		if patience <= 0 {
			return nil
		}
		shrunk := q.shrunk
		p.mu.Unlock()
		err := waitFor(ctx, shrunk, patience)
		p.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// patience returns how long callers may still wait for the publish group in progress. They wait until half of its time
// limit has passed, because the queue may not answer at all. The caller holds p.mu.
func (p *publisher) patience(q *outgoingQueue) time.Duration {
	if q.groupBegan.IsZero() {
		return p.limit / 2
	}
	return p.limit/2 - time.Since(q.groupBegan)
}

// waitFor waits for a change, at most for patience. It returns the cause if ctx ends first.
func waitFor(ctx context.Context, change <-chan struct{}, patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-change:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// share returns how many tickets of one queue may wait. The caller holds p.mu.
func (p *publisher) share() int { return max(minPending, maxPending/max(1, len(p.queues))) }

// add adds the outbox entries of an insert group with the given number of calls. It never waits. It leaves entries to
// the outbox if their queue is silent and not due for a probe, or if their queue has too many tickets and its publish
// group is late.
func (p *publisher) add(ctx context.Context, entries []store.OutboxEntry, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, entry := range entries {
		q := p.queues[entry.Queue]
		if q == nil {
			q = &outgoingQueue{queue: entry.Queue, shrunk: make(chan struct{}), full: make(chan struct{}, 1)}
			p.queues[entry.Queue] = q
		}
		silent := q.failures > 0 && (q.publishing || time.Now().Before(q.probeAt))
		if silent || q.tickets >= p.share() && p.patience(q) <= 0 {
			continue
		}
		q.tickets += len(entry.Tickets)
		q.pending = append(q.pending, pendingEntry{entry, calls})
		if q.tickets >= maxGroupTickets {
			select {
			case q.full <- struct{}{}:
			default:
			}
		}
		if !q.publishing {
			q.publishing = true
			p.running.Go(func() { p.publishAll(context.WithoutCancel(ctx), q) })
		}
	}
}

// addCommitted adds outbox entries of callers' transactions. Their callers do not wait in admit. So if their queue has
// too many tickets, addCommitted leaves them to the outbox.
func (p *publisher) addCommitted(ctx context.Context, entries []store.OutboxEntry) {
	p.mu.Lock()
	entries = slices.DeleteFunc(entries, func(entry store.OutboxEntry) bool {
		q := p.queues[entry.Queue]
		return q != nil && q.tickets >= p.share()
	})
	p.mu.Unlock()
	p.add(ctx, entries, 1)
}

// close returns when all added entries are confirmed or left to the outbox. add must not be called after close.
func (p *publisher) close() {
	p.closed.Do(func() { close(p.closing) })
	p.running.Wait()
}

// publishAll publishes the tickets of a queue, one publish group after another, until none wait. While a group is in
// progress, and during the pause after it, outbox entries accumulate. So groups grow with the load, and a single ticket
// does not wait for others.
func (p *publisher) publishAll(ctx context.Context, q *outgoingQueue) {
	for {
		group, tickets := p.nextGroup(q)
		if len(group) == 0 {
			return
		}
		began := time.Now()
		confirmed, err := p.publish(ctx, q.queue, group)
		if err != nil {
			p.log.WithError(err).WithField("queue", q.queue).WithField("outbox entries", len(group)-len(confirmed)).Debug("tickets not confirmed: they stay in the outbox")
		}
		p.recordOutcome(q, len(confirmed) > 0, err)
		p.deleteOutbox(ctx, confirmed)
		p.waitForMore(q, groupInterval(tickets)-time.Since(began))
	}
}

// groupInterval returns the time from the start of a publish group with the given number of tickets to the start of the
// next.
func groupInterval(tickets int) time.Duration {
	return min(time.Duration(tickets)*intervalPerTicket, maxGroupInterval)
}

// waitForMore waits for d, or until the waiting tickets fill a publish group.
func (p *publisher) waitForMore(q *outgoingQueue, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.full:
	case <-p.closing:
	}
}

// nextGroup takes the outbox entries of the next publish group and counts their tickets. If there are none, it returns
// nil, and the caller must end.
func (p *publisher) nextGroup(q *outgoingQueue) (group []pendingEntry, tickets int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(q.pending) && (n == 0 || tickets+len(q.pending[n].Tickets) <= maxGroupTickets) {
		tickets += len(q.pending[n].Tickets)
		n++
	}
	if n == 0 {
		q.publishing = false
		if q.failures == 0 {
			delete(p.queues, q.queue)
		}
		return nil, 0
	}
	group, q.pending = q.pending[:n:n], q.pending[n:]
	q.groupBegan = time.Now()
	q.shrink(tickets)
	return group, tickets
}

// recordOutcome records the outcome of a publish group. If the broker confirmed nothing, all waiting tickets of the
// queue stay in the outbox, because they and their callers would only wait longer. If the group also had enough time,
// the queue is treated as silent until it confirms a ticket.
func (p *publisher) recordOutcome(q *outgoingQueue, confirmed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := time.Since(q.groupBegan)
	q.groupBegan = time.Time{}
	switch {
	case confirmed || err == nil:
		q.failures = 0
		return
	case !errors.Is(err, holdfast.ErrUnavailable):
		return
	case took >= p.limit/2:
		q.probeAt = time.Now().Add(min(firstProbe<<min(q.failures, 10), lastProbe))
		if q.failures++; q.failures == 1 {
			p.log.WithError(err).WithField("queue", q.queue).Warn("queue confirms nothing: its tickets stay in the outbox")
		}
	}
	q.pending = nil
	q.shrink(q.tickets)
}

// shrink records that fewer tickets wait.
func (q *outgoingQueue) shrink(tickets int) {
	q.tickets -= tickets
	close(q.shrunk)
	q.shrunk = make(chan struct{})
}

// publish publishes a group and returns the ids of the outbox entries whose tickets are all confirmed.
func (p *publisher) publish(ctx context.Context, queue string, entries []pendingEntry) (confirmed []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	messages, entriesOf := p.messages(queue, entries)
	began := time.Now()
	outcomes, err := p.broker.Publish(ctx, messages)
	failed := make([]bool, len(entries))
	for i, outcome := range outcomes {
		if outcome != broker.Stored {
			for _, entry := range entriesOf[i] {
				failed[entry] = true
			}
		}
	}
	tickets := 0
	for i, entry := range entries {
		if !failed[i] {
			confirmed = append(confirmed, entry.ID)
			tickets += len(entry.Tickets)
		}
	}
	if tickets > 0 {
		p.observer.Observe(holdfast.Observation{Kind: holdfast.ObservedPublished, Count: tickets, Took: time.Since(began)})
	}
	return confirmed, err
}

// messages divides the tickets of outbox entries into messages for one queue. For each message it returns the indexes
// of the entries whose tickets are in it.
func (p *publisher) messages(queue string, entries []pendingEntry) (messages []broker.Message, entriesOf [][]int) {
	var tickets []message.Ticket
	var owners []int // the outbox entry of each ticket
	calls := 0
	for i, entry := range entries {
		calls += entry.calls
		tickets = append(tickets, entry.Tickets...)
		for range entry.Tickets {
			owners = append(owners, i)
		}
	}
	amqpQueue, size := p.topology.Main(queue), message.PerMessage(len(tickets), calls)
	for len(tickets) > 0 {
		n := min(size, len(tickets))
		messages = append(messages, broker.Message{Queue: amqpQueue, Body: message.Message{Tickets: tickets[:n]}.Encode()})
		entriesOf = append(entriesOf, owners[:n])
		tickets, owners = tickets[n:], owners[n:]
	}
	return messages, entriesOf
}

// deleteOutbox deletes confirmed outbox entries of several publish groups in the background. If it cannot delete an
// entry, a janitor publishes its tickets again, and the claim drops the duplicates.
func (p *publisher) deleteOutbox(ctx context.Context, confirmed []int64) {
	if len(confirmed) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.confirmed = append(p.confirmed, confirmed...)
	if !p.deleting {
		p.deleting = true
		p.running.Go(func() { p.deleteConfirmed(ctx) })
	}
}

func (p *publisher) deleteConfirmed(ctx context.Context) {
	for {
		select {
		case <-time.After(deleteAfter):
		case <-p.closing:
		}
		p.mu.Lock()
		entries := p.confirmed
		p.confirmed = nil
		p.deleting = len(entries) > 0
		p.mu.Unlock()
		if len(entries) == 0 {
			return
		}
		limited, cancel := context.WithTimeout(ctx, p.limit)
		if err := p.store.DeleteOutbox(limited, entries); err != nil {
			p.log.WithError(err).Debug("confirmed outbox entries not deleted")
		}
		cancel()
	}
}
