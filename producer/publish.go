package producer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
)

const (
	// maxWindow bounds the tickets of one window, and maxPending those that wait for one. With more, calls wait, so that
	// who stores faster than the broker takes is slowed down.
	maxWindow  = 4000
	maxPending = 20_000
	// dischargeAfter is how long confirmed receipts gather. Nobody waits for their deletion, and its commit would be in the way
	// of the claim, which comes at the same moment.
	dischargeAfter = 250 * time.Millisecond
	// perTicket is the time from one window to the next for each ticket of the first, and maxPace the most of it. Below four
	// tickets a millisecond that is over before the confirms are there. Above, tickets gather: a few large windows cost the
	// broker, and this process, much less than the small ones that its confirms would allow, and leave both to those who store.
	perTicket = 250 * time.Microsecond
	maxPace   = 20 * time.Millisecond
)

// publisher gets the tickets of receipts confirmed while the callers, whose tasks are stored, go on. What comes together
// shares a window of confirms, and one delete of receipts. What it does not get confirmed is left to the outbox.
type publisher struct {
	broker   broker.Publisher
	topology broker.Topology
	store    store.Inserter
	limit    time.Duration // of one window, and of a delete
	observer holdfast.Observer
	log      logrus.FieldLogger

	mu          sync.Mutex
	pending     []handed
	tickets     int           // of them
	fewer       chan struct{} // closed and renewed when there are fewer
	publishing  bool          // a window is on its way
	full        chan struct{} // gets a value when enough wait for a window that no more could go with it
	confirmed   []int64       // receipts to delete
	discharging bool
	closing     chan struct{} // closed when nothing should gather any longer
	closed      sync.Once
	running     sync.WaitGroup
}

// handed is a receipt, and how many calls its tasks are of.
type handed struct {
	store.Receipt
	calls int
}

// hand takes the receipts of some calls over. It waits while too many tickets wait, but not longer than ctx: then they are
// the outbox's.
func (p *publisher) hand(ctx context.Context, receipts []store.Receipt, calls int) {
	if len(receipts) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.tickets >= maxPending {
		fewer := p.fewer
		p.mu.Unlock()
		select {
		case <-fewer:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			return
		}
	}
	for _, receipt := range receipts {
		p.tickets += len(receipt.Tickets)
		p.pending = append(p.pending, handed{receipt, calls})
	}
	if p.tickets >= maxWindow {
		select {
		case p.full <- struct{}{}:
		default:
		}
	}
	if !p.publishing {
		p.publishing = true
		p.running.Go(func() { p.publishAll(context.WithoutCancel(ctx)) })
	}
}

// close returns when everything handed over is confirmed or left to the outbox. Nothing may be handed over any more.
func (p *publisher) close() {
	p.closed.Do(func() { close(p.closing) })
	p.running.Wait()
}

// publishAll publishes window after window until nothing waits. While one is away, and for its pace, receipts gather, so windows
// grow with the load and a lone ticket waits for nobody.
func (p *publisher) publishAll(ctx context.Context) {
	for {
		window, tickets := p.next()
		if len(window) == 0 {
			return
		}
		began := time.Now()
		confirmed, err := p.publish(ctx, window)
		if err != nil {
			p.log.WithError(err).WithField("receipts", len(window)-len(confirmed)).Debug("tickets left to the outbox")
		}
		if len(confirmed) == 0 && errors.Is(err, holdfast.ErrUnavailable) {
			p.drop() // it would only wait longer, and callers with it
		}
		p.discharge(ctx, confirmed)
		p.gather(pace(tickets) - time.Since(began))
	}
}

// pace is the time from the beginning of a window of so many tickets to that of the next.
func pace(tickets int) time.Duration { return min(time.Duration(tickets)*perTicket, maxPace) }

// gather lets receipts come together for a while, or until they fill a window.
func (p *publisher) gather(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.full:
	case <-p.closing:
	}
}

// next takes the receipts of one window and counts their tickets, or ends the caller's turn.
func (p *publisher) next() (window []handed, tickets int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.pending) && (n == 0 || tickets+len(p.pending[n].Tickets) <= maxWindow) {
		tickets += len(p.pending[n].Tickets)
		n++
	}
	if n == 0 {
		p.publishing = false
		return nil, 0
	}
	window, p.pending = p.pending[:n:n], p.pending[n:]
	p.shrink(tickets)
	return window, tickets
}

// drop leaves everything that waits to the outbox.
func (p *publisher) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = nil
	p.shrink(p.tickets)
}

// shrink notes that fewer tickets wait. p.mu is held.
func (p *publisher) shrink(tickets int) {
	p.tickets -= tickets
	close(p.fewer)
	p.fewer = make(chan struct{})
}

// publish returns the receipts all of whose tickets are confirmed.
func (p *publisher) publish(ctx context.Context, receipts []handed) (confirmed []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	messages, of := p.messages(receipts)
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

// messages cuts the tickets of all receipts into messages, and lists for each the receipts it has tickets of.
func (p *publisher) messages(receipts []handed) (messages []broker.Message, of [][]int) {
	byLane := make(map[string]*parcel)
	var lanes []string // in their order, so that equal receipts make equal messages
	for i, receipt := range receipts {
		lane := byLane[receipt.Lane]
		if lane == nil {
			lane = &parcel{}
			byLane[receipt.Lane] = lane
			lanes = append(lanes, receipt.Lane)
		}
		lane.calls += receipt.calls
		lane.tickets = append(lane.tickets, receipt.Tickets...)
		for range receipt.Tickets {
			lane.of = append(lane.of, i)
		}
	}
	for _, name := range lanes {
		lane, queue := byLane[name], p.topology.Main(name)
		size := holdfast.PerMessage(len(lane.tickets), lane.calls)
		for len(lane.tickets) > 0 {
			n := min(size, len(lane.tickets))
			messages = append(messages, broker.Message{Queue: queue, Body: holdfast.Message{Tickets: lane.tickets[:n]}.Encode()})
			of = append(of, lane.of[:n])
			lane.tickets, lane.of = lane.tickets[n:], lane.of[n:]
		}
	}
	return messages, of
}

// parcel is what goes to one lane: tickets, the receipt of each, and how many calls they are of.
type parcel struct {
	tickets []holdfast.Ticket
	of      []int
	calls   int
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
