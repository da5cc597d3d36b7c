package scan

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Answers are the answers to the tickets of one claim.
type Answers struct {
	Run     holdfast.RunID
	Wanted  []store.Wanted
	Taken   int              // tickets whose tasks the run got
	Now     time.Time        // of the newest answer
	tickets []message.Ticket // that are answered,
	claims  []store.Claim    // and how
}

// NewAnswers returns room for the answers to so many tickets.
func NewAnswers(run holdfast.RunID, wanted []store.Wanted, tickets int) Answers {
	return Answers{Run: run, Wanted: wanted, tickets: make([]message.Ticket, 0, tickets), claims: make([]store.Claim, 0, tickets)}
}

// Types returns the wanted types.
func (a *Answers) Types() []string {
	types := make([]string, len(a.Wanted))
	for i, w := range a.Wanted {
		types[i] = w.Type
	}
	return types
}

// Len returns how many tickets are answered.
func (a *Answers) Len() int { return len(a.tickets) }

// Add answers a ticket.
func (a *Answers) Add(ticket message.Ticket, claim store.Claim) {
	a.tickets, a.claims, a.Now = append(a.tickets, ticket), append(a.claims, claim), claim.Now
}

// Accept answers the ticket of a task that the run has.
func (a *Answers) Accept(claim store.Claim) {
	a.Add(message.Ticket{Task: claim.Task.ID, Attempt: claim.Task.Attempt}, claim)
	a.Taken++
}

// InOrder returns the answer to each ticket. The second of two equal tickets is Stale, and so is a ticket without an
// answer. The answers are mostly in the order of the tickets. Then they are not copied, because those of a page take a
// hundred kilobytes.
func (a *Answers) InOrder(tickets []message.Ticket) []store.Claim {
	if slices.Equal(a.tickets, tickets) {
		return a.claims
	}
	claims := make([]store.Claim, len(tickets))
	at := make(map[message.Ticket]int, len(a.tickets))
	for i, ticket := range a.tickets {
		at[ticket] = i
	}
	for i, ticket := range tickets {
		if found, first := at[ticket]; first {
			claims[i] = a.claims[found]
		} else {
			claims[i] = store.Claim{Verdict: store.Stale, Now: a.Now}
		}
		delete(at, ticket)
	}
	return claims
}

// Unanswered returns the tickets, all different, that have no answer among those from the index first on.
func (a *Answers) Unanswered(tickets []message.Ticket, first int) []message.Ticket {
	answers := a.tickets[first:]
	if len(answers) == len(tickets) {
		return nil
	}
	answered := make(map[message.Ticket]bool, len(answers))
	for _, ticket := range answers {
		answered[ticket] = true
	}
	var open []message.Ticket
	for _, ticket := range tickets {
		if !answered[ticket] {
			open = append(open, ticket)
		}
	}
	return open
}

// Judge answers the tickets that were not claimed, given a row for each of them. held are those that the run holds
// already. again are those that should have been claimed, because their tasks became ready between two statements.
func (a *Answers) Judge(rows []Refused, tickets []message.Ticket, now time.Time) (held, again []message.Ticket, err error) {
	if len(rows) != len(tickets) {
		return nil, nil, fmt.Errorf("the database answered for %d of %d tickets", len(rows), len(tickets))
	}
	for i, row := range rows {
		switch answer, certain := row.verdict(a, tickets[i], now); {
		case row.State == holdfast.Running && row.RunID == a.Run && row.Attempt == tickets[i].Attempt:
			held = append(held, tickets[i])
		case certain:
			a.Add(tickets[i], answer)
		default:
			again = append(again, tickets[i])
		}
	}
	return held, again, nil
}

// Refused says where a task stands that was not claimed.
type Refused struct {
	ID      holdfast.TaskID
	Type    string
	Lane    string
	State   holdfast.State
	Attempt int
	RunID   holdfast.RunID `db:"run_id"`
	Waits   bool           // it is due later
	Crashes int
}

// verdict answers one ticket. It is uncertain if the task is as it must be for a claim.
func (r *Refused) verdict(a *Answers, ticket message.Ticket, now time.Time) (answer store.Claim, certain bool) {
	answer = store.Claim{Verdict: store.Stale, Now: now}
	wanted := slices.IndexFunc(a.Wanted, func(w store.Wanted) bool { return w.Type == r.Type })
	switch {
	case r.ID == 0 || r.Attempt < ticket.Attempt:
		answer.Verdict = store.Ahead
	case r.Attempt > ticket.Attempt:
	case r.State == holdfast.Running && r.RunID != a.Run:
		answer.Verdict, answer.Owner = store.Contended, r.RunID
	case r.State == holdfast.Ready && r.Waits: // and is published again when it is due
	case r.State == holdfast.Ready && wanted < 0:
		answer.Verdict = store.Unhandled
		answer.Task = holdfast.Task{ID: r.ID, Type: r.Type, Lane: r.Lane}
	case r.State == holdfast.Ready && r.Crashes > a.Wanted[wanted].MostCrashes:
		answer.Verdict = store.Suspect
		answer.Task = holdfast.Task{ID: r.ID, Type: r.Type, Lane: r.Lane}
	case r.State == holdfast.Ready:
		return answer, false
	}
	return answer, true
}

// Distinct drops tickets that come twice. The tickets of a message grow, so mostly there is nothing to drop.
func Distinct(tickets []message.Ticket) []message.Ticket {
	grow := true
	for i := 1; grow && i < len(tickets); i++ {
		grow = tickets[i-1].Task < tickets[i].Task
	}
	if grow {
		return tickets
	}
	seen := make(map[message.Ticket]bool, len(tickets))
	list := make([]message.Ticket, 0, len(tickets))
	for _, ticket := range tickets {
		if !seen[ticket] {
			seen[ticket] = true
			list = append(list, ticket)
		}
	}
	return list
}
