// Package scan defines the rows that the statements of both adapters select, and converts them to the types of the
// contract.
package scan

import (
	"bytes"
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
)

// TagSize is a tag and the number of its tasks, up to a limit.
type TagSize struct {
	Tag  string
	Size int
}

// ID is a row with only an id.
type ID struct{ ID int64 }

// IDs returns the ids of all rows.
func IDs[T ~int64](rows []ID) []T { return Map(rows, func(row ID) T { return T(row.ID) }) }

// Name is a row with only a name.
type Name struct{ Name string }

// Names returns the names of all rows.
func Names(rows []Name) []string { return Map(rows, func(row Name) string { return row.Name }) }

// Map returns the value of f for each element of a list.
func Map[E, V any](list []E, f func(E) V) []V {
	values := make([]V, len(list))
	for i, element := range list {
		values[i] = f(element)
	}
	return values
}

// Keeper is the task that has a unique key.
type Keeper struct {
	ID    holdfast.TaskID
	Key   string
	State holdfast.State
}

// Inserted returns the result for a task with the unique key of k that was not stored.
func (k Keeper) Inserted() store.InsertedTask {
	return store.InsertedTask{ID: k.ID, Duplicate: true, State: k.State}
}

// Task is a task, as {{columns}} in sql/parts.sql of each adapter selects it, with or without its payload.
type Task struct {
	holdfast.Task
	UniqueKey      string
	WorkerID       holdfast.WorkerID
	IdempotencyKey string
	Ordered        ordered.Mark
}

// Value returns the task.
func (r Task) Value() holdfast.Task {
	task := r.Task
	task.Queue, task.Priority = holdfast.SplitSubqueue(r.Queue)
	task.Unique, task.Worker, task.ImportedKey = r.UniqueKey, r.WorkerID, r.IdempotencyKey
	task.Ordered, task.Doomed = r.Ordered != 0, r.Ordered == ordered.Doomed
	return task
}

// Tasks returns the tasks of all rows.
func Tasks(rows []Task) []holdfast.Task { return Map(rows, Task.Value) }

// NotFound returns an ErrNotFound for a task that does not exist.
func NotFound(id holdfast.TaskID) error {
	return fmt.Errorf("%w: there is no task %s", holdfast.ErrNotFound, id)
}

// record is a task with its payload, its data and its attempts.
type record struct {
	Task
	Requeued bool
	Leads    bool
	Parks    int
	Data     []datum
	Attempts []attempt
}

// Records calls f with the record of each row. It returns the error of store.StillRunning if a task is running.
func Records(rows *sql.Rows, f func(store.Record) error) error {
	return column.Each(rows, func(row *record) error {
		if row.State == holdfast.Running {
			return store.StillRunning(row.ID)
		}
		return f(row.value())
	})
}

// attempt is an attempt of a record, in JSON.
type attempt struct {
	holdfast.Attempt
	Task       int64  `json:"task"`
	StartedAt  moment `json:"started_at"`
	FinishedAt moment `json:"finished_at"`
	Details    string `json:"details"`
}

// datum is a value of a record, in JSON.
type datum struct {
	Name    string `json:"name"`
	Attempt int    `json:"attempt"`
	Value   string `json:"value"`
	At      moment `json:"at"`
}

// moment is an RFC 3339 string, or a number of microseconds since 1970. 0 is the zero time.
type moment struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (m *moment) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		err := m.Time.UnmarshalJSON(text)
		m.Time = m.UTC()
		return err
	}
	var micros int64
	if err := json.Unmarshal(text, &micros); err != nil {
		return err
	}
	return (*column.Time)(&m.Time).Scan(micros)
}

func (r *record) value() store.Record {
	value := store.Record{Task: r.Task.Value(), Requeued: r.Requeued, Order: r.Ordered, Leads: r.Leads, Parks: r.Parks}
	for _, row := range r.Data {
		value.Data = append(value.Data, store.Datum{Task: r.ID, Name: row.Name, Attempt: row.Attempt, Value: json.RawMessage(row.Value), At: row.At.Time})
	}
	for _, row := range r.Attempts {
		a := row.Attempt
		a.Task, a.StartedAt, a.FinishedAt = holdfast.TaskID(row.Task), row.StartedAt.Time, row.FinishedAt.Time
		if row.Details != "" {
			a.Details = json.RawMessage(row.Details)
		}
		value.Attempts = append(value.Attempts, a)
	}
	return value
}

// WorkerReport returns the report of a worker as JSON, or "" if it is empty.
func WorkerReport(r store.WorkerReport) string {
	text, _ := json.Marshal(r) // a struct of numbers always encodes
	if string(text) == "{}" {
		return ""
	}
	return string(text)
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

// CountGroup is the number of tasks in a group.
type CountGroup struct {
	Queue, Type string
	State       holdfast.State
	Count       int64
}

// Recounted is the difference between the stored number and the counted number of tasks, for one group in a block. The
// row without a queue has only the step and the block.
type Recounted struct {
	Step  int64  `json:"-"`
	Block int64  `json:"-"`
	Queue string `json:"queue"`
	Type  string `json:"type"`
	State string `json:"state"`
	N     int64  `json:"n"`
}

// Queue is a subqueue.
type Queue struct {
	store.Queue
	ParkedTypes    string // separated by spaces, which no type contains
	Oldest         time.Duration
	DrainedThrough time.Time
}

// Queues returns the subqueues of all rows, by the name of the queue, and the highest priority first.
func Queues(rows []Queue) []store.Queue {
	queues := Map(rows, func(row Queue) store.Queue {
		q := row.Queue
		q.Name, q.Priority = holdfast.SplitSubqueue(row.Name)
		q.ParkedTypes, q.OldestDue, q.DrainedAt = strings.Fields(row.ParkedTypes), row.Oldest, row.DrainedThrough
		return q
	})
	slices.SortFunc(queues, func(a, b store.Queue) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Priority, a.Priority))
	})
	return queues
}

// DeathGroup is a group of dead tasks.
type DeathGroup struct {
	store.DeathGroup
	Resolved bool
}

// Value returns the group.
func (r DeathGroup) Value() store.DeathGroup {
	group := r.DeathGroup
	switch {
	case r.Resolved:
		group.State = store.GroupResolved
	case r.ResolvedAt.IsZero():
		group.State = store.GroupOpen
	default:
		group.State = store.GroupReturned
	}
	return group
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
	Task   int64
	DiedAt time.Time
	Type   string
	Queue  string
	holdfast.Report
}
