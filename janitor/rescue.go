package janitor

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

const rescuePrefetch = 250

// rescue reads what the broker would have dropped, and tickets that consumers could not
// explain, and makes the store's truth of them.
func (j *Janitor) rescue(ctx context.Context, sub broker.Subscription) error {
	aside := asides{j: j, sub: sub}
	for {
		select {
		case <-ctx.Done():
			return nil
		case delivery, open := <-sub.Deliveries():
			if !open {
				return broker.ErrOver
			}
			tickets, answered := readTickets(gather(sub, delivery), &aside)
			for pause := backoff.New(firstPause, longPause); ; { // giving it back would count against its delivery limit
				err := j.rescueAll(ctx, tickets)
				if err == nil {
					break
				}
				j.o.Log.WithError(err).WithField("duty", "rescue").Warn("a duty failed, trying again")
				if pause.Wait(ctx) != nil {
					return nil
				}
			}
			if err := ackAll(sub, answered); err != nil {
				return err
			}
		case <-aside.turn():
			if err := aside.put(ctx); err != nil {
				return err
			}
		}
	}
}

// readTickets returns the tickets of all these messages, and the messages that are answered with them: the others are
// malformed.
func readTickets(batch []broker.Delivery, aside *asides) (tickets []message.Ticket, answered []broker.Delivery) {
	for _, delivery := range batch {
		message, err := message.Decode(delivery.Body)
		switch {
		case err != nil:
			aside.add(delivery, err.Error())
			continue
		case message.Sentinel != nil: // the next one will do
		case message.Manifest != nil:
			tickets = append(tickets, message.Manifest.Tickets...)
		default:
			tickets = append(tickets, message.Tickets...)
		}
		answered = append(answered, delivery)
	}
	return tickets, answered
}

// rescueAll explains tickets.
func (j *Janitor) rescueAll(ctx context.Context, tickets []message.Ticket) error {
	for part := range slices.Chunk(tickets, message.MaxTickets) {
		if err := j.rescueTickets(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (j *Janitor) rescueTickets(ctx context.Context, tickets []message.Ticket) error {
	open, err := j.explain(ctx, tickets)
	if err != nil {
		return err
	}
	byRun := make(map[holdfast.RunID][]message.Ticket)
	for task, held := range open {
		byRun[held.run] = append(byRun[held.run], message.Ticket{Task: task, Attempt: held.attempt})
	}
	var letters []broker.Message
	for run, tickets := range byRun {
		letters = append(letters, j.manifestLetter(message.Manifest{Run: run, Tickets: tickets}))
	}
	return j.publishAll(ctx, letters)
}

// holder is who runs a task, at which attempt.
type holder struct {
	run     holdfast.RunID
	attempt int
}

// explain asks the store where the tickets' tasks stand and gives every task that is not
// final a token again, except those it returns: they run under a live run, and the
// caller must keep them in a manifest.
//
// A ticket of an older attempt, or of a final task, needs nothing. A ticket newer
// than its row says that the database lost commits: then the row, not the ticket, is
// the truth. A ticket without a row is put into the quarantine.
func (j *Janitor) explain(ctx context.Context, tickets []message.Ticket) (map[holdfast.TaskID]holder, error) {
	positions, err := j.o.Store.Positions(ctx, tickets)
	if err != nil {
		return nil, err
	}
	open := make(map[holdfast.TaskID]holder)
	var again, missing []message.Ticket
	var gone []holdfast.TaskID
	for i, p := range positions {
		ticket := tickets[i]
		switch {
		case !p.Found:
			missing = append(missing, ticket)
		case p.State.Final(), p.Attempt > ticket.Attempt:
		case p.State == holdfast.Ready:
			if p.Ticketed {
				again = append(again, message.Ticket{Task: ticket.Task, Attempt: p.Attempt})
			}
		case p.RunState == store.RunLive:
			open[ticket.Task] = holder{p.Run, p.Attempt}
		default:
			gone = append(gone, ticket.Task)
		}
	}
	if len(again) > 0 {
		n, err := j.o.Store.Unticket(ctx, again)
		if err != nil {
			return nil, err
		}
		j.see(holdfast.ObservedRepaired, n)
		j.Nudge(0)
	}
	if err := j.returnGone(ctx, gone); err != nil {
		return nil, err
	}
	if err := j.quarantine(ctx, j.missing(missing)); err != nil {
		return nil, err
	}
	return open, nil
}

// missing makes letters for the quarantine of tickets without a row: few, for a message that names a thousand tasks
// must not become a thousand.
func (j *Janitor) missing(tickets []message.Ticket) (letters []broker.Message) {
	for part := range slices.Chunk(tickets, message.MaxTickets) {
		reason := fmt.Sprintf("the store has no task %s", part[0].Task)
		if more := len(part) - 1; more > 0 {
			reason += fmt.Sprintf(" nor %d others", more)
		}
		letters = append(letters, j.letter(message.Message{Tickets: part}.Encode(), reason))
	}
	return letters
}

// returnGone takes back tasks that run under a run that is over.
func (j *Janitor) returnGone(ctx context.Context, ids []holdfast.TaskID) error {
	if len(ids) == 0 {
		return nil
	}
	tasks, err := j.o.Store.TasksByID(ctx, ids)
	if err != nil {
		return err
	}
	runs := make(map[holdfast.RunID]bool)
	var owners []holdfast.RunID
	for _, t := range tasks {
		if t.Run != 0 && !runs[t.Run] {
			runs[t.Run] = true
			owners = append(owners, t.Run)
		}
	}
	states, err := j.o.Store.RunStates(ctx, owners)
	if err != nil {
		return err
	}
	gone := tasks[:0]
	for _, t := range tasks { // a live run may have claimed one meanwhile
		if t.State == holdfast.Running && states[t.Run].State != store.RunLive {
			gone = append(gone, t)
		}
	}
	return j.takeBack(ctx, gone)
}
