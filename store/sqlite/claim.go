package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
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
	c := &claiming{Answers: scan.NewAnswers(run, wanted, len(tickets)), into: into}
	err := s.write(ctx, "claim tasks", func(ctx context.Context, tx *transaction) error {
		return c.claim(ctx, tx, scan.Distinct(tickets))
	})
	if err != nil {
		return nil, err
	}
	return c.InOrder(tickets), nil
}

// claiming is one call of Claim.
type claiming struct {
	scan.Answers
	into store.Place
}

// limits writes how many crashes a task of each type may have had, by type.
func limits(wanted []store.Wanted) string {
	crashes := make(map[string]int, len(wanted))
	for _, w := range wanted {
		crashes[w.Type] = w.MostCrashes
	}
	text, _ := json.Marshal(crashes) // which cannot fail
	return string(text)
}

// claim takes what can be taken and judges the rest. Nobody else writes meanwhile.
func (c *claiming) claim(ctx context.Context, tx *transaction, tickets []message.Ticket) error {
	if _, err := one[scan.ID](ctx, tx, "claim_live", int64(c.Run)); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = fmt.Errorf("run %s: %w", c.Run, store.ErrFenced)
		}
		return err
	}
	rows, err := all[scan.Whole](ctx, tx, "claim", pairs(tickets), words(c.Types()), int64(c.Run), tx.now, limits(c.Wanted), c.into == store.IntoBuffer)
	if err != nil {
		return err
	}
	c.accept(rows, moment(tx.now))
	return c.judge(ctx, tx, c.Unanswered(tickets, 0))
}

func (c *claiming) accept(rows []scan.Whole, now time.Time) {
	for _, row := range rows {
		c.Accept(store.Claim{Verdict: store.Claimed, Task: row.Value(), Now: now})
	}
}

// judge answers the tickets that were not claimed.
func (c *claiming) judge(ctx context.Context, tx *transaction, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	rows, err := all[scan.Refused](ctx, tx, "claim_refused", pairs(tickets), tx.now)
	if err != nil {
		return err
	}
	held, again, err := c.Judge(rows, tickets, moment(tx.now))
	switch {
	case err != nil:
		return err
	case len(again) > 0: // no other transaction changes a task meanwhile
		return fmt.Errorf("the database did not give task %s, which can be claimed", again[0].Task)
	case len(held) == 0:
		return nil
	}
	taken, err := all[scan.Whole](ctx, tx, "claim_held", pairs(held), int64(c.Run))
	c.accept(taken, moment(tx.now))
	return err
}

// Held implements store.Work.
func (s *claimer) Held(ctx context.Context, run holdfast.RunID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	rows, err := list[scan.Task](ctx, s, "find held tasks", "held", int64(run), int64(after), int64(through))
	if err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}
