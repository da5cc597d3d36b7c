package janitor

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

const (
	// patrolPrefetch is the maximum number of unacknowledged messages of the patrol of one holding queue. The manifest
	// of a finished page is acknowledged soon after the next renewal of its worker. So the patrol reaches this limit
	// only with very many long pages, or with malformed messages.
	patrolPrefetch = 5000
	patrolEvery    = 200 * time.Millisecond
	patrolBatch    = 200 // manifests in one query of the store

	// The patrol checks the manifests of long tasks at growing intervals. They grow up to maxCheckAfter, which is far
	// below any consumer timeout, or up to PatrolAfter if that is longer.
	maxRounds     = 10
	maxCheckAfter = 2 * time.Minute
)

// receivedManifest is a manifest that the patrol has received but not acknowledged.
type receivedManifest struct {
	tag        uint64
	manifest   message.Manifest
	receivedAt time.Time
}

// patrol receives manifests, and checks them in a pass every patrolEvery. It acknowledges a manifest when its page is
// finished, when its worker has ended, or when it replaces the manifest because of its age. patrol returns nil if ctx
// is done, and otherwise the error that ended the subscription.
func (j *Janitor) patrol(ctx context.Context, sub broker.Subscription) error {
	var received []receivedManifest
	var retryAt time.Time // after a failure, the time of the next pass
	pause := backoff.New(firstPause, longPause)
	quarantine := quarantiner{j: j, sub: sub}
	tick := time.NewTicker(patrolEvery)
	defer tick.Stop()
	for {
		ticks := tick.C
		if len(received) == 0 { // without a receiver, the ticker wakes no goroutine
			ticks = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case delivery, open := <-sub.Deliveries():
			if !open {
				return broker.ErrSubscriptionEnded
			}
			received = append(received, readManifests(gather(sub, delivery), &quarantine)...)
		case <-quarantine.tick():
			if err := quarantine.flush(ctx); err != nil {
				return err
			}
		case <-ticks:
			if time.Now().Before(retryAt) {
				continue
			}
			var err error
			received, err = j.pass(ctx, sub, received)
			switch {
			case err == nil:
				pause.Reset()
				j.succeeded(ctx, "patrol")
			case errors.Is(err, broker.ErrSubscriptionEnded) || ctx.Err() != nil:
				return err
			default: // the store or the broker is unavailable: keep the manifests
				wait := pause.Next()
				j.failed(ctx, "patrol", err, wait)
				retryAt = time.Now().Add(wait)
			}
		}
	}
}

// readManifests returns the manifests of a batch, and passes all other messages to quarantine.
func readManifests(batch []broker.Delivery, quarantine *quarantiner) (manifests []receivedManifest) {
	for _, delivery := range batch {
		message, err := message.Decode(delivery.Body)
		switch {
		case err != nil:
			quarantine.add(delivery, err)
		case message.Manifest == nil:
			quarantine.add(delivery, errors.New("only manifests belong in a holding queue"))
		default:
			manifests = append(manifests, receivedManifest{delivery.Tag, *message.Manifest, time.Now()})
		}
	}
	return manifests
}

// pass checks each received manifest once, and returns the manifests that are still unacknowledged. It returns these
// manifests also with an error, unless the error is ErrSubscriptionEnded.
func (j *Janitor) pass(ctx context.Context, sub broker.Subscription, received []receivedManifest) ([]receivedManifest, error) {
	if len(received) == 0 {
		return received, nil
	}
	workers, err := j.workerStates(ctx, received)
	if err != nil {
		return received, err
	}
	kept, toCheck := received[:0:0], []receivedManifest(nil)
	for _, r := range received {
		worker, known := workers[r.manifest.Worker]
		switch {
		case r.manifest.Page > 0 && r.manifest.Page <= worker.Settled: // all results of the page are committed
			if err := sub.Ack(r.tag, broker.One); err != nil {
				return received, err
			}
		case !known, worker.State != store.WorkerLive, time.Since(r.receivedAt) >= j.checkAfter(r.manifest.Rounds):
			toCheck = append(toCheck, r)
		default:
			kept = append(kept, r)
		}
	}
	for len(toCheck) > 0 {
		n := min(patrolBatch, len(toCheck))
		if err := j.settleManifests(ctx, sub, toCheck[:n]); err != nil {
			return append(kept, toCheck...), err
		}
		toCheck = toCheck[n:]
	}
	return kept, nil
}

// checkAfter returns the age at which the patrol checks a manifest. The age doubles with each round, up to a limit.
func (j *Janitor) checkAfter(rounds int) time.Duration {
	return min(j.o.PatrolAfter<<min(rounds, maxRounds), max(j.o.PatrolAfter, maxCheckAfter))
}

func (j *Janitor) workerStates(ctx context.Context, received []receivedManifest) (map[holdfast.WorkerID]store.WorkerStatus, error) {
	seen := make(map[holdfast.WorkerID]bool)
	var ids []holdfast.WorkerID
	for _, r := range received {
		if !seen[r.manifest.Worker] {
			seen[r.manifest.Worker] = true
			ids = append(ids, r.manifest.Worker)
		}
	}
	return j.o.Store.WorkerStates(ctx, ids)
}

// settleManifests repairs the tasks of the manifests, publishes new manifests for the tasks that still run, and
// acknowledges the old manifests.
func (j *Janitor) settleManifests(ctx context.Context, sub broker.Subscription, manifests []receivedManifest) error {
	var tickets []message.Ticket
	for _, r := range manifests {
		tickets = append(tickets, r.manifest.Tickets...)
	}
	open, _, err := j.repairTasks(ctx, tickets)
	if err != nil {
		return err
	}
	var messages []broker.Message
	for _, r := range manifests {
		messages = append(messages, j.rearm(r.manifest, open)...)
	}
	if err := j.publishAll(ctx, messages); err != nil {
		return err
	}
	j.observe(holdfast.ObservedRearmed, len(messages))
	for _, r := range manifests {
		if err := sub.Ack(r.tag, broker.One); err != nil {
			return err
		}
	}
	return nil
}

// rearm returns the manifests that replace m: one for each worker that runs open tasks of m, or none. If the worker is
// the same, the new manifest keeps the page number, so that the worker's cursor can still settle the page.
func (j *Janitor) rearm(m message.Manifest, open map[holdfast.TaskID]owner) []broker.Message {
	byWorker := make(map[holdfast.WorkerID][]message.Ticket)
	for _, ticket := range m.Tickets {
		if owner, isOpen := open[ticket.Task]; isOpen {
			byWorker[owner.worker] = append(byWorker[owner.worker], message.Ticket{Task: ticket.Task, Attempt: owner.attempt})
		}
	}
	var messages []broker.Message
	for worker, tickets := range byWorker {
		page := int64(0)
		if worker == m.Worker {
			page = m.Page
		}
		messages = append(messages, j.manifestMessage(message.Manifest{Worker: worker, Page: page, Tickets: tickets, Rounds: min(m.Rounds, maxRounds) + 1}))
	}
	return messages
}

func (j *Janitor) manifestMessage(m message.Manifest) broker.Message {
	return broker.Message{Queue: j.o.Topology.HoldingQueue(m.Worker), Body: message.Message{Manifest: &m}.Encode()}
}
