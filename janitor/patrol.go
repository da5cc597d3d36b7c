package janitor

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

const (
	// handSize is how many messages one patrol holds. Manifests of finished pages leave with the
	// run's next renewal, so it is reached only by very many long pages, or malformed messages.
	handSize    = 5000
	patrolEvery = 200 * time.Millisecond
	patrolBatch = 200 // manifests that are asked about at once
	// Long tasks are asked about ever more rarely, but far more often than any consumer timeout.
	maxRounds   = 10
	longestLook = 2 * time.Minute
)

// inHand is a manifest that this patrol has received and not settled.
type inHand struct {
	tag      uint64
	manifest message.Manifest
	since    time.Time
}

// patrol reads manifests as they arrive and keeps them in hand until their page is
// finished, their run is over, or they are so old that they are written anew.
func (j *Janitor) patrol(ctx context.Context, sub broker.Subscription) error {
	var hand []inHand
	var again time.Time // not to walk before, after a failure
	pause := backoff.New(firstPause, longPause)
	aside := asides{j: j, sub: sub}
	tick := time.NewTicker(patrolEvery)
	defer tick.Stop()
	for {
		walks := tick.C
		if len(hand) == 0 { // a ticker that nobody listens to wakes nobody
			walks = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case delivery, open := <-sub.Deliveries():
			if !open {
				return broker.ErrOver
			}
			hand = append(hand, readManifests(gather(sub, delivery), &aside)...)
		case <-aside.turn():
			if err := aside.put(ctx); err != nil {
				return err
			}
		case <-walks:
			if time.Now().Before(again) {
				continue
			}
			var err error
			hand, err = j.walk(ctx, sub, hand)
			switch {
			case err == nil:
				pause.Reset()
			case errors.Is(err, broker.ErrOver) || ctx.Err() != nil:
				return err
			default: // the store or the broker takes nothing now: keep everything in hand
				j.o.Log.WithError(err).WithField("duty", "patrol").Warn("a duty failed, trying again")
				again = time.Now().Add(pause.Next())
			}
		}
	}
}

// readManifests tells manifests from what has no place here.
func readManifests(batch []broker.Delivery, aside *asides) (manifests []inHand) {
	for _, delivery := range batch {
		message, err := message.Decode(delivery.Body)
		switch {
		case err != nil:
			aside.add(delivery, err.Error())
		case message.Manifest == nil:
			aside.add(delivery, "only manifests have a place in a holding queue")
		default:
			manifests = append(manifests, inHand{delivery.Tag, *message.Manifest, time.Now()})
		}
	}
	return manifests
}

// walk looks at everything in hand once and returns what stays there, also after
// an error, unless that is ErrOver.
func (j *Janitor) walk(ctx context.Context, sub broker.Subscription, hand []inHand) ([]inHand, error) {
	if len(hand) == 0 {
		return hand, nil
	}
	runs, err := j.runStates(ctx, hand)
	if err != nil {
		return hand, err
	}
	stay, ask := hand[:0:0], []inHand(nil)
	for _, h := range hand {
		run, known := runs[h.manifest.Run]
		switch {
		case h.manifest.Page > 0 && h.manifest.Page <= run.Settled:
			// Every result of the page is committed: nothing to ask.
			if err := sub.Ack(h.tag, broker.One); err != nil {
				return hand, err
			}
		case !known, run.State != store.RunLive, time.Since(h.since) >= j.lookAfter(h.manifest.Rounds):
			ask = append(ask, h)
		default:
			stay = append(stay, h)
		}
	}
	for len(ask) > 0 {
		n := min(patrolBatch, len(ask))
		if err := j.settleManifests(ctx, sub, ask[:n]); err != nil {
			return append(stay, ask...), err
		}
		ask = ask[n:]
	}
	return stay, nil
}

// lookAfter is the age at which the store is asked about an open manifest: it doubles
// with each round, up to a few minutes.
func (j *Janitor) lookAfter(rounds int) time.Duration {
	return min(j.o.PatrolAfter<<min(rounds, maxRounds), max(j.o.PatrolAfter, longestLook))
}

func (j *Janitor) runStates(ctx context.Context, hand []inHand) (map[holdfast.RunID]store.RunStatus, error) {
	seen := make(map[holdfast.RunID]bool)
	var ids []holdfast.RunID
	for _, h := range hand {
		if !seen[h.manifest.Run] {
			seen[h.manifest.Run] = true
			ids = append(ids, h.manifest.Run)
		}
	}
	return j.o.Store.RunStates(ctx, ids)
}

// settleManifests asks the store about every ticket, returns the work of gone runs,
// writes anew what is still open, and acks the old manifests.
func (j *Janitor) settleManifests(ctx context.Context, sub broker.Subscription, manifests []inHand) error {
	var tickets []message.Ticket
	for _, h := range manifests {
		tickets = append(tickets, h.manifest.Tickets...)
	}
	open, err := j.explain(ctx, tickets)
	if err != nil {
		return err
	}
	var letters []broker.Message
	for _, h := range manifests {
		letters = append(letters, j.rearm(h.manifest, open)...)
	}
	if err := j.publishAll(ctx, letters); err != nil {
		return err
	}
	j.see(holdfast.ObservedRearmed, len(letters))
	for _, h := range manifests {
		if err := sub.Ack(h.tag, broker.One); err != nil {
			return err
		}
	}
	return nil
}

// rearm writes a manifest anew with its open tickets only: none if none is. A
// page keeps its number, so that its run's cursor can still settle it.
func (j *Janitor) rearm(m message.Manifest, open map[holdfast.TaskID]holder) []broker.Message {
	byRun := make(map[holdfast.RunID][]message.Ticket)
	for _, ticket := range m.Tickets {
		if held, isOpen := open[ticket.Task]; isOpen {
			byRun[held.run] = append(byRun[held.run], message.Ticket{Task: ticket.Task, Attempt: held.attempt})
		}
	}
	var letters []broker.Message
	for run, tickets := range byRun {
		page := int64(0)
		if run == m.Run {
			page = m.Page
		}
		letters = append(letters, j.manifestLetter(message.Manifest{Run: run, Page: page, Tickets: tickets, Rounds: min(m.Rounds, maxRounds) + 1}))
	}
	return letters
}

func (j *Janitor) manifestLetter(m message.Manifest) broker.Message {
	return broker.Message{Queue: j.o.Topology.Hold(m.Run), Body: message.Message{Manifest: &m}.Encode()}
}
