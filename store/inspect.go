package store

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	"github.com/holdfastq/holdfast"
)

// Inspector answers the queries of people.
type Inspector interface {
	// Task returns a task with its payload. Returns ErrNotFound if the task does not exist.
	Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error)
	// FullTasks returns the tasks with the given ids, with their payloads, in the order of their ids. Ids without a task
	// are left out.
	FullTasks(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error)
	// TaskSizes returns the sizes of the tasks with the given ids, in the order of their ids. Ids without a task are left
	// out. A caller that reads many tasks, or outputs, uses it to keep the memory of one read small.
	TaskSizes(ctx context.Context, ids []holdfast.TaskID) ([]TaskSize, error)
	// List returns a page of tasks without payload, highest id first. It finds tasks by id, unique key, tag, group of
	// deaths and the state dead with indexes. For other filters it has to scan; with a batch, it scans from the first
	// task of the batch to the last one. A scan ends after about a second, and List then returns the tasks that it has
	// found. In a large store, a list of running tasks may lack those that were claimed since the latest renewal of
	// their worker.
	List(ctx context.Context, f Filter) (Page, error)
	// Count returns the number of tasks by state. With a filter of states, type, queue and priorities only, it uses the
	// numbers of CountGroups. For most other filters it has to scan all tasks. Then it returns after about a second,
	// with the number of tasks that it has found.
	Count(ctx context.Context, f Filter) (Counts, error)
	// Attempts returns the recorded attempts of a task, oldest first. Returns ErrNotFound if the task does not exist.
	Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error)
	// Queues returns every known queue, sorted by name, and for each the highest priority first.
	Queues(ctx context.Context) ([]Queue, error)
	// TypeSchemas returns the JSON Schemas of payloads that workers have stored, sorted by type. If taskType is not
	// empty, it returns only the schema of that type. A type has no schema if its newest worker accepts any payload.
	TypeSchemas(ctx context.Context, taskType string) ([]TypeSchema, error)
}

// TaskSize is how much a task and its output add to the memory of a reader.
type TaskSize struct {
	Task  holdfast.TaskID
	Bytes int64 // of the payload and of the output
}

// TypeSchema is the JSON Schema of the payloads of a task type.
type TypeSchema struct {
	Type      string            `json:"type"`
	Schema    json.RawMessage   `json:"schema"`
	Worker    holdfast.WorkerID `json:"worker"`     // the worker that stored it
	UpdatedAt time.Time         `json:"updated_at"` // when it last changed
}

// Page is a part of the tasks that a filter selects.
type Page struct {
	Tasks []holdfast.Task
	// Next is the Filter.Before of the next page, or 0 if no more tasks match. If the page is not full and Next is not
	// 0, List has stopped a scan after a second. The tasks below Next are not scanned.
	Next holdfast.TaskID
}

// Counts is the result of Inspector.Count.
type Counts struct {
	By map[holdfast.State]int64 // states without tasks are present with 0
	// Next is 0 if all tasks were counted. Otherwise Count has stopped after a second, and Next is the Filter.Before of
	// a call that continues.
	Next holdfast.TaskID
}

// Filter selects tasks. The zero value selects all. Operations store filters as JSON. A build does not advance an
// operation whose filter has a member that the build does not know, so a new condition needs a new member.
type Filter struct {
	States []holdfast.State `json:"states,omitempty"`
	Type   string           `json:"type,omitempty"`
	Queue  string           `json:"queue,omitempty"`
	// Priorities, if not empty, selects the tasks with one of these priorities.
	Priorities []holdfast.Priority `json:"priorities,omitempty"`
	Error      string              `json:"error,omitempty"`  // text that the last error contains, ignoring case
	Unique     string              `json:"unique,omitempty"` // the unique key
	Key        string              `json:"key,omitempty"`
	Topic      string              `json:"topic,omitempty"`
	Batch      holdfast.BatchID    `json:"batch,omitempty"`     // the tasks of this batch
	Worker     holdfast.WorkerID   `json:"worker,omitempty"`    // the tasks that this worker runs, or has not handed back
	Operation  ID                  `json:"operation,omitempty"` // the tasks that this operation has changed, as the audit log has it
	IDs        []holdfast.TaskID   `json:"ids,omitempty"`       // if not empty, only these tasks
	NotIDs     []holdfast.TaskID   `json:"not_ids,omitempty"`   // exceptions: not these tasks
	// MinID and MaxID, if not 0, bound the id. Both are inclusive.
	MinID   holdfast.TaskID `json:"min_id,omitempty"`
	MaxID   holdfast.TaskID `json:"max_id,omitempty"`
	Tags    []string        `json:"tags,omitempty"`    // the task has all of these tags
	Payload []PayloadTerm   `json:"payload,omitempty"` // the payload has all of these values
	// MinAttempt and MaxAttempt, if not 0, bound the number of the attempt.
	MinAttempt int `json:"min_attempt,omitempty"`
	MaxAttempt int `json:"max_attempt,omitempty"`
	// Fingerprint, Class, Host and Status select dead tasks by their record; see DeathGroup.
	Fingerprint string `json:"fingerprint,omitempty"`
	Class       string `json:"class,omitempty"`
	Host        string `json:"host,omitempty"`
	Status      int    `json:"status,omitempty"`
	// Since and Until, if not zero, select the tasks whose time is in [Since, Until). That is the time at which the
	// task reached a final state; for a task that has not, it is the time of its creation.
	Since  time.Time       `json:"since,omitzero"`
	Until  time.Time       `json:"until,omitzero"`
	Before holdfast.TaskID `json:"-"` // if not 0, only smaller ids; for the next page
	Limit  int             `json:"-"` // at most this many; 0 means 50; for List only
}

// OnlyGroups reports whether the filter has no conditions other than states, a type, a queue and priorities.
func (f *Filter) OnlyGroups() bool {
	rest := *f
	rest.States, rest.Type, rest.Queue, rest.Priorities, rest.Limit = nil, "", "", nil, 0
	return reflect.DeepEqual(rest, Filter{})
}

// Subqueue returns the name of the subqueue; see holdfast.Subqueue.
func (q *Queue) Subqueue() string { return holdfast.Subqueue(q.Name, q.Priority) }

// PayloadTerm is a condition on a value in a payload.
type PayloadTerm struct {
	// Path has the keys of objects and the indexes of arrays that lead to the value.
	Path []string `json:"path"`
	// Value is equal to the string at the path. If Text is not set, it may also be equal to a number, true, false or
	// null there. Numbers are compared by value: 10 is equal to 1e1.
	Value string `json:"value"`
	Text  bool   `json:"text"`
}

// Queue describes the tasks of a queue with one priority. There is one Queue for each priority that a task of the queue
// has ever had.
type Queue struct {
	Name     string
	Priority holdfast.Priority
	Ready    int64 // due or not
	Due      int64 // ready and due
	Running  int64
	Dead     int64
	Parked   int64 // ready tasks that a worker has parked
	// ParkedTypes are the types of the parked tasks, sorted.
	ParkedTypes []string
	OldestDue   time.Duration // how long the oldest due task has been due
	DrainedAt   time.Time     // the main queue delivered every ticket published before this time; see message.Sentinel
}
