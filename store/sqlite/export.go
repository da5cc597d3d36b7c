package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

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

func (r recordRow) record() (store.Record, error) {
	record := store.Record{Task: r.task(), Again: r.Again, Parks: r.Parks}
	var past []struct {
		Task       int64
		Attempt    int
		Event      holdfast.Event
		Worker     string
		StartedAt  int64 `json:"started_at"`
		FinishedAt int64 `json:"finished_at"`
		Class      string
		Error      string
		Stack      string
		Details    string
	}
	if err := json.Unmarshal([]byte(r.Attempts), &past); err != nil {
		return record, err
	}
	for _, p := range past {
		attempt := holdfast.Attempt{
			Task: holdfast.TaskID(p.Task), Attempt: p.Attempt, Event: p.Event, Worker: p.Worker,
			StartedAt: moment(p.StartedAt), FinishedAt: moment(p.FinishedAt), Class: p.Class, Error: p.Error, Stack: p.Stack,
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
	err = s.write(ctx, "export tasks", func(_ context.Context, tx *transaction) error { // no other process writes meanwhile
		before, err := one[idRow](ctx, tx, "insert_first")
		if err != nil {
			return err
		}
		last = holdfast.TaskID(before.ID)
		return eachRecord(ctx, tx, func(record store.Record) error {
			ofCaller = f(record)
			return ofCaller
		})
	})
	if ofCaller != nil {
		return 0, ofCaller
	}
	return last, err
}

func eachRecord(ctx context.Context, tx *transaction, f func(store.Record) error) error {
	rows, err := tx.query(ctx, "export")
	if err != nil {
		return err
	}
	defer rows.Close()
	typed := sqlx.Rows{Rows: rows, Mapper: tx.conn.Mapper}
	for typed.Next() {
		var row recordRow
		if err := typed.StructScan(&row); err != nil {
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
	return errors.Join(typed.Err(), rows.Close())
}
