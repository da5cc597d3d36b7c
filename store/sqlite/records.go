package sqlite

import (
	"context"
	"encoding/json"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

type recordRow struct {
	fullRow
	Again bool
}

// pastRow is an attempt without its run.
type pastRow struct {
	Task       holdfast.TaskID
	Attempt    int
	Event      holdfast.Event
	Worker     string
	StartedAt  int64 `db:"started_at"`
	FinishedAt int64 `db:"finished_at"`
	Class      string
	Error      string
	Stack      string
	Details    string
}

func (r pastRow) attempt() holdfast.Attempt {
	attempt := holdfast.Attempt{
		Task: r.Task, Attempt: r.Attempt, Event: r.Event, Worker: r.Worker,
		StartedAt: moment(r.StartedAt), FinishedAt: moment(r.FinishedAt),
		Class: r.Class, Error: r.Error, Stack: r.Stack,
	}
	if r.Details != "" {
		attempt.Details = json.RawMessage(r.Details)
	}
	return attempt
}

// Records implements store.Exporter.
func (s *Store) Records(ctx context.Context, after holdfast.TaskID, limit, size int) ([]store.Record, error) {
	var records []store.Record
	err := s.read(ctx, "read tasks to carry", func(ctx context.Context, c *session) error {
		through, err := fitting(ctx, c, after, limit, size)
		if err != nil || through == 0 {
			return err
		}
		rows, err := all[recordRow](ctx, c, "records", int64(after), through)
		if err != nil {
			return err
		}
		attempts, err := all[pastRow](ctx, c, "records_attempts", int64(after), through)
		if err != nil {
			return err
		}
		records = make([]store.Record, len(rows))
		for i, row := range rows {
			records[i] = store.Record{Task: row.task(), Again: row.Again}
			for len(attempts) > 0 && attempts[0].Task == row.ID {
				records[i].Attempts = append(records[i].Attempts, attempts[0].attempt())
				attempts = attempts[1:]
			}
		}
		return nil
	})
	return records, err
}

// fitting returns the last id that belongs into one batch with the first ones above after, 0 if there is none.
func fitting(ctx context.Context, c *session, after holdfast.TaskID, limit, size int) (through int64, err error) {
	sizes, err := all[struct{ ID, Size int64 }](ctx, c, "records_sizes", int64(after), limit)
	total := int64(0)
	for i, task := range sizes {
		if total += task.Size; i > 0 && total > int64(size) {
			break
		}
		through = task.ID
	}
	return through, err
}

// TransferCounts implements store.Exporter.
func (s *Store) TransferCounts(ctx context.Context) (store.TransferCounts, error) {
	counts := store.TransferCounts{States: make(map[holdfast.State]int64)}
	err := s.read(ctx, "count tasks to carry", func(ctx context.Context, c *session) error {
		rest, err := one[struct{ Attempts, Last int64 }](ctx, c, "transfer_counts")
		if err != nil {
			return err
		}
		counts.Attempts, counts.Last = rest.Attempts, holdfast.TaskID(rest.Last)
		rows, err := all[struct {
			State holdfast.State
			Count int64
		}](ctx, c, "count_all")
		for _, state := range holdfast.States() {
			counts.States[state] = 0
		}
		for _, row := range rows {
			counts.States[row.State] = row.Count
		}
		return err
	})
	return counts, err
}
