package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Stage implements store.Importer. After an ErrInvalid the records before the one it names are stored.
func (s *Store) Stage(ctx context.Context, transfer string, records []store.Record) error {
	const operation = "stage tasks"
	err := s.do(ctx, operation, func() error { return s.stage(ctx, transfer, records) })
	if !errors.Is(err, holdfast.ErrInvalid) {
		return batchError(err, records)
	}
	for i, record := range records { // the server does not say which one it means
		err := s.do(ctx, operation, func() error { return s.stage(ctx, transfer, records[i:i+1]) })
		if errors.Is(err, holdfast.ErrInvalid) {
			return &store.RecordError{Task: record.ID, Err: err}
		}
		if err != nil {
			return batchError(err, records[i:i+1])
		}
	}
	return nil
}

// batchError adds which tasks it was about to an error that a constraint or a trigger has raised.
func batchError(err error, records []store.Record) error {
	failure := pq.As(err)
	if failure == nil || len(records) == 0 || failure.Code.Class() != "23" && failure.Code.Class() != "P0" {
		return err
	}
	return fmt.Errorf("tasks %s to %s: %w", records[0].ID, records[len(records)-1].ID, err)
}

func (s *Store) stage(ctx context.Context, transfer string, records []store.Record) error {
	return s.patiently(ctx, func(tx *sqlx.Tx) error {
		row, err := s.lockImport(ctx, tx, transfer)
		if err != nil {
			return err
		}
		if row.CommittedAt.Valid {
			return fmt.Errorf("%w: the import for the transfer %s was committed", holdfast.ErrConflict, transfer)
		}
		for len(records) > 0 && records[0].ID <= row.Through {
			records = records[1:]
		}
		if len(records) == 0 {
			return nil
		}
		tasks, attempts := unpack(records)
		if _, err := s.exec(ctx, tx, "stage_tasks", tasks.args(row.ID)...); err != nil {
			return err
		}
		if len(attempts.tasks) > 0 {
			if _, err := s.exec(ctx, tx, "stage_attempts", attempts.args(row.ID)...); err != nil {
				return err
			}
		}
		_, err = s.exec(ctx, tx, "stage_through", row.ID, int64(records[len(records)-1].ID))
		return err
	})
}

// recordColumns are tasks, attemptColumns attempts, as sql/stage_*.sql unnest them.
type recordColumns struct {
	ids                                                 pq.Int64Array
	types, lanes, states, payloads, keys                pq.StringArray
	attempts, maxAttempts, failures, crashes, deferrals pq.Int64Array
	nextRunAt, createdAt, startedAt, finishedAt         pq.StringArray
	again                                               pq.BoolArray
	lastErrors, parked                                  pq.StringArray
}

type attemptColumns struct {
	tasks, attempts                                                          pq.Int64Array
	events, workers, startedAt, finishedAt, classes, errors, stacks, details pq.StringArray
}

func unpack(records []store.Record) (t recordColumns, a attemptColumns) {
	for _, p := range records {
		payload := string(p.Payload)
		if payload == "" {
			payload = "null"
		}
		t.ids = append(t.ids, int64(p.ID))
		t.types, t.lanes, t.states = append(t.types, p.Type), append(t.lanes, p.Lane), append(t.states, string(p.State))
		t.payloads, t.keys = append(t.payloads, payload), append(t.keys, p.Unique)
		t.attempts, t.maxAttempts = append(t.attempts, int64(p.Attempt)), append(t.maxAttempts, int64(p.MaxAttempts))
		t.failures, t.crashes, t.deferrals = append(t.failures, int64(p.Failures)), append(t.crashes, int64(p.Crashes)), append(t.deferrals, int64(p.Deferrals))
		t.nextRunAt, t.createdAt = append(t.nextRunAt, exactly(p.NextRunAt)), append(t.createdAt, exactly(p.CreatedAt))
		t.startedAt, t.finishedAt = append(t.startedAt, exactly(p.StartedAt)), append(t.finishedAt, exactly(p.FinishedAt))
		t.again = append(t.again, p.Again)
		t.lastErrors, t.parked = append(t.lastErrors, clean(p.LastError)), append(t.parked, clean(p.Parked))
		for _, attempt := range p.Attempts {
			a.add(attempt)
		}
	}
	return t, a
}

func (a *attemptColumns) add(attempt holdfast.Attempt) {
	a.tasks, a.attempts = append(a.tasks, int64(attempt.Task)), append(a.attempts, int64(attempt.Attempt))
	a.events, a.workers = append(a.events, string(attempt.Event)), append(a.workers, clean(attempt.Worker))
	a.startedAt, a.finishedAt = append(a.startedAt, exactly(attempt.StartedAt)), append(a.finishedAt, exactly(attempt.FinishedAt))
	a.classes, a.errors = append(a.classes, clean(attempt.Class)), append(a.errors, clean(attempt.Error))
	a.stacks = append(a.stacks, clean(attempt.Stack))
	a.details = append(a.details, detailsOf(holdfast.Report{Details: attempt.Details}))
}

func (t *recordColumns) args(id int64) []any {
	return []any{
		id, t.ids, t.types, t.lanes, t.states, t.payloads, t.keys, t.attempts, t.maxAttempts, t.failures, t.crashes, t.deferrals,
		t.nextRunAt, t.createdAt, t.startedAt, t.finishedAt, t.again, t.lastErrors, t.parked,
	}
}

func (a *attemptColumns) args(id int64) []any {
	return []any{
		id, a.tasks, a.attempts, a.events, a.workers, a.startedAt, a.finishedAt, a.classes, a.errors, a.stacks, a.details,
	}
}

// exactly writes a moment with every microsecond, and none as nothing.
func exactly(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.999999Z")
}
