package postgres

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// claimer is the part of the role store.Work that claims tasks.
type claimer struct{ *database }

// Claim implements store.Work. If every task can be claimed, it needs one statement. Otherwise a second statement reads
// the tasks that were not claimed.
func (s *claimer) Claim(ctx context.Context, worker holdfast.WorkerID, wanted []store.Wanted, tickets []message.Ticket, into store.Place) ([]store.Claim, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	var c *claiming
	err := s.do(ctx, "claim tasks", func() error {
		c = &claiming{Answers: scan.NewAnswers(worker, wanted, len(tickets)), into: into, crashes: make(pq.Int64Array, len(wanted))}
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
	crashes pq.Int64Array // maximum number of crashes of each type
	gates   gateState
}

// claim answers all tickets.
func (s *claimer) claim(ctx context.Context, c *claiming, tickets []message.Ticket) error {
	pending := scan.Distinct(tickets)
	for attempt := 0; len(pending) > 0; attempt++ {
		if attempt == tries {
			return fmt.Errorf("%w: task %s changes too often to be claimed", holdfast.ErrUnavailable, pending[0].Task)
		}
		before := c.Len()
		err := s.take(ctx, c, pending)
		if err == nil {
			pending, err = s.answerUnclaimed(ctx, c, c.Unanswered(pending, before))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take claims the tasks that are ready.
func (s *claimer) take(ctx context.Context, c *claiming, tickets []message.Ticket) error {
	c.gates = s.knownGates()
	attempt := tickets[0].Attempt
	if !slices.ContainsFunc(tickets, func(t message.Ticket) bool { return t.Attempt != attempt }) { // the usual case
		set := idRangesOf(len(tickets), func(i int) int64 { return int64(tickets[i].Task) })
		firsts, lasts, starts := set.columns()
		name := "claim_range"
		if c.gates.gated {
			name = "claim_range_gated"
		}
		return s.accept(ctx, c, name, int64(c.Worker), set.bits, attempt, c.types, c.crashes, c.buffered(), c.gates.epoch, firsts, lasts, starts)
	}
	tasks, attempts := binaryTickets(tickets)
	return s.accept(ctx, c, "claim", int64(c.Worker), tasks, attempts, c.types, c.crashes, c.buffered(), c.gates.gated, c.gates.epoch)
}

// buffered returns the column that the claim writes. For tasks that start at once it is null, which takes no space.
func (c *claiming) buffered() sql.NullBool {
	return sql.NullBool{Bool: true, Valid: c.into == store.IntoBuffer}
}

// binaryTickets returns tickets as two columns in binary form, for unnest. See also ticketColumns.
func binaryTickets(tickets []message.Ticket) (tasks, attempts []byte) {
	return bigints(len(tickets), func(i int) int64 { return int64(tickets[i].Task) }),
		integers(len(tickets), func(i int) int { return tickets[i].Attempt })
}

// accept adds the tasks that a statement returns as claimed.
func (s *claimer) accept(ctx context.Context, c *claiming, name string, args ...any) error {
	rows, err := s.db.QueryContext(ctx, s.text(name), args...)
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
		claim, err := row.claim(c)
		if err != nil {
			return err
		}
		c.Accept(claim)
	}
	return rows.Err()
}

// claimedRow has the columns of {{claimed}} in sql/parts.sql, and after them whether the task is a probe, the store's time
// and whether the task is buffered. A statement returns as many of them as its tasks need: without gates there are no
// probes, and the time is usually that of the start. All rows of a page are scanned into one claimedRow, by position. A
// new value for each row, or a look-up of columns by name, would take longer than everything else.
type claimedRow struct {
	id, attempt, mostAttempts int64
	kind, queue               string
	created, next, started    sql.RawBytes // see timeOf
	payload                   []byte       // a new slice for every row
	rest                      sql.RawBytes // see addRest
	probe                     sql.NullBool
	now                       sql.NullTime
	buffered                  sql.NullBool
}

// fields returns the destinations of a row, in the order of the columns.
func (r *claimedRow) fields() []any {
	return []any{&r.id, &r.kind, &r.queue, &r.attempt, &r.mostAttempts, &r.created, &r.next, &r.started, &r.payload, &r.rest,
		&r.probe, &r.now, &r.buffered}
}

func (r *claimedRow) claim(c *claiming) (store.Claim, error) {
	queue, priority := holdfast.SplitSubqueue(r.queue)
	claim := store.Claim{Verdict: store.Claimed, Probe: r.probe.Bool, Task: &holdfast.Task{
		ID: holdfast.TaskID(r.id), Type: r.kind, Queue: queue, Priority: priority, Payload: r.payload,
		State: holdfast.Running, Worker: c.Worker, Buffered: c.into == store.IntoBuffer, Attempt: int(r.attempt), MaxAttempts: int(r.mostAttempts),
		CreatedAt: timeOf(r.created), StartedAt: timeOf(r.started),
	}}
	t := claim.Task
	t.NextRunAt, claim.Now = t.CreatedAt, t.StartedAt
	if r.next != nil {
		t.NextRunAt = timeOf(r.next)
	}
	if r.now.Valid {
		claim.Now, t.Buffered = r.now.Time.UTC(), r.buffered.Bool
	}
	if r.rest == nil {
		return claim, nil
	}
	return claim, addRest(t, r.rest)
}

// addRest sets the fields of a task that most tasks do not have, from a row of {{claimed}} in binary form: the number of
// its values and, for each, the type, the length or -1 if it is null, and the bytes.
func addRest(t *holdfast.Task, row []byte) error {
	var values [11][]byte
	if len(row) < 4 || binary.BigEndian.Uint32(row) != uint32(len(values)) {
		return errRest
	}
	row = row[4:]
	for i := range values {
		if len(row) < 8 {
			return errRest
		}
		size := int32(binary.BigEndian.Uint32(row[4:]))
		if row = row[8:]; size < 0 {
			continue
		}
		if int(size) > len(row) {
			return errRest
		}
		values[i], row = row[:size], row[size:]
	}
	if mark := values[4]; len(mark) == 2 {
		t.Ordered, t.Doomed = true, ordered.Mark(binary.BigEndian.Uint16(mark)) == ordered.Doomed
	}
	for i, number := range []*int{&t.Failures, &t.Crashes, &t.Deferrals} {
		if len(values[8+i]) != 4 {
			return errRest
		}
		*number = int(binary.BigEndian.Uint32(values[8+i]))
	}
	t.Unique, t.Key, t.Topic, t.Trace = string(values[0]), string(values[1]), string(values[3]), string(values[5])
	t.LastError, t.ImportedKey = string(values[6]), string(values[7])
	if values[2] != nil {
		return json.Unmarshal(values[2], &t.Tags)
	}
	return nil
}

var errRest = errors.New("the database returned a row in an unknown form")

// epoch is the zero time of PostgreSQL's timestamps, in Unix microseconds.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// timeOf decodes the result of timestamptz_send.
func timeOf(sent []byte) time.Time {
	return time.UnixMicro(epoch + int64(binary.BigEndian.Uint64(sent))).UTC()
}

// refusedRow is the state of a task that was not claimed.
type refusedRow struct {
	scan.Refused
	Live  bool // whether the claiming worker is live
	Epoch int64
	Gated bool
	Now   time.Time
}

// answerUnclaimed answers the tickets that were not claimed. It returns the tickets to try again, because the store did
// not know the present gates, or because their tasks became ready between the two statements.
func (s *claimer) answerUnclaimed(ctx context.Context, c *claiming, tickets []message.Ticket) (retry []message.Ticket, err error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	tasks, attempts := binaryTickets(tickets)
	rows := make([]refusedRow, 0, len(tickets))
	if err := s.all(ctx, s.db, &rows, "claim_refused", int64(c.Worker), tasks, attempts); err != nil {
		return nil, err
	}
	refused := make([]scan.Refused, len(rows))
	live, gates, now := true, gateState{}, time.Time{}
	for i, row := range rows {
		refused[i], live, gates, now = row.Refused, row.Live, gateState{row.Epoch, row.Gated}, row.Now.UTC()
	}
	if live && gates.epoch != c.gates.epoch {
		s.gateState.Store(&gates)
		return tickets, nil
	}
	if !live && c.Taken == 0 {
		return nil, fmt.Errorf("worker %s: %w", c.Worker, store.ErrFenced)
	}
	held, retry, err := c.Judge(refused, tickets, now)
	if err != nil {
		return nil, err
	}
	if !live { // the worker has ended, and gets no more tasks
		for _, ticket := range retry {
			c.Add(ticket, store.Claim{Verdict: store.Stale, Now: now})
		}
		retry = nil
	}
	return retry, s.takeHeld(ctx, c, held)
}

// takeHeld answers tickets whose tasks an earlier call has claimed for the same worker, because the answer to that call
// may have been lost. If a task has been settled since that call, takeHeld does not answer its ticket, and the verdict
// is Stale.
func (s *claimer) takeHeld(ctx context.Context, c *claiming, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	tasks, attempts := binaryTickets(tickets)
	return s.accept(ctx, c, "claim_held", int64(c.Worker), tasks, attempts)
}

// Held implements store.Work. It reads all tasks of the id range.
func (s *claimer) Held(ctx context.Context, worker holdfast.WorkerID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	var rows []scan.Task
	err := s.do(ctx, "find held tasks", func() error {
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			rows = nil
			if _, err := s.exec(ctx, tx, "steps_settings"); err != nil {
				return err
			}
			return s.all(ctx, tx, &rows, "held", int64(after), int64(through), int64(worker))
		})
	})
	if err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}
