package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/roles"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// transfers is the role store.Transfer.
type transfers struct{ *database }

var _ store.Transfer = (*Store)(nil)

// Export implements store.Transfer.
func (s *transfers) Export(ctx context.Context, f func(store.Record) error) (last holdfast.TaskID, err error) {
	var callerErr error
	err = s.write(ctx, "export tasks", func(_ context.Context, tx *transaction) error { // a write transaction excludes other writers
		before, err := one[scan.ID](ctx, tx, "insert_first")
		if err != nil {
			return err
		}
		last = holdfast.TaskID(before.ID)
		return eachRecord(ctx, tx, func(record store.Record) error {
			callerErr = f(record)
			return callerErr
		})
	})
	if callerErr != nil {
		return 0, callerErr
	}
	return last, err
}

// eachRecord calls f with every record.
func eachRecord(ctx context.Context, tx *transaction, f func(store.Record) error) error {
	rows, err := tx.query(ctx, "export")
	if err != nil {
		return err
	}
	defer rows.Close()
	return scan.Records(rows, f)
}

// Import implements store.Transfer.
func (s *transfers) Import(ctx context.Context, records []store.Record, last holdfast.TaskID) (int, error) {
	stored := 0
	err := s.write(ctx, "import tasks", func(ctx context.Context, tx *transaction) error {
		var queues []string
		for _, record := range records {
			queues = append(queues, record.Subqueue())
		}
		if _, err := tx.exec(ctx, "insert_queues", stringList(slices.Compact(slices.Sorted(slices.Values(queues)))), tx.now); err != nil {
			return err
		}
		counts, added := make(tally), make(map[holdfast.TaskID]bool)
		for _, record := range records {
			isNew, err := importTask(ctx, tx, record)
			if err != nil {
				return err
			}
			if isNew {
				stored++
				added[record.ID] = true
				row := countedRow{int64(record.ID), record.Subqueue(), record.Type}
				counts.add(row, allStates, 1)
				if record.State.Final() {
					counts.add(row, string(record.State), 1)
				}
			}
		}
		if err := counts.store(ctx, tx); err != nil {
			return err
		}
		if err := roles.ImportParts(ctx, querying{tx, tx.now}, records, added); err != nil {
			return err
		}
		_, err := tx.exec(ctx, "import_last", int64(last)) // new tasks get ids above last
		return err
	})
	if err != nil {
		return 0, err
	}
	return stored, nil
}

// importTask stores a task with its attempts. It returns false if the store already has the task.
func importTask(ctx context.Context, tx *transaction, r store.Record) (bool, error) {
	var payload any = string(r.Payload)
	if len(r.Payload) >= longPayload {
		payload = nil
	}
	stored, err := tx.exec(ctx, "import", int64(r.ID), r.Type, r.Subqueue(), string(r.State), payload, r.Unique, r.Attempt, r.MaxAttempts,
		r.Failures, r.Crashes, r.Deferrals, timeMicros(r.NextRunAt), timeMicros(r.CreatedAt), timeMicros(r.StartedAt), timeMicros(r.FinishedAt),
		r.Requeued, r.LastError, r.Parked, r.ImportedKey, r.Parks, column.Tags(r.Tags), r.Key, int(r.Order), r.Topic, r.Trace, tx.now)
	if err != nil {
		return false, err
	}
	if stored == 0 {
		return false, roles.Clash(ctx, querying{tx, tx.now}, []store.Record{r})
	}
	if payload == nil {
		text, err := encode([][2]any{{int64(r.ID), string(r.Payload)}})
		if err != nil {
			return false, err
		}
		if _, err := tx.exec(ctx, "insert_payloads", text); err != nil {
			return false, err
		}
	}
	if len(r.Tags) > 0 {
		if _, err := tx.exec(ctx, "insert_tags", numbers([]holdfast.TaskID{r.ID})); err != nil {
			return false, err
		}
	}
	for _, a := range r.Attempts {
		_, err := tx.exec(ctx, "import_attempt", int64(r.ID), a.Attempt, string(a.Event), a.WorkerName, timeMicros(a.StartedAt), timeMicros(a.FinishedAt),
			a.Class, a.Error, a.Stack, string(a.Details))
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// timeMicros returns a time in microseconds since 1970, and 0 for the zero time.
func timeMicros(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}
