package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/roles"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// transfers is the role store.Transfer.
type transfers struct{ *database }

var _ store.Transfer = (*Store)(nil)

// Export implements store.Transfer.
func (s *transfers) Export(ctx context.Context, f func(store.Record) error) (last holdfast.TaskID, err error) {
	var callerErr error
	err = s.transfer(ctx, s.client.Unlimited, func(ctx context.Context, tx *sqlx.Tx) error {
		row, err := one[struct{ Last holdfast.TaskID }](ctx, s, tx, "transfer_last")
		if err != nil {
			return err
		}
		last = row.Last
		return s.eachRecord(ctx, tx, func(record store.Record) error {
			callerErr = f(record)
			return callerErr
		})
	})
	if callerErr != nil {
		return 0, callerErr
	}
	return last, pgclient.Translate(ctx, "export tasks", err)
}

// eachRecord calls f with every record. After an error it does not close the rows, because the driver would first read
// all remaining rows. The end of the transaction discards them.
func (s *transfers) eachRecord(ctx context.Context, tx *sqlx.Tx, f func(store.Record) error) error {
	rows, err := tx.QueryContext(ctx, s.text("export"))
	if err != nil {
		return err
	}
	if err := scan.Records(rows, f); err != nil {
		return err
	}
	return rows.Close()
}

// transfer runs f in a transaction during which no other session stores or changes a task. The context of f ends with
// the transaction.
func (s *transfers) transfer(ctx context.Context, pool *sqlx.DB, f func(context.Context, *sqlx.Tx) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tx, err := pool.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		_ = tx.Rollback() // does nothing after a commit
	}()
	if _, err := s.exec(ctx, tx, "transfer_lock"); pq.As(err, pqerror.LockNotAvailable) != nil {
		return holdfast.WithHint(fmt.Errorf("a transaction on %s.tasks has been open for long: %w", s.schema, err),
			holdfast.Advice("find the transaction in pg_stat_activity (xact_start, pid) and end it, then try again"))
	} else if err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Import implements store.Transfer.
