// Package scan defines the rows that the statements of both adapters select, and converts them to the types of the
// contract.
package scan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
)

// Time scans a time, or a number of microseconds since 1970. Null and 0 become the zero time.
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

// UnmarshalJSON implements json.Unmarshaler. It accepts RFC 3339 strings, and numbers as Scan does.
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

// Tags scans a JSON list of tags. Null becomes nil.
type Tags []string

// Scan implements sql.Scanner.
func (t *Tags) Scan(value any) error {
	*t = nil
	switch value := value.(type) {
	case nil:
		return nil
	case string:
		return json.Unmarshal([]byte(value), (*[]string)(t))
	case []byte:
		return json.Unmarshal(value, (*[]string)(t))
	}
	return fmt.Errorf("%T is not a list of tags", value)
}

// TagSize is a tag and the number of its tasks, up to a limit.
type TagSize struct {
	Tag  string
	Size int
}

// ID is a row with only an id.
type ID struct{ ID int64 }

// IDs returns the ids of all rows.
func IDs(rows []ID) []int64 {
	ids := make([]int64, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	return ids
}

// Keeper is the task that has a unique key.
type Keeper struct {
	ID  holdfast.TaskID
	Key string
}

// Task is a task without its payload, as {{columns}} in sql/parts.sql of each adapter selects it.
type Task struct {
	ID          holdfast.TaskID
	Type        string
	Queue       string
	State       holdfast.State
	UniqueKey   string `db:"unique_key"`
	Attempt     int
	MaxAttempts int `db:"max_attempts"`
	Failures    int
	Crashes     int
	Deferrals   int
	WorkerID    holdfast.WorkerID `db:"worker_id"`
	NextRunAt   Time              `db:"next_run_at"`
	CreatedAt   Time              `db:"created_at"`
	StartedAt   Time              `db:"started_at"`
	FinishedAt  Time              `db:"finished_at"`
	LastError   string            `db:"last_error"`
	Parked      string
	Key         string
	ImportedKey string `db:"idempotency_key"`
	Buffered    bool
	Tags        Tags
	Ordered     ordered.Mark
	Topic       string
}

// Value returns the task.
func (r *Task) Value() holdfast.Task {
	queue, priority := holdfast.SplitSubqueue(r.Queue)
	return holdfast.Task{
		ID: r.ID, Type: r.Type, Queue: queue, Priority: priority, State: r.State, Unique: r.UniqueKey,
		Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, Failures: r.Failures, Crashes: r.Crashes, Deferrals: r.Deferrals,
		Worker: r.WorkerID, NextRunAt: r.NextRunAt.Time, CreatedAt: r.CreatedAt.Time,
		StartedAt: r.StartedAt.Time, FinishedAt: r.FinishedAt.Time,
		LastError: r.LastError, Parked: r.Parked, Key: r.Key, ImportedKey: r.ImportedKey, Buffered: r.Buffered, Tags: r.Tags,
		Ordered: r.Ordered != 0, Doomed: r.Ordered == ordered.Doomed, Topic: r.Topic,
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

// NotFound returns an ErrNotFound for a task that does not exist.
func NotFound(id holdfast.TaskID) error {
	return fmt.Errorf("%w: there is no task %s", holdfast.ErrNotFound, id)
}

// Attempt is an attempt of a task. A row with the number 0 only shows that the task exists.
type Attempt struct {
	Task       int64
	Attempt    int
	Event      holdfast.Event
	Worker     holdfast.WorkerID
	WorkerName string `db:"worker_name" json:"worker_name"`
	StartedAt  Time   `db:"started_at" json:"started_at"`
	FinishedAt Time   `db:"finished_at" json:"finished_at"`
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
			Task: holdfast.TaskID(row.Task), Attempt: row.Attempt, Event: row.Event, Worker: row.Worker, WorkerName: row.WorkerName,
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

// Record is a task with its payload, and with its attempts as a JSON list.
type Record struct {
	Whole
	Requeued bool
	Leads    bool
	Parks    int
	Attempts string
}

// Value returns the record.
func (r *Record) Value() (store.Record, error) {
	record := store.Record{Task: r.Whole.Value(), Requeued: r.Requeued, Order: r.Ordered, Leads: r.Leads, Parks: r.Parks}
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

// Position is the state of the task of a ticket.
type Position struct {
	Found       bool
	State       holdfast.State
	Attempt     int
	Worker      holdfast.WorkerID
	WorkerState store.WorkerState `db:"worker_state"`
	Ticketed    bool
}

// Positions returns the positions of all rows.
func Positions(rows []Position) []store.Position {
	positions := make([]store.Position, len(rows))
	for i, row := range rows {
		positions[i] = store.Position(row)
	}
	return positions
}

// WorkerState is the state of a worker.
type WorkerState struct {
	ID      holdfast.WorkerID
	State   store.WorkerState
	Settled int64
}

// WorkerStates returns the states of all rows by worker.
func WorkerStates(rows []WorkerState) map[holdfast.WorkerID]store.WorkerStatus {
	states := make(map[holdfast.WorkerID]store.WorkerStatus, len(rows))
	for _, row := range rows {
		states[row.ID] = store.WorkerStatus{State: row.State, Settled: row.Settled}
	}
	return states
}

// Worker is a worker. Queues and Types are JSON lists.
type Worker struct {
	ID          holdfast.WorkerID
	Name        string
	Host        string
	PID         int
	Version     string
	Concurrency int
	Queues      string
	Types       *string // nil if unknown
	State       store.WorkerState
	Draining    bool
	StartedAt   Time `db:"started_at"`
	RenewedAt   Time `db:"renewed_at"`
	LeaseUntil  Time `db:"lease_until"`
	EndedAt     Time `db:"ended_at"`
	Taken       int64
	Settled     int64
	Running     int
	Report      *string // JSON; nil if the worker reported nothing
	Settings    *string // JSON; nil if the worker reported none
	Gateless    bool
}

// WorkerReport returns the report of a worker as JSON, or "" if it is empty.
func WorkerReport(r store.WorkerReport) string {
	text, _ := json.Marshal(r) // a struct of numbers always encodes
	if string(text) == "{}" {
		return ""
	}
	return string(text)
}

// Workers returns the workers of all rows.
func Workers(rows []Worker) ([]store.Worker, error) {
	workers := make([]store.Worker, len(rows))
	for i, r := range rows {
		workers[i] = store.Worker{
			ID:         r.ID,
			WorkerInfo: store.WorkerInfo{Name: r.Name, Host: r.Host, PID: r.PID, Version: r.Version, Concurrency: r.Concurrency},
			State:      r.State, Draining: r.Draining,
			StartedAt: r.StartedAt.Time, RenewedAt: r.RenewedAt.Time, LeaseUntil: r.LeaseUntil.Time, EndedAt: r.EndedAt.Time,
			Taken: r.Taken, Settled: r.Settled, Running: r.Running, Gateless: r.Gateless,
		}
		if err := json.Unmarshal([]byte(r.Queues), &workers[i].Queues); err != nil {
			return nil, fmt.Errorf("read the queues of worker %s: %w", r.ID, err)
		}
		if r.Report != nil {
			if err := json.Unmarshal([]byte(*r.Report), &workers[i].Report); err != nil {
				return nil, fmt.Errorf("read the report of worker %s: %w", r.ID, err)
			}
		}
		if r.Settings != nil {
			if err := json.Unmarshal([]byte(*r.Settings), &workers[i].Settings); err != nil {
				return nil, fmt.Errorf("read the settings of worker %s: %w", r.ID, err)
			}
		}
		if r.Types == nil {
			continue
		}
		if err := json.Unmarshal([]byte(*r.Types), &workers[i].Types); err != nil {
			return nil, fmt.Errorf("read the types of worker %s: %w", r.ID, err)
		}
	}
	return workers, nil
}

// FailingDuty is the report of a duty that fails.
type FailingDuty struct {
	Janitor, Duty, Error string
	Age                  int64 // in microseconds
}

// FailingDuties returns the reports of all rows.
func FailingDuties(rows []FailingDuty) []store.DutyFailure {
	failing := make([]store.DutyFailure, len(rows))
	for i, r := range rows {
		failing[i] = store.DutyFailure{Janitor: r.Janitor, Duty: r.Duty, Error: r.Error, For: time.Duration(r.Age) * time.Microsecond}
	}
	return failing
}

// Count is the number of tasks in a state.
type Count struct {
	State holdfast.State
	Count int64
}

// Counts returns the counts by state. States without a row have 0.
func Counts(rows []Count) map[holdfast.State]int64 {
	counts := make(map[holdfast.State]int64)
	for _, state := range holdfast.States() {
		counts[state] = 0
	}
	for _, row := range rows {
		counts[row.State] += row.Count
	}
	return counts
}

// CountGroup is the number of tasks in a group. The last row of a result has no group; its Filled says whether all
// tasks were counted.
type CountGroup struct {
	Queue, Type string
	State       holdfast.State
	Count       int64
	Filled      bool
}

// Recounted is the difference between the stored number and the counted number of tasks, for one group in a block. The
// row without a queue has only the step and the block.
type Recounted struct {
	Step   int64  `json:"-"`
	Block  int64  `json:"-"`
	Filled bool   `json:"-"`
	Queue  string `json:"queue"`
	Type   string `json:"type"`
	State  string `json:"state"`
	N      int64  `json:"n"`
}

// Queue describes a queue. Oldest is in microseconds.
type Queue struct {
	Name                string
	Ready, Due, Running int64
	Dead, Parked        int64
	ParkedTypes         string `db:"parked_types"` // separated by spaces, which no type contains
	Oldest              int64
	DrainedThrough      Time `db:"drained_through"`
}

// Queues returns the subqueues of all rows, sorted by queue, the highest priority first.
func Queues(rows []Queue) []store.Queue {
	queues := make([]store.Queue, len(rows))
	for i, row := range rows {
		name, priority := holdfast.SplitSubqueue(row.Name)
		queues[i] = store.Queue{
			Name: name, Priority: priority, Ready: row.Ready, Due: row.Due, Running: row.Running, Dead: row.Dead,
			Parked: row.Parked, ParkedTypes: strings.Fields(row.ParkedTypes), OldestDue: time.Duration(row.Oldest) * time.Microsecond, DrainedAt: row.DrainedThrough.Time,
		}
	}
	slices.SortFunc(queues, func(a, b store.Queue) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Priority, a.Priority))
	})
	return queues
}

// DeathGroup is a group of dead tasks.
type DeathGroup struct {
	Fingerprint string
	Type        string
	Class       string
	Host        string
	Status      int
	Resolved    bool
	Tasks       int64
	LastHour    int64 `db:"last_hour"`
	FirstAt     Time  `db:"first_at"`
	LastAt      Time  `db:"last_at"`
	Sample      holdfast.TaskID
	Error       string
	Note        string
	Owner       string
	ResolvedAt  Time `db:"resolved_at"`
	Version     int64
}

// DeathGroups returns the groups of all rows.
func DeathGroups(rows []DeathGroup) []store.DeathGroup {
	groups := make([]store.DeathGroup, len(rows))
	for i, row := range rows {
		state := store.GroupOpen
		switch {
		case row.Resolved:
			state = store.GroupResolved
		case !row.ResolvedAt.IsZero():
			state = store.GroupReturned
		}
		groups[i] = store.DeathGroup{
			Fingerprint: row.Fingerprint, Type: row.Type, Class: row.Class, Host: row.Host, Status: row.Status, State: state,
			Tasks: row.Tasks, LastHour: row.LastHour, FirstAt: row.FirstAt.Time, LastAt: row.LastAt.Time,
			Sample: row.Sample, Error: row.Error, Note: row.Note, Owner: row.Owner, ResolvedAt: row.ResolvedAt.Time, Version: row.Version,
		}
	}
	return groups
}

// NoGroup returns an ErrNotFound for an unknown group.
func NoGroup(fingerprint string) error {
	return fmt.Errorf("%w: there is no group %s", holdfast.ErrNotFound, fingerprint)
}

// GroupTasks is the number of dead tasks of a group in one queue, by the hours since their death. Hour 0 is the last
// hour.
type GroupTasks struct {
	Queue string
	Hour  int
	Tasks int64
}

// GroupDetails adds the queues and the hours to a group.
func GroupDetails(group store.DeathGroup, rows []GroupTasks) store.DeathGroupDetails {
	details := store.DeathGroupDetails{DeathGroup: group}
	queues := make(map[string]int64)
	for _, row := range rows {
		queue, _ := holdfast.SplitSubqueue(row.Queue)
		queues[queue] += row.Tasks
		if row.Hour < len(details.Hours) {
			details.Hours[row.Hour] += row.Tasks
		}
	}
	for queue, tasks := range queues {
		details.Queues = append(details.Queues, store.GroupQueue{Queue: queue, Tasks: tasks})
	}
	slices.SortFunc(details.Queues, func(a, b store.GroupQueue) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Queue, b.Queue))
	})
	return details
}

// Death is a dead task with its last attempt.
type Death struct {
	Task    int64
	DiedAt  Time `db:"died_at"`
	Type    string
	Queue   string
	Class   string
	Error   string
	Stack   string
	Details string
}
