package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// claimer is the part of the role store.Work that takes tasks.
type claimer struct{ *database }

// Claim implements store.Work. It is one statement if every ticket is good; one more looks
// where the other tasks stand.
func (s *claimer) Claim(ctx context.Context, run holdfast.RunID, wanted []store.Wanted, tickets []message.Ticket, into store.Place) ([]store.Claim, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	c := &claiming{run: run, into: into, types: []string{}, crashes: make(map[string]int), answers: make(map[message.Ticket]store.Claim, len(tickets))}
	for _, w := range wanted {
		c.types = append(c.types, w.Type)
		c.crashes[w.Type] = w.MostCrashes
	}
	err := s.write(ctx, "claim tasks", func(ctx context.Context, tx *transaction) error {
		c.now = moment(tx.now)
		return c.claim(ctx, tx, distinct(tickets))
	})
	if err != nil {
		return nil, err
	}
	return c.inOrder(tickets), nil
}

// claiming is one call of Claim.
type claiming struct {
	run     holdfast.RunID
	into    store.Place
	types   []string
	crashes map[string]int // by type
	answers map[message.Ticket]store.Claim
	now     time.Time
}

// inOrder gives every ticket its answer; of two that are the same the second one is Stale.
func (c *claiming) inOrder(tickets []message.Ticket) []store.Claim {
	claims := make([]store.Claim, len(tickets))
	for i, ticket := range tickets {
		answer, first := c.answers[ticket]
		if !first {
			answer = store.Claim{Verdict: store.Stale, Now: c.now}
		}
		claims[i] = answer
		delete(c.answers, ticket)
	}
	return claims
}

// limits writes numbers by name.
func limits(numbers map[string]int) string {
	text, _ := json.Marshal(numbers) // which cannot fail
	return string(text)
}

func distinct(tickets []message.Ticket) []message.Ticket {
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

// claim takes what can be taken and judges the rest. Nobody else writes meanwhile.
func (c *claiming) claim(ctx context.Context, tx *transaction, tickets []message.Ticket) error {
	if _, err := one[scan.ID](ctx, tx, "claim_live", int64(c.run)); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = fmt.Errorf("run %s: %w", c.run, store.ErrFenced)
		}
		return err
	}
	rows, err := all[scan.Whole](ctx, tx, "claim", pairs(tickets), words(c.types), int64(c.run), tx.now, limits(c.crashes), c.into == store.IntoBuffer)
	if err != nil {
		return err
	}
	c.accept(rows)
	if len(rows) == len(tickets) {
		return nil
	}
	open := slices.DeleteFunc(tickets, func(ticket message.Ticket) bool {
		_, answered := c.answers[ticket]
		return answered
	})
	return c.judge(ctx, tx, open)
}

func (c *claiming) accept(rows []scan.Whole) {
	for _, row := range rows {
		c.answers[message.Ticket{Task: row.ID, Attempt: row.Attempt}] = store.Claim{Verdict: store.Claimed, Task: row.Value(), Now: c.now}
	}
}

// refusedRow says where a task stands that was not claimed.
type refusedRow struct {
	ID      holdfast.TaskID
	Type    string
	Lane    string
	State   holdfast.State
	Attempt int
	RunID   holdfast.RunID `db:"run_id"`
	Waits   bool           // it is due later
}

// judge answers the tickets that were not claimed.
func (c *claiming) judge(ctx context.Context, tx *transaction, tickets []message.Ticket) error {
	rows, err := all[refusedRow](ctx, tx, "claim_refused", pairs(tickets), tx.now)
	if err != nil {
		return err
	}
	if len(rows) != len(tickets) {
		return fmt.Errorf("the database answered for %d of %d tickets", len(rows), len(tickets))
	}
	var held []message.Ticket
	for i, row := range rows {
		if row.State == holdfast.Running && row.RunID == c.run && row.Attempt == tickets[i].Attempt {
			held = append(held, tickets[i])
			continue
		}
		c.answers[tickets[i]] = row.verdict(tickets[i], c)
	}
	if len(held) == 0 {
		return nil
	}
	again, err := all[scan.Whole](ctx, tx, "claim_held", pairs(held), int64(c.run))
	c.accept(again)
	return err
}

func (r refusedRow) verdict(ticket message.Ticket, c *claiming) store.Claim {
	answer := store.Claim{Verdict: store.Stale, Now: c.now}
	switch {
	case r.ID == 0 || r.Attempt < ticket.Attempt:
		answer.Verdict = store.Ahead
	case r.Attempt > ticket.Attempt:
	case r.State == holdfast.Running && r.RunID != c.run:
		answer.Verdict, answer.Owner = store.Contended, r.RunID
	case r.State == holdfast.Ready && r.Waits: // and is published again when it is due
	case r.State == holdfast.Ready && slices.Contains(c.types, r.Type): // so it has had too many crashes
		answer.Verdict = store.Suspect
		answer.Task = holdfast.Task{ID: r.ID, Type: r.Type, Lane: r.Lane}
	case r.State == holdfast.Ready: // so its type was not asked for
		answer.Verdict = store.Unhandled
		answer.Task = holdfast.Task{ID: r.ID, Type: r.Type, Lane: r.Lane}
	}
	return answer
}

// Held implements store.Work.
func (s *claimer) Held(ctx context.Context, run holdfast.RunID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	rows, err := list[scan.Task](ctx, s, "find held tasks", "held", int64(run), int64(after), int64(through))
	if err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}
