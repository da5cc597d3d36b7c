package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
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

// claimedRow has the columns of {{claimed}} in sql/parts.sql, and after them whether the task is a probe and, if the claim
// is an earlier one, the time of its start and whether it is buffered. All rows of a page are scanned into one
// claimedRow, by position. A look-up of columns by name would take longer than everything else.
type claimedRow struct {
	id                           int64
	kind, queue                  string
	unique, importedKey, key     sql.NullString
	attempt, mostAttempts        int64
	failures, crashes, deferrals int64
	created, next                int64
	lastError, topic, trace      sql.NullString
	tags                         []string
	ordered                      sql.NullInt16
	payload                      []byte // a new slice for every row
	probe                        bool
	started                      sql.NullInt64
	buffered                     bool
}

// fields returns the destinations of a row, in the order of the columns.
func (r *claimedRow) fields() []any {
	return []any{&r.id, &r.kind, &r.queue, &r.unique, &r.attempt, &r.mostAttempts, &r.failures, &r.crashes, &r.deferrals,
		&r.created, &r.next, &r.lastError, &r.importedKey, &r.key, column.JSON{Into: &r.tags},
		&r.ordered, &r.topic, &r.trace, &r.payload, &r.probe, &r.started, &r.buffered}
}

func (r *claimedRow) claim(c *claiming, now int64) store.Claim {
	queue, priority := holdfast.SplitSubqueue(r.queue)
	started, buffered := now, c.into == store.IntoBuffer
	if r.started.Valid {
		started, buffered = r.started.Int64, r.buffered
	}
	return store.Claim{Verdict: store.Claimed, Probe: r.probe, Now: timeOf(now), Task: &holdfast.Task{
		ID: holdfast.TaskID(r.id), Type: r.kind, Queue: queue, Priority: priority, Unique: r.unique.String, Payload: r.payload,
		State: holdfast.Running, Worker: c.Worker, Buffered: buffered, Attempt: int(r.attempt), MaxAttempts: int(r.mostAttempts),
		Failures: int(r.failures), Crashes: int(r.crashes), Deferrals: int(r.deferrals),
		CreatedAt: timeOf(r.created), NextRunAt: timeOf(r.next), StartedAt: timeOf(started), LastError: r.lastError.String,
		Ordered: r.ordered.Valid, Doomed: ordered.Mark(r.ordered.Int16) == ordered.Doomed, Topic: r.topic.String,
		Key: r.key.String, ImportedKey: r.importedKey.String, Tags: r.tags, Trace: r.trace.String,
	}}
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
	name, list := "claim", ""
	attempt := tickets[0].Attempt
	args := []any{tx.now, int64(c.Worker), stringList(c.Types()), limits(c.Wanted), c.into == store.IntoBuffer, live.Gated}
	if slices.ContainsFunc(tickets, func(t message.Ticket) bool { return t.Attempt != attempt }) {
		list = ticketPairs(tickets)
	} else { // the usual case
		ids := make([]holdfast.TaskID, len(tickets))
		for i, ticket := range tickets {
			ids[i] = ticket.Task
		}
		name, list, args = "claim_uniform", numbers(ids), append(args, attempt)
	}
	if err := c.accept(ctx, tx, name, append([]any{list}, args...)...); err != nil {
		return err
	}
	return c.answerUnclaimed(ctx, tx, c.Unanswered(tickets, 0))
}

// accept adds the tasks that a statement returns as claimed.
func (c *claiming) accept(ctx context.Context, tx *transaction, name string, args ...any) error {
	rows, err := tx.query(ctx, name, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	var row claimedRow
	for fields := row.fields()[:len(columns)]; rows.Next(); {
		if err := rows.Scan(fields...); err != nil {
			return err
		}
		c.Accept(row.claim(c, tx.now))
	}
	return rows.Err()
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
	return c.accept(ctx, tx, "claim_held", ticketPairs(held), int64(c.Worker))
}

// Held implements store.Work.
func (s *claimer) Held(ctx context.Context, worker holdfast.WorkerID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	rows, err := list[scan.Task](ctx, s, "find held tasks", "held", int64(worker), int64(after), int64(through))
	if err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}
