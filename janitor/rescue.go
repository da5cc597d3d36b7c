package janitor

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

const rescuePrefetch = 250

// rescue reads the rescue queue. It contains messages that the broker would have dropped, and tickets of tasks that
// consumers did not find in the store. rescue repairs each unfinished task of these messages according to the store,
// and then acknowledges the messages. It returns nil if ctx is done, and otherwise the error that ended the
// subscription.
func (j *Janitor) rescue(ctx context.Context, sub broker.Subscription) error {
	quarantine := quarantiner{j: j, sub: sub}
	for {
		select {
		case <-ctx.Done():
			return nil
		case delivery, open := <-sub.Deliveries():
			if !open {
				return broker.ErrSubscriptionEnded
			}
			tickets, handled := readTickets(gather(sub, delivery), &quarantine)
			for pause := backoff.New(firstPause, longPause); ; { // a requeue would count against the message's delivery limit
				err := j.rescueAll(ctx, tickets)
				if err == nil {
					j.succeeded(ctx, "rescue")
					break
				}
				wait := pause.Next()
				j.failed(ctx, "rescue", err, wait)
				if backoff.Sleep(ctx, wait) != nil {
					return nil
				}
			}
			if err := ackAll(sub, handled); err != nil {
				return err
			}
		case <-quarantine.tick():
			if err := quarantine.flush(ctx); err != nil {
				return err
			}
		}
	}
}

// readTickets returns the well-formed deliveries of a batch and their tickets. It passes malformed messages to
// quarantine.
func readTickets(batch []broker.Delivery, quarantine *quarantiner) (tickets []message.Ticket, handled []broker.Delivery) {
	for _, delivery := range batch {
		message, err := message.Decode(delivery.Body)
		switch {
		case err != nil:
			quarantine.add(delivery, err)
			continue
		case message.Sentinel != nil: // dropped; the next sentinel of its queue replaces it
		case message.Manifest != nil:
			tickets = append(tickets, message.Manifest.Tickets...)
		default:
			tickets = append(tickets, message.Tickets...)
		}
		handled = append(handled, delivery)
	}
	return tickets, handled
}

// rescueAll calls rescueTickets for any number of tickets, in parts that fit into one message.
func (j *Janitor) rescueAll(ctx context.Context, tickets []message.Ticket) error {
	for part := range slices.Chunk(tickets, message.MaxTickets) {
		if err := j.rescueTickets(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// rescueTickets repairs the tasks of the tickets, and publishes manifests of the tasks that run under live workers.
func (j *Janitor) rescueTickets(ctx context.Context, tickets []message.Ticket) error {
	open, _, err := j.repairTasks(ctx, tickets)
	if err != nil {
		return err
	}
	byWorker := make(map[holdfast.WorkerID][]message.Ticket)
	for task, owner := range open {
		byWorker[owner.worker] = append(byWorker[owner.worker], message.Ticket{Task: task, Attempt: owner.attempt})
	}
	var messages []broker.Message
	for worker, tickets := range byWorker {
		messages = append(messages, j.manifestMessage(message.Manifest{Worker: worker, Tickets: tickets}))
	}
	return j.publishAll(ctx, messages)
}

// owner is the live worker that runs a task, with the attempt.
type owner struct {
	worker  holdfast.WorkerID
	attempt int
}

// repairTasks queries the store for the tasks of the tickets. It makes ready tasks due again and takes the tasks of
// ended workers back. It returns the number of tasks that it changed, and the tasks that run under live workers. The
// caller must publish a manifest for these.
//
// A ticket is not needed if its attempt is older than the row's, or if its task is in a final state. If a ticket is
// newer than its row, the database has lost commits, and the row decides. A ticket without a row goes to the
// quarantine.
func (j *Janitor) repairTasks(ctx context.Context, tickets []message.Ticket) (open map[holdfast.TaskID]owner, repaired int, err error) {
	positions, err := j.o.Store.Positions(ctx, tickets)
	if err != nil {
		return nil, 0, err
	}
	open = make(map[holdfast.TaskID]owner)
	var ready, unknown []message.Ticket
	var abandoned []holdfast.TaskID
	for i, p := range positions {
		ticket := tickets[i]
		switch {
		case !p.Found:
			unknown = append(unknown, ticket)
		case p.State.Final(), p.Attempt > ticket.Attempt:
		case p.State == holdfast.Ready: // a dispatcher may be about to commit that the task has this ticket
			ready = append(ready, message.Ticket{Task: ticket.Task, Attempt: p.Attempt})
		case p.WorkerState == store.WorkerLive:
			open[ticket.Task] = owner{p.Worker, p.Attempt}
		default:
			abandoned = append(abandoned, ticket.Task)
		}
	}
	if len(ready) > 0 {
		if repaired, err = j.o.Store.Unticket(ctx, ready); err != nil {
			return nil, 0, err
		}
		j.observe(holdfast.ObservedRepaired, repaired)
		j.Nudge(0)
	}
	taken, err := j.takeBackAbandoned(ctx, abandoned)
	if err != nil {
		return nil, 0, err
	}
	if err := j.quarantine(ctx, j.unknownTasks(unknown)); err != nil {
		return nil, 0, err
	}
	return open, repaired + taken, nil
}

// unknownTasks returns messages for the quarantine, for tickets without a row. Each message has many tickets, so that a
// message with a thousand unknown tasks does not become a thousand messages.
func (j *Janitor) unknownTasks(tickets []message.Ticket) (messages []broker.Message) {
	for part := range slices.Chunk(tickets, message.MaxTickets) {
		reason := fmt.Sprintf("unknown task %s", part[0].Task)
		if more := len(part) - 1; more > 0 {
			reason += fmt.Sprintf(" and %d more", more)
		}
		messages = append(messages, j.o.Topology.Malformed(message.Message{Tickets: part}.Encode(), reason, j.o.Name))
	}
	return messages
}

// takeBackAbandoned takes back the tasks that still run under an ended worker, and returns their number.
func (j *Janitor) takeBackAbandoned(ctx context.Context, ids []holdfast.TaskID) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	tasks, err := j.o.Store.TasksByID(ctx, ids)
	if err != nil {
		return 0, err
	}
	workers := make(map[holdfast.WorkerID]bool)
	var owners []holdfast.WorkerID
	for _, t := range tasks {
		if t.Worker != 0 && !workers[t.Worker] {
			workers[t.Worker] = true
			owners = append(owners, t.Worker)
		}
	}
	states, err := j.o.Store.WorkerStates(ctx, owners)
	if err != nil {
		return 0, err
	}
	abandoned := tasks[:0]
	for _, t := range tasks { // a live worker may have claimed some of them in between
		if t.State == holdfast.Running && states[t.Worker].State != store.WorkerLive {
			abandoned = append(abandoned, t)
		}
	}
	return j.takeBack(ctx, abandoned)
}
