package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/holdfastq/holdfast"
)

type attemptRow struct {
	Task       holdfast.TaskID
	Attempt    int
	Event      holdfast.Event
	Run        holdfast.RunID
	Worker     string
	StartedAt  int64 `db:"started_at"`
	FinishedAt int64 `db:"finished_at"`
	Class      string
	Error      string
	Stack      string
	Details    string
}

// Attempts implements store.Desk.
func (s *Store) Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error) {
	var rows []attemptRow
	err := s.read(ctx, "read attempts", func(ctx context.Context, c *session) error {
		var err error
		rows, err = all[attemptRow](ctx, c, "attempts", int64(id))
		if err == nil && len(rows) == 0 {
			err = sql.ErrNoRows
		}
		return notFound(err, id)
	})
	if err != nil {
		return nil, err
	}
	list := make([]holdfast.Attempt, 0, len(rows))
	for _, row := range rows {
		if row.Attempt == 0 { // the task has none
			continue
		}
		attempt := holdfast.Attempt{
			Task: row.Task, Attempt: row.Attempt, Event: row.Event, Run: row.Run, Worker: row.Worker,
			StartedAt: moment(row.StartedAt), FinishedAt: moment(row.FinishedAt),
			Class: row.Class, Error: row.Error, Stack: row.Stack,
		}
		if row.Details != "" {
			attempt.Details = json.RawMessage(row.Details)
		}
		list = append(list, attempt)
	}
	return list, nil
}
