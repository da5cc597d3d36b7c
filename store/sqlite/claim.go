package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// claimer is the part of the role store.Work that claims tasks.
type claimer struct{ *database }

// Claim implements store.Work. One statement claims the tasks. If it skips some tasks, a second statement reads them.
func (s *claimer) Claim(ctx context.Context, worker holdfast.WorkerID, wanted []store.Wanted, tickets []message.Ticket, into store.Place) ([]store.Claim, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	c := &claiming{Answers: scan.NewAnswers(worker, wanted, len(tickets)), into: into}
	err := s.write(ctx, "claim tasks", func(ctx context.Context, tx *transaction) error {
		return c.claim(ctx, tx, scan.Distinct(tickets))
	})
	if err != nil {
		return nil, err
	}
	return c.InOrder(tickets), nil
}

type claimedRow struct {
	scan.Task
	Probe bool
}

// claiming is one call of Claim.
type claiming struct {
	scan.Answers
	into store.Place
}

// limits returns the maximum number of crashes of each type, as a JSON object.
func limits(wanted []store.Wanted) string {
	crashes := make(map[string]int, len(wanted))
	for _, w := range wanted {
		crashes[w.Type] = w.MostCrashes
	}
	text, _ := json.Marshal(crashes) // a map from strings to integers always encodes
	return string(text)
}

// claim claims the tasks that can be claimed, and answers the other tickets. It is the only transaction that writes.
func (c *claiming) claim(ctx context.Context, tx *transaction, tickets []message.Ticket) error {
	live, err := one[struct {
		scan.ID
		Gated bool
	}](ctx, tx, "claim_live", int64(c.Worker))
	if err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = fmt.Errorf("worker %s: %w", c.Worker, store.ErrFenced)
		}
		return err
	}
	rows, err := all[claimedRow](ctx, tx, "claim", ticketPairs(tickets), tx.now, int64(c.Worker), stringList(c.Types()), limits(c.Wanted), c.into == store.IntoBuffer, live.Gated)
	if err != nil {
		return err
	}
	c.accept(rows, timeOf(tx.now))
	return c.answerUnclaimed(ctx, tx, c.Unanswered(tickets, 0))
}

// accept adds the tasks of the rows as claimed.
func (c *claiming) accept(rows []claimedRow, now time.Time) {
	for _, row := range rows {
		c.Accept(store.Claim{Verdict: store.Claimed, Task: row.Value(), Probe: row.Probe, Now: now})
	}
}

// answerUnclaimed answers the tickets that were not claimed.
func (c *claiming) answerUnclaimed(ctx context.Context, tx *transaction, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	refused, err := all[scan.Refused](ctx, tx, "claim_refused", ticketPairs(tickets), tx.now)
	if err != nil {
		return err
	}
	held, retry, err := c.Judge(refused, tickets, timeOf(tx.now))
	switch {
	case err != nil:
		return err
	case len(retry) > 0: // no other transaction can change a task now
		return fmt.Errorf("the database did not claim task %s, which can be claimed", retry[0].Task)
	case len(held) == 0:
		return nil
	}
	rows, err := all[claimedRow](ctx, tx, "claim_held", ticketPairs(held), int64(c.Worker))
	c.accept(rows, timeOf(tx.now))
	return err
}

// Held implements store.Work.
func (s *claimer) Held(ctx context.Context, worker holdfast.WorkerID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	rows, err := list[scan.Task](ctx, s, "find held tasks", "held", int64(worker), int64(after), int64(through))
	if err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}
