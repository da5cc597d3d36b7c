package producer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
)

const (
	// maxWindow bounds the tickets of one window. maxPending bounds the waiting tickets of all queues; each queue gets
	// an equal share, but no less than minPending. If a queue has more, calls for it wait.
	maxWindow  = 4000
	maxPending = 20_000
	minPending = 1000
	// The publisher tries a queue that confirms nothing again after firstProbe, then after longer and longer pauses.
	firstProbe = 500 * time.Millisecond
	lastProbe  = 5 * time.Second
	// dischargeAfter is how long confirmed receipts gather. No caller waits for their deletion, and its commit would
	// delay the claim, which comes at the same time.
	dischargeAfter = 250 * time.Millisecond
	// perTicket is the time from one window to the next for each ticket of the first, and maxPace the most of it. Below
	// four tickets a millisecond that time ends before the confirms arrive. Above, tickets gather: a few large windows
	// cost the broker and this process much less than many small ones, and leave more time for storing.
	perTicket = 250 * time.Microsecond
	maxPace   = 20 * time.Millisecond
)

// publisher publishes the tickets of receipts after their calls have returned, and waits for the confirms. Each queue
// has windows of its own, so that one queue's confirms never delay another queue's tickets. The publisher leaves
// unconfirmed tickets to the outbox.
type publisher struct {
	broker   broker.Publisher
	topology broker.Topology
	store    store.Inserter
	limit    time.Duration // of one window, and of a delete
	observer holdfast.Observer
	log      logrus.FieldLogger

	mu          sync.Mutex
	queues      map[string]*outgoing // by lane: those with tickets, and those that confirm nothing
	confirmed   []int64              // receipts to delete
	discharging bool
	closing     chan struct{} // closed when nothing should gather any longer
	closed      sync.Once
	running     sync.WaitGroup
}

// outgoing has the tickets that wait for the confirms of one queue. The publisher's mu guards it.
type outgoing struct {
	lane       string
	pending    []handed
	tickets    int           // of them
	fewer      chan struct{} // closed and renewed when there are fewer
	publishing bool          // a goroutine publishes window after window
	began      time.Time     // when the window in progress began; zero if there is none
	full       chan struct{} // gets a value when enough tickets wait to fill a window
	failures   int           // windows in a row without a confirm in time; above 0 the queue is silent
	probeAt    time.Time     // when a silent queue is tried again
}

// handed is a receipt, and how many calls its tasks are of.
type handed struct {
	store.Receipt
	calls int
}

