// Package scan has the rows that the statements of both adapters select, and turns them into the types of the contract.
package scan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Time reads a time, or the number of microseconds since 1970. Null and the number 0 are the zero time.
type Time struct{ time.Time }

// Scan implements sql.Scanner.
func (t *Time) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		t.Time = time.Time{}
	case time.Time:
		t.Time = value.UTC()
	case int64:
		t.Time = time.Time{}
		if value != 0 {
			t.Time = time.UnixMicro(value).UTC()
		}
	default:
		return fmt.Errorf("%T is not a time", value)
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler, for texts in the form of RFC 3339 and for numbers as Scan reads them.
func (t *Time) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		err := t.Time.UnmarshalJSON(text)
		t.Time = t.UTC()
		return err
	}
	var micros int64
	if err := json.Unmarshal(text, &micros); err != nil {
		return err
	}
	return t.Scan(micros)
}

// ID is the id of any row.
type ID struct{ ID int64 }

// IDs returns the ids of all rows.
func IDs(rows []ID) []int64 {
	ids := make([]int64, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	return ids
}

// Holder is a task that holds a unique key.
type Holder struct {
	ID  holdfast.TaskID
	Key string
}

// Task is a task without its payload, as {{columns}} in sql/parts.sql of each adapter selects it.
type Task struct {
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
	NextRunAt   Time           `db:"next_run_at"`
	CreatedAt   Time           `db:"created_at"`
	StartedAt   Time           `db:"started_at"`
	FinishedAt  Time           `db:"finished_at"`
	LastError   string         `db:"last_error"`
	Parked      string
	Key         string `db:"idempotency_key"`
	Buffered    bool
}

// Value returns the task.
func (r *Task) Value() holdfast.Task {
	return holdfast.Task{
		ID: r.ID, Type: r.Type, Lane: r.Lane, State: r.State, Unique: r.UniqueKey,
		Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, Failures: r.Failures, Crashes: r.Crashes, Deferrals: r.Deferrals,
		Run: r.RunID, NextRunAt: r.NextRunAt.Time, CreatedAt: r.CreatedAt.Time,
		StartedAt: r.StartedAt.Time, FinishedAt: r.FinishedAt.Time,
		LastError: r.LastError, Parked: r.Parked, Key: r.Key, Buffered: r.Buffered,
	}
}

// Tasks returns the tasks of all rows.
func Tasks(rows []Task) []holdfast.Task {
	tasks := make([]holdfast.Task, len(rows))
	for i := range rows {
		tasks[i] = rows[i].Value()
	}
	return tasks
}

// Whole is a task with its payload.
type Whole struct {
	Task
	Payload string
}

// Value returns the task.
func (r *Whole) Value() holdfast.Task {
	task := r.Task.Value()
	task.Payload = json.RawMessage(r.Payload)
	return task
}

// NotFound says that there is no such task.
func NotFound(id holdfast.TaskID) error {
	return fmt.Errorf("%w: there is no task %s", holdfast.ErrNotFound, id)
}

// Attempt is an attempt of a task. One with the number 0 says that the task exists.
type Attempt struct {
	Task       int64
	Attempt    int
	Event      holdfast.Event
	Run        holdfast.RunID
	Worker     string
	StartedAt  Time `db:"started_at" json:"started_at"`
	FinishedAt Time `db:"finished_at" json:"finished_at"`
	Class      string
	Error      string
	Stack      string
	Details    string
}

// Attempts returns the attempts of all rows.
func Attempts(rows []Attempt) []holdfast.Attempt {
	list := make([]holdfast.Attempt, 0, len(rows))
	for _, row := range rows {
		if row.Attempt == 0 {
			continue
		}
		attempt := holdfast.Attempt{
			Task: holdfast.TaskID(row.Task), Attempt: row.Attempt, Event: row.Event, Run: row.Run, Worker: row.Worker,
			StartedAt: row.StartedAt.Time, FinishedAt: row.FinishedAt.Time,
			Class: row.Class, Error: row.Error, Stack: row.Stack,
		}
		if row.Details != "" {
			attempt.Details = json.RawMessage(row.Details)
		}
		list = append(list, attempt)
	}
	return list
}

// Record is a task with its payload and, as a list in JSON, its attempts.
type Record struct {
	Whole
	Again    bool
	Parks    int
	Attempts string
}

// Value returns the record.
func (r *Record) Value() (store.Record, error) {
	record := store.Record{Task: r.Whole.Value(), Again: r.Again, Parks: r.Parks}
	if r.Attempts == "" {
		return record, nil
	}
	var rows []Attempt
	if err := json.Unmarshal([]byte(r.Attempts), &rows); err != nil {
		return record, fmt.Errorf("read the attempts of task %s: %w", r.ID, err)
	}
	if len(rows) > 0 {
		record.Attempts = Attempts(rows)
	}
	return record, nil
}

// Position is where a task stands.
type Position struct {
	Found    bool
	State    holdfast.State
	Attempt  int
	Run      holdfast.RunID
	RunState store.RunState `db:"run_state"`
	Ticketed bool
}

// Positions returns the positions of all rows.
func Positions(rows []Position) []store.Position {
	positions := make([]store.Position, len(rows))
	for i, row := range rows {
		positions[i] = store.Position(row)
	}
	return positions
}

// RunState is where a run stands.
type RunState struct {
	ID      holdfast.RunID
	State   store.RunState
	Settled int64
}

// RunStates returns the states of all rows by run.
func RunStates(rows []RunState) map[holdfast.RunID]store.RunStatus {
	states := make(map[holdfast.RunID]store.RunStatus, len(rows))
	for _, row := range rows {
		states[row.ID] = store.RunStatus{State: row.State, Settled: row.Settled}
	}
	return states
}

// Run is a run. Its lanes are a list in JSON.
type Run struct {
	ID          holdfast.RunID
	Name        string
	Host        string
	PID         int
	Version     string
	Concurrency int
	Lanes       string
	Types       *string // nil if the run did not name them
	State       store.RunState
	Draining    bool
	StartedAt   Time `db:"started_at"`
	RenewedAt   Time `db:"renewed_at"`
	LeaseUntil  Time `db:"lease_until"`
	EndedAt     Time `db:"ended_at"`
	Taken       int64
	Settled     int64
	Running     int
}

// Runs returns the runs of all rows.
func Runs(rows []Run) ([]store.Run, error) {
	runs := make([]store.Run, len(rows))
	for i, r := range rows {
		runs[i] = store.Run{
			ID:      r.ID,
			RunInfo: store.RunInfo{Name: r.Name, Host: r.Host, PID: r.PID, Version: r.Version, Concurrency: r.Concurrency},
			State:   r.State, Draining: r.Draining,
			StartedAt: r.StartedAt.Time, RenewedAt: r.RenewedAt.Time, LeaseUntil: r.LeaseUntil.Time, EndedAt: r.EndedAt.Time,
			Taken: r.Taken, Settled: r.Settled, Running: r.Running,
		}
		if err := json.Unmarshal([]byte(r.Lanes), &runs[i].Lanes); err != nil {
			return nil, fmt.Errorf("the lanes of run %s: %w", r.ID, err)
		}
		if r.Types == nil {
			continue
		}
		if err := json.Unmarshal([]byte(*r.Types), &runs[i].Types); err != nil {
			return nil, fmt.Errorf("the types of run %s: %w", r.ID, err)
		}
	}
	return runs, nil
}

// Count is the number of tasks in a state.
type Count struct {
	State holdfast.State
	Count int64
}

// Counts returns the counts of all rows by state, and 0 for states without a row.
func Counts(rows []Count) map[holdfast.State]int64 {
	counts := make(map[holdfast.State]int64)
	for _, state := range holdfast.States() {
		counts[state] = 0
	}
	for _, row := range rows {
		counts[row.State] = row.Count
	}
	return counts
}

// Lane describes a lane. Oldest is in microseconds.
type Lane struct {
	Name                string
	Ready, Due, Running int64
	Oldest              int64
	DrainedThrough      Time `db:"drained_through"`
}

// Lanes returns the lanes of all rows.
func Lanes(rows []Lane) []store.Lane {
	lanes := make([]store.Lane, len(rows))
	for i, row := range rows {
		lanes[i] = store.Lane{
			Name: row.Name, Ready: row.Ready, Due: row.Due, Running: row.Running,
			OldestDue: time.Duration(row.Oldest) * time.Microsecond, DrainedAt: row.DrainedThrough.Time,
		}
	}
	return lanes
}
