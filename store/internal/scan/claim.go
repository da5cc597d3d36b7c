package scan

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// Answers collects the answers to the tickets of one claim.
type Answers struct {
	Worker  holdfast.WorkerID
	Wanted  []store.Wanted
	Taken   int              // number of claimed tasks
	Now     time.Time        // time of the latest answer
	tickets []message.Ticket // the answered tickets
	claims  []store.Claim    // the answers, in the order of tickets
}

// NewAnswers returns an Answers with capacity for the given number of tickets.
func NewAnswers(worker holdfast.WorkerID, wanted []store.Wanted, tickets int) Answers {
	return Answers{Worker: worker, Wanted: wanted, tickets: make([]message.Ticket, 0, tickets), claims: make([]store.Claim, 0, tickets)}
}

// Types returns the wanted types.
func (a *Answers) Types() []string {
	types := make([]string, len(a.Wanted))
	for i, w := range a.Wanted {
		types[i] = w.Type
	}
	return types
}

// Len returns the number of answered tickets.
func (a *Answers) Len() int { return len(a.tickets) }

// Add adds the answer to a ticket.
func (a *Answers) Add(ticket message.Ticket, claim store.Claim) {
	a.tickets, a.claims, a.Now = append(a.tickets, ticket), append(a.claims, claim), claim.Now
}

// Accept adds the answer for a task that the worker owns now.
func (a *Answers) Accept(claim store.Claim) {
	a.Add(message.Ticket{Task: claim.Task.ID, Attempt: claim.Task.Attempt}, claim)
	a.Taken++
}

// InOrder returns the answer to each ticket. If two tickets are equal, the second is Stale. A ticket without an answer
// is Stale, too. Usually the answers already have the order of the tickets. Then InOrder does not copy them, because
// those of a page need about a hundred kilobytes.
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

// Unanswered returns the tickets without an answer. The tickets are all different. Unanswered considers only the
// answers from index first on.
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

// Judge adds answers for the tickets that were not claimed. rows has one row per ticket. owned has the tickets whose
// tasks the worker already owns. retry has the tickets to claim again, because their tasks became ready between two
// statements.
func (a *Answers) Judge(rows []Refused, tickets []message.Ticket, now time.Time) (owned, retry []message.Ticket, err error) {
	if len(rows) != len(tickets) {
		return nil, nil, fmt.Errorf("the database returned %d rows for %d tickets", len(rows), len(tickets))
	}
	for i, row := range rows {
		switch answer, certain := row.verdict(a, tickets[i], now); {
		case row.State == holdfast.Running && row.WorkerID == a.Worker && row.Attempt == tickets[i].Attempt:
			owned = append(owned, tickets[i])
		case certain:
			a.Add(tickets[i], answer)
		default:
			retry = append(retry, tickets[i])
		}
	}
	return owned, retry, nil
}

// Refused is the row of a task that was not claimed.
type Refused struct {
	ID       holdfast.TaskID
	Type     string
	Queue    string
	State    holdfast.State
	Attempt  int
	WorkerID holdfast.WorkerID
	Waits    bool // the task is due later
	Crashes  int
	Gate     store.ID // a closed gate that applies to the task, or 0
}

// verdict returns the answer to one ticket. certain is false if the task could be claimed now.
func (r *Refused) verdict(a *Answers, ticket message.Ticket, now time.Time) (answer store.Claim, certain bool) {
	answer = store.Claim{Verdict: store.Stale, Now: now}
	wanted := slices.IndexFunc(a.Wanted, func(w store.Wanted) bool { return w.Type == r.Type })
	switch {
	case r.ID == 0 || r.Attempt < ticket.Attempt:
		answer.Verdict = store.Ahead
	case r.Attempt > ticket.Attempt:
	case r.State == holdfast.Running && r.WorkerID != a.Worker:
		answer.Verdict, answer.Owner = store.Contended, r.WorkerID
	case r.State == holdfast.Ready && r.Waits: // its ticket is published when it is due
	case r.State == holdfast.Ready && r.Gate != 0:
		answer.Verdict, answer.Gate = store.Blocked, r.Gate
		answer.Task = r.task()
	case r.State == holdfast.Ready && wanted < 0:
		answer.Verdict = store.Unhandled
		answer.Task = r.task()
	case r.State == holdfast.Ready && r.Crashes > a.Wanted[wanted].MostCrashes:
		answer.Verdict = store.LastChance
		answer.Task = r.task()
	case r.State == holdfast.Ready:
		return answer, false
	}
	return answer, true
}

// task returns a task with the fields that the row has.
func (r *Refused) task() *holdfast.Task {
	queue, priority := holdfast.SplitSubqueue(r.Queue)
	return &holdfast.Task{ID: r.ID, Type: r.Type, Queue: queue, Priority: priority}
}

// Distinct returns the tickets without duplicates. The tickets of a message are usually in increasing order; then there
// are no duplicates.
func Distinct(tickets []message.Ticket) []message.Ticket {
	increasing := true
	for i := 1; increasing && i < len(tickets); i++ {
		increasing = tickets[i-1].Task < tickets[i].Task
	}
	if increasing {
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