// admit waits while too many tickets of a queue wait for their confirms, so that calls do not store faster than the
// queue takes tickets. It does not wait for a queue that confirms nothing, because the publisher leaves its tickets to
// the outbox.
func (p *publisher) admit(ctx context.Context, lane string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		q := p.queues[lane]
		if q == nil || q.tickets < p.share() {
			return nil
		}
		patience := p.patience(q)
		if patience <= 0 {
			return nil
		}
		fewer := q.fewer
		p.mu.Unlock()
		err := waitFor(ctx, fewer, patience)
		p.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// patience returns how long callers wait for the window in progress. If half of its time passes without an answer, the
// queue has perhaps stopped. The caller holds p.mu.
func (p *publisher) patience(q *outgoing) time.Duration {
	if q.began.IsZero() {
		return p.limit / 2
	}
	return p.limit/2 - time.Since(q.began)
}

// waitFor waits for a change, but not longer than patience. It returns the cause if ctx ends first.
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

// hand takes over the receipts of some calls. It never waits. It leaves the tickets of a silent queue to the outbox,
// except those that probe the queue. It also leaves tickets to the outbox if a queue whose window is late has too many.
func (p *publisher) hand(ctx context.Context, receipts []store.Receipt, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, receipt := range receipts {
		q := p.queues[receipt.Lane]
		if q == nil {
			q = &outgoing{lane: receipt.Lane, fewer: make(chan struct{}), full: make(chan struct{}, 1)}
			p.queues[receipt.Lane] = q
		}
		silent := q.failures > 0 && (q.publishing || time.Now().Before(q.probeAt))
		if silent || q.tickets >= p.share() && p.patience(q) <= 0 {
			continue
		}
		q.tickets += len(receipt.Tickets)
		q.pending = append(q.pending, handed{receipt, calls})
		if q.tickets >= maxWindow {
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

// close returns when everything handed over is confirmed or left to the outbox. Nothing may be handed over any more.
func (p *publisher) close() {
	p.closed.Do(func() { close(p.closing) })
	p.running.Wait()
}

// publishAll publishes a queue's tickets, window after window, until none wait. While a window is in progress, and
// during the pause after it, receipts gather. So windows grow with the load, and a lone ticket waits for no other.
func (p *publisher) publishAll(ctx context.Context, q *outgoing) {
	for {
		window, tickets := p.next(q)
		if len(window) == 0 {
			return
		}
		began := time.Now()
		confirmed, err := p.publish(ctx, q.lane, window)
		if err != nil {
			p.log.WithError(err).WithField("lane", q.lane).WithField("receipts", len(window)-len(confirmed)).Debug("tickets left to the outbox")
		}
		p.judge(q, len(confirmed) > 0, err)
		p.discharge(ctx, confirmed)
		p.gather(q, pace(tickets)-time.Since(began))
	}
}

// pace is the time from the beginning of a window of so many tickets to that of the next.
func pace(tickets int) time.Duration { return min(time.Duration(tickets)*perTicket, maxPace) }

// gather lets receipts come together for a while, or until they fill a window.
func (p *publisher) gather(q *outgoing, d time.Duration) {
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

// next takes the receipts of one window and counts their tickets, or ends the caller's turn.
func (p *publisher) next(q *outgoing) (window []handed, tickets int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(q.pending) && (n == 0 || tickets+len(q.pending[n].Tickets) <= maxWindow) {
		tickets += len(q.pending[n].Tickets)
		n++
	}
	if n == 0 {
		q.publishing = false
		if q.failures == 0 {
			delete(p.queues, q.lane)
		}
		return nil, 0
	}
	window, q.pending = q.pending[:n:n], q.pending[n:]
	q.began = time.Now()
	q.shrink(tickets)
	return window, tickets
}

// judge records how a window ended. After a window without a confirm, the publisher leaves all waiting tickets of the
// queue to the outbox: they would only wait longer, and callers with them. If such a window had enough time, the queue
// is silent until it confirms something.
func (p *publisher) judge(q *outgoing, confirmed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := time.Since(q.began)
	q.began = time.Time{}
	switch {
	case confirmed || err == nil:
		q.failures = 0
		return
	case !errors.Is(err, holdfast.ErrUnavailable):
		return
	case took >= p.limit/2:
		q.probeAt = time.Now().Add(min(firstProbe<<min(q.failures, 10), lastProbe))
		if q.failures++; q.failures == 1 {
			p.log.WithError(err).WithField("lane", q.lane).Warn("queue confirms nothing: its tickets are left to the outbox")
		}
	}
	q.pending = nil
	q.shrink(q.tickets)
}

// shrink records that fewer tickets wait.
func (q *outgoing) shrink(tickets int) {
	q.tickets -= tickets
	close(q.fewer)
	q.fewer = make(chan struct{})
}

// publish returns the receipts all of whose tickets are confirmed.
func (p *publisher) publish(ctx context.Context, lane string, receipts []handed) (confirmed []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	messages, of := p.messages(lane, receipts)
	began := time.Now()
	outcomes, err := p.broker.Publish(ctx, messages)
	failed := make([]bool, len(receipts))
	for i, outcome := range outcomes {
		if outcome != broker.Stored {
			for _, receipt := range of[i] {
				failed[receipt] = true
			}
		}
	}
	tickets := 0
	for i, receipt := range receipts {
		if !failed[i] {
			confirmed = append(confirmed, receipt.ID)
			tickets += len(receipt.Tickets)
		}
	}
	if tickets > 0 {
		p.observer.Observe(holdfast.Observation{Kind: holdfast.ObservedPublished, Count: tickets, Took: time.Since(began)})
	}
	return confirmed, err
}

// messages divides the tickets of all receipts, which are of one lane, into messages. For each message it lists the
// receipts whose tickets are in it.
func (p *publisher) messages(lane string, receipts []handed) (messages []broker.Message, of [][]int) {
	var tickets []message.Ticket
	var owners []int // the receipt of each ticket
	calls := 0
	for i, receipt := range receipts {
		calls += receipt.calls
		tickets = append(tickets, receipt.Tickets...)
		for range receipt.Tickets {
			owners = append(owners, i)
		}
	}
	queue, size := p.topology.Main(lane), message.PerMessage(len(tickets), calls)
	for len(tickets) > 0 {
		n := min(size, len(tickets))
		messages = append(messages, broker.Message{Queue: queue, Body: message.Message{Tickets: tickets[:n]}.Encode()})
		of = append(of, owners[:n])
		tickets, owners = tickets[n:], owners[n:]
	}
	return messages, of
}

// discharge deletes confirmed receipts, those of several windows at once if there are. What it cannot delete is published once
// more by the outbox, and the duplicates dropped at the claim.
func (p *publisher) discharge(ctx context.Context, confirmed []int64) {
	if len(confirmed) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.confirmed = append(p.confirmed, confirmed...)
	if !p.discharging {
		p.discharging = true
		p.running.Go(func() { p.dischargeAll(ctx) })
	}
}

func (p *publisher) dischargeAll(ctx context.Context) {
	for {
		select {
		case <-time.After(dischargeAfter):
		case <-p.closing:
		}
		p.mu.Lock()
		receipts := p.confirmed
		p.confirmed = nil
		p.discharging = len(receipts) > 0
		p.mu.Unlock()
		if len(receipts) == 0 {
			return
		}
		limited, cancel := context.WithTimeout(ctx, p.limit)
		if err := p.store.Discharge(limited, receipts); err != nil {
			p.log.WithError(err).Debug("confirmed receipts left to the outbox")
		}
		cancel()
	}
}