func (s *transfers) Import(ctx context.Context, records []store.Record, last holdfast.TaskID) (int, error) {
	stored := 0
	err := s.do(ctx, "import tasks", func() error {
		return s.transfer(ctx, s.db, func(ctx context.Context, tx *sqlx.Tx) error {
			ids, err := s.importTasks(ctx, tx, records)
			if err != nil {
				return err
			}
			stored = len(ids)
			row, err := one[struct{ Last holdfast.TaskID }](ctx, s, tx, "transfer_last")
			if err == nil {
				_, err = s.exec(ctx, tx, "import_last", int64(max(row.Last, last)))
			}
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	return stored, nil
}

// importTasks stores the tasks that the store does not have, and returns their ids.
func (s *transfers) importTasks(ctx context.Context, tx *sqlx.Tx, records []store.Record) (map[holdfast.TaskID]bool, error) {
	stored := make(map[holdfast.TaskID]bool, len(records))
	if len(records) == 0 {
		return stored, nil
	}
	tasks := taskColumnsOf(records)
	if _, err := s.exec(ctx, tx, "insert_queues", pq.StringArray(slices.Compact(slices.Sorted(slices.Values(tasks.queues))))); err != nil {
		return nil, err
	}
	var rows []scan.ID
	if err := s.all(ctx, tx, &rows, "import", tasks.args()...); err != nil {
		return nil, err
	}
	for _, row := range rows {
		stored[holdfast.TaskID(row.ID)] = true
	}
	skipped := slices.DeleteFunc(slices.Clone(records), func(r store.Record) bool { return stored[r.ID] })
	if err := roles.Clash(ctx, querying{s.database, tx}, skipped); err != nil {
		return nil, err
	}
	if err := s.importTags(ctx, tx, records, stored); err != nil {
		return nil, err
	}
	if err := roles.ImportParts(ctx, querying{s.database, tx}, records, stored); err != nil {
		return nil, err
	}
	attempts := attemptColumnsOf(records, stored)
	if len(attempts.tasks) == 0 {
		return stored, nil
	}
	_, err := s.exec(ctx, tx, "import_attempts", attempts.args()...)
	return stored, err
}

// importTags stores the tags of the stored tasks.
func (s *transfers) importTags(ctx context.Context, tx *sqlx.Tx, records []store.Record, stored map[holdfast.TaskID]bool) error {
	var tagged []holdfast.TaskID
	for _, record := range records {
		if stored[record.ID] && len(record.Tags) > 0 {
			tagged = append(tagged, record.ID)
		}
	}
	if len(tagged) == 0 {
		return nil
	}
	_, err := s.exec(ctx, tx, "import_tags", numbers(tagged))
	return err
}

// taskColumns is a list of tasks as columns, the arguments of the statement import. attemptColumns is a list of
// attempts as columns, the arguments of the statement import_attempts.
type taskColumns struct {
	ids                                                 pq.Int64Array
	types, queues, states, payloads                     pq.StringArray
	attempts, maxAttempts, failures, crashes, deferrals pq.Int64Array
	nextRunAt, createdAt, startedAt, finishedAt         pq.StringArray
	requeued                                            pq.BoolArray
	lastErrors, parked, idempotencyKeys                 pq.StringArray
	parks, ordered                                      pq.Int64Array
	uniqueKeys, keys, tags, topics, traces              pq.StringArray
}

type attemptColumns struct {
	tasks, attempts                                                          pq.Int64Array
	events, workers, startedAt, finishedAt, classes, errors, stacks, details pq.StringArray
}

func taskColumnsOf(records []store.Record) (c taskColumns) {
	for _, r := range records {
		c.ids = append(c.ids, int64(r.ID))
		c.types, c.queues, c.states = append(c.types, r.Type), append(c.queues, r.Subqueue()), append(c.states, string(r.State))
		c.payloads, c.uniqueKeys = append(c.payloads, string(r.Payload)), append(c.uniqueKeys, r.Unique)
		c.attempts, c.maxAttempts = append(c.attempts, int64(r.Attempt)), append(c.maxAttempts, int64(r.MaxAttempts))
		c.failures, c.crashes, c.deferrals = append(c.failures, int64(r.Failures)), append(c.crashes, int64(r.Crashes)), append(c.deferrals, int64(r.Deferrals))
		c.nextRunAt, c.createdAt = append(c.nextRunAt, timeText(r.NextRunAt)), append(c.createdAt, timeText(r.CreatedAt))
		c.startedAt, c.finishedAt = append(c.startedAt, timeText(r.StartedAt)), append(c.finishedAt, timeText(r.FinishedAt))
		c.requeued = append(c.requeued, r.Requeued)
		c.lastErrors, c.parked = append(c.lastErrors, r.LastError), append(c.parked, r.Parked)
		c.idempotencyKeys = append(c.idempotencyKeys, r.ImportedKey)
		c.keys = append(c.keys, r.Key)
		c.parks, c.tags = append(c.parks, int64(r.Parks)), append(c.tags, column.Tags(r.Tags))
		c.ordered, c.topics, c.traces = append(c.ordered, int64(r.Order)), append(c.topics, r.Topic), append(c.traces, r.Trace)
	}
	return c
}

// attemptColumnsOf returns the attempts of the records whose tasks were stored.
func attemptColumnsOf(records []store.Record, stored map[holdfast.TaskID]bool) (c attemptColumns) {
	for _, r := range records {
		if !stored[r.ID] {
			continue
		}
		for _, a := range r.Attempts {
			c.tasks, c.attempts = append(c.tasks, int64(r.ID)), append(c.attempts, int64(a.Attempt))
			c.events, c.workers = append(c.events, string(a.Event)), append(c.workers, a.WorkerName)
			c.startedAt, c.finishedAt = append(c.startedAt, timeText(a.StartedAt)), append(c.finishedAt, timeText(a.FinishedAt))
			c.classes, c.errors = append(c.classes, a.Class), append(c.errors, a.Error)
			c.stacks, c.details = append(c.stacks, a.Stack), append(c.details, string(a.Details))
		}
	}
	return c
}

func (c *taskColumns) args() []any {
	return []any{
		c.ids, c.types, c.queues, c.states, c.payloads, c.uniqueKeys, c.attempts, c.maxAttempts, c.failures, c.crashes, c.deferrals,
		c.nextRunAt, c.createdAt, c.startedAt, c.finishedAt, c.requeued, c.lastErrors, c.parked, c.idempotencyKeys, c.parks, c.tags, c.keys, c.ordered, c.topics,
		c.traces,
	}
}

func (c *attemptColumns) args() []any {
	return []any{
		c.tasks, c.attempts, c.events, c.workers, c.startedAt, c.finishedAt, c.classes, c.errors, c.stacks, c.details,
	}
}

// timeText formats a time with its microseconds, and a zero time as an empty text.
func timeText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.999999Z")
}
