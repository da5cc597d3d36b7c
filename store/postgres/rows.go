package postgres

import (
	"database/sql"
	"encoding/json"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
)

// taskRow is a task as sql/columns.sql selects it.
type taskRow struct {
	ID          holdfast.TaskID
	Type        string
	Lane        string
	State       holdfast.State
	UniqueKey   string `db:"unique_key"`
	Attempt     int
	MaxAttempts int `db:"max_attempts"`
	Failures    int
	Crashes     int
	Deferrals   int
	RunID       holdfast.RunID `db:"run_id"`
	NextRunAt   time.Time      `db:"next_run_at"`
	CreatedAt   time.Time      `db:"created_at"`
	StartedAt   sql.NullTime   `db:"started_at"`
	FinishedAt  sql.NullTime   `db:"finished_at"`
	LastError   string         `db:"last_error"`
	Parked      string
	Key         string `db:"idempotency_key"`
	Buffered    bool
}

func (r taskRow) task() holdfast.Task {
	return holdfast.Task{
		ID: r.ID, Type: r.Type, Lane: r.Lane, State: r.State, Unique: r.UniqueKey,
		Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, Failures: r.Failures, Crashes: r.Crashes, Deferrals: r.Deferrals,
		Run: r.RunID, NextRunAt: r.NextRunAt.UTC(), CreatedAt: r.CreatedAt.UTC(),
		StartedAt: moment(r.StartedAt), FinishedAt: moment(r.FinishedAt),
		LastError: r.LastError, Parked: r.Parked, Key: r.Key, Buffered: r.Buffered,
	}
}

// fullRow is a task with its payload.
type fullRow struct {
	taskRow
	Payload string
}

func (r fullRow) task() holdfast.Task {
	task := r.taskRow.task()
	task.Payload = json.RawMessage(r.Payload)
	return task
}

// moment reads a time that may be missing.
func moment(t sql.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// pairs lists tickets as the two columns that unnest joins again.
func pairs(tickets []holdfast.Ticket) (tasks pq.Int64Array, attempts pq.Int64Array) {
	tasks, attempts = make(pq.Int64Array, len(tickets)), make(pq.Int64Array, len(tickets))
	for i, t := range tickets {
		tasks[i], attempts[i] = int64(t.Task), int64(t.Attempt)
	}
	return tasks, attempts
}

// numbers lists ids of any kind.
func numbers[ID ~int64](ids []ID) pq.Int64Array {
	list := make(pq.Int64Array, len(ids))
	for i, id := range ids {
		list[i] = int64(id)
	}
	return list
}
