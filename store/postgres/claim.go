package postgres

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

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
	var c *claiming
	err := s.do(ctx, "claim tasks", func() error {
		c = &claiming{Answers: scan.NewAnswers(run, wanted, len(tickets)), into: into, crashes: make(pq.Int64Array, len(wanted))}
		c.types = c.Types()
		for i, w := range wanted {
			c.crashes[i] = int64(w.MostCrashes)
		}
		return s.claim(ctx, c, tickets)
	})
	if err != nil {
		return nil, err
	}
	return c.InOrder(tickets), nil
}

// claiming is one call of Claim.
type claiming struct {
	scan.Answers
	into    store.Place
	types   pq.StringArray
	crashes pq.Int64Array // for each type
}

func (s *claimer) claim(ctx context.Context, c *claiming, tickets []message.Ticket) error {
	open := scan.Distinct(tickets)
	for attempt := 0; len(open) > 0; attempt++ {
		if attempt == tries {
			return fmt.Errorf("%w: task %s changes too often to be claimed", holdfast.ErrUnavailable, open[0].Task)
		}
		before := c.Len()
		err := s.take(ctx, c, open)
		if err == nil {
			open, err = s.judge(ctx, c, c.Unanswered(open, before))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take claims what can be claimed.
func (s *claimer) take(ctx context.Context, c *claiming, tickets []message.Ticket) error {
	attempt := tickets[0].Attempt
	if !slices.ContainsFunc(tickets, func(t message.Ticket) bool { return t.Attempt != attempt }) { // nearly always
		set := nearby(len(tickets), func(i int) int64 { return int64(tickets[i].Task) })
		firsts, lasts, starts := set.columns()
		return s.accept(ctx, c, "claim_near", int64(c.Run), set.bits, attempt, c.types, c.crashes, c.buffered(), firsts, lasts, starts)
	}
	tasks, attempts := asked(tickets)
	return s.accept(ctx, c, "claim", int64(c.Run), tasks, attempts, c.types, c.crashes, c.buffered())
}

// buffered is what the claim writes: null, which takes no space, for tasks that start at once.
func (c *claiming) buffered() sql.NullBool {
	return sql.NullBool{Bool: true, Valid: c.into == store.IntoBuffer}
}

// asked lists tickets as the two columns that unnest joins again.
func asked(tickets []message.Ticket) (tasks, attempts []byte) {
	return bigints(len(tickets), func(i int) int64 { return int64(tickets[i].Task) }),
		integers(len(tickets), func(i int) int { return tickets[i].Attempt })
}

// accept notes the tasks that a statement returns as the run's own.
func (s *claimer) accept(ctx context.Context, c *claiming, name string, args ...any) error {
	rows, err := s.db.QueryContext(ctx, s.text(name), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var row claimedRow
	for fields := row.fields(); rows.Next(); {
		if err := rows.Scan(fields...); err != nil {
			return err
		}
		c.Accept(row.claim(c))
	}
	return rows.Err()
}

// claimedRow is what sql/claimed.sql selects, and the present. One takes the rows of a whole page in turn, and names no columns:
// both would take longer than the rest.
type claimedRow struct {
	id, attempt, mostAttempts    int64
	kind, lane                   string
	unique, lastError, key       sql.NullString
	failures, crashes, deferrals sql.NullInt64
	created, next, started       sql.RawBytes // see timeOf
	now                          sql.NullTime
	payload                      []byte // of its own in every row
}

// fields are where a row is scanned to, in the order of the columns.
func (r *claimedRow) fields() []any {
	return []any{&r.id, &r.kind, &r.lane, &r.unique, &r.attempt, &r.mostAttempts, &r.failures, &r.crashes, &r.deferrals,
		&r.created, &r.next, &r.started, &r.lastError, &r.key, &r.payload, &r.now}
}

// claim is the task in the hands of the run.
func (r *claimedRow) claim(c *claiming) store.Claim {
	t := holdfast.Task{
		ID: holdfast.TaskID(r.id), Type: r.kind, Lane: r.lane, Unique: r.unique.String, Payload: r.payload,
		State: holdfast.Running, Run: c.Run, Buffered: c.into == store.IntoBuffer, Attempt: int(r.attempt), MaxAttempts: int(r.mostAttempts),
		Failures: int(r.failures.Int64), Crashes: int(r.crashes.Int64), Deferrals: int(r.deferrals.Int64),
		CreatedAt: timeOf(r.created), StartedAt: timeOf(r.started), LastError: r.lastError.String,
		Key: r.key.String,
	}
	t.NextRunAt = t.CreatedAt
	if r.next != nil {
		t.NextRunAt = timeOf(r.next)
	}
	claim := store.Claim{Verdict: store.Claimed, Task: t, Now: t.StartedAt}
	if r.now.Valid {
		claim.Now = r.now.Time.UTC()
	}
	return claim
}

// epoch is where PostgreSQL begins to count microseconds.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// timeOf reads what timestamptz_send wrote.
func timeOf(sent []byte) time.Time {
	return time.UnixMicro(epoch + int64(binary.BigEndian.Uint64(sent))).UTC()
}

// refusedRow says where a task stands that was not claimed.
type refusedRow struct {
	scan.Refused
	Live bool // the claiming run is
	Now  time.Time
}

// judge answers the tickets that were not claimed and returns those that should have been: their
// tasks became ready between the two statements.
func (s *claimer) judge(ctx context.Context, c *claiming, tickets []message.Ticket) (again []message.Ticket, err error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	tasks, attempts := asked(tickets)
	rows := make([]refusedRow, 0, len(tickets))
	if err := s.all(ctx, s.db, &rows, "claim_refused", int64(c.Run), tasks, attempts); err != nil {
		return nil, err
	}
	refused := make([]scan.Refused, len(rows))
	live, now := true, time.Time{}
	for i, row := range rows {
		refused[i], live, now = row.Refused, row.Live, row.Now.UTC()
	}
	if !live && c.Taken == 0 {
		return nil, fmt.Errorf("run %s: %w", c.Run, store.ErrFenced)
	}
	held, again, err := c.Judge(refused, tickets, now)
	if err != nil {
		return nil, err
	}
	if !live { // the run gets no more tasks
		for _, ticket := range again {
			c.Add(ticket, store.Claim{Verdict: store.Stale, Now: now})
		}
		again = nil
	}
	return again, s.takeHeld(ctx, c, held)
}

// takeHeld gives the caller once more what an earlier call took, whose answer may have been lost. A
// task that is settled meanwhile stays without an answer here and is Stale in the end.
func (s *claimer) takeHeld(ctx context.Context, c *claiming, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	tasks, attempts := asked(tickets)
	return s.accept(ctx, c, "claim_held", int64(c.Run), tasks, attempts)
}

// Held implements store.Work. It reads every task of the range.
func (s *claimer) Held(ctx context.Context, run holdfast.RunID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	var rows []scan.Task
	err := s.do(ctx, "find held tasks", func() error {
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			rows = nil
			if _, err := s.exec(ctx, tx, "steps_settings"); err != nil {
				return err
			}
			return s.all(ctx, tx, &rows, "held", int64(after), int64(through), int64(run))
		})
	})
	if err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}
