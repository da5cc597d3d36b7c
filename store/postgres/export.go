package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var _ store.Transfer = (*Store)(nil)

// recordRow is a task with its payload and, as a JSON array, its attempts.
type recordRow struct {
	fullRow
	Again    bool
	Parks    int
	Attempts string
}

// pastAttempt is an element of that array.
type pastAttempt struct {
	Task       int64
	Attempt    int
	Event      holdfast.Event
	Worker     string
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	Class      string
	Error      string
	Stack      string
	Details    string
}

func (r recordRow) record() (store.Record, error) {
	record := store.Record{Task: r.task(), Again: r.Again, Parks: r.Parks}
	if r.Attempts == "" {
		return record, nil
	}
	var past []pastAttempt
	if err := json.Unmarshal([]byte(r.Attempts), &past); err != nil {
		return record, err
	}
	for _, p := range past {
		attempt := holdfast.Attempt{
			Task: holdfast.TaskID(p.Task), Attempt: p.Attempt, Event: p.Event, Worker: p.Worker, StartedAt: p.StartedAt.UTC(), FinishedAt: p.FinishedAt.UTC(),
			Class: p.Class, Error: p.Error, Stack: p.Stack,
		}
		if p.Details != "" {
			attempt.Details = json.RawMessage(p.Details)
		}
		record.Attempts = append(record.Attempts, attempt)
	}
	return record, nil
}

// Export implements store.Transfer.
func (s *Store) Export(ctx context.Context, f func(store.Record) error) (last holdfast.TaskID, err error) {
	var ofCaller error
	err = s.transfer(ctx, s.migrations, func(ctx context.Context, tx *sqlx.Tx) error {
		row, err := one[struct{ Last holdfast.TaskID }](ctx, s, tx, "transfer_last")
		if err != nil {
			return err
		}
		last = row.Last
		return s.eachRecord(ctx, tx, func(record store.Record) error {
			ofCaller = f(record)
			return ofCaller
		})
	})
	if ofCaller != nil {
		return 0, ofCaller
	}
	return last, translate(ctx, "export tasks", err)
}

// eachRecord calls f with every record. After an error it does not close the rows, because the driver would read all of
// them; they end with the transaction.
func (s *Store) eachRecord(ctx context.Context, tx *sqlx.Tx, f func(store.Record) error) error {
	rows, err := tx.QueryxContext(ctx, s.text("export"))
	if err != nil {
		return err
	}
	for rows.Next() {
		var row recordRow
		if err := rows.StructScan(&row); err != nil {
			return err
		}
		if row.State == holdfast.Running {
			return store.StillRunning(row.ID)
		}
		record, err := row.record()
		if err != nil {
			return fmt.Errorf("read the attempts of task %s: %w", row.ID, err)
		}
		if err := f(record); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// transfer runs f in a transaction during which no other session stores or changes a task. The context of f ends with
// the transaction.
func (s *Store) transfer(ctx context.Context, pool *sqlx.DB, f func(context.Context, *sqlx.Tx) error) error {
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
		return fmt.Errorf("%w; a transaction on %s.tasks has been open for long: find it in pg_stat_activity (xact_start, pid) and end it, then try again", err, s.schema)
	} else if err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}
