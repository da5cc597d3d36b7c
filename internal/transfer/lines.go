package transfer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
)

const (
	format  = "holdfast export"
	version = 1

	maxKeyLength  = 255 // idempotency keys are sent in headers
	maxNameLength = 255 // of values
)

// line is one line of an export. Exactly one of its fields is set.
type line struct {
	Header *header   `json:"header,omitempty"`
	Task   *taskLine `json:"task,omitempty"`
	Key    *keyLine  `json:"kept_key,omitempty"`
	End    *Totals   `json:"end,omitempty"`
}

type header struct {
	Format      string    `json:"format"`
	Version     int       `json:"version"`
	Incarnation string    `json:"incarnation"` // of the exported store
	ExportedAt  time.Time `json:"exported_at"`
}

// taskLine is a task. JSON values of the task are strings, so that they are preserved byte for byte.
type taskLine struct {
	ID          holdfast.TaskID   `json:"id"`
	Type        string            `json:"type"`
	Queue       string            `json:"queue"`
	Priority    holdfast.Priority `json:"priority,omitzero"` // absent for normal
	State       holdfast.State    `json:"state"`
	Payload     string            `json:"payload"`
	Unique      string            `json:"unique_key,omitempty"`
	Key         string            `json:"key,omitempty"`
	Topic       string            `json:"topic,omitempty"`
	Order       ordered.Mark      `json:"order,omitempty"`
	Leads       bool              `json:"leads,omitempty"` // the task is the active ordered task of its key
	Tags        []string          `json:"tags,omitempty"`
	Trace       string            `json:"trace,omitempty"`
	Attempt     int               `json:"attempt"`
	MaxAttempts int               `json:"max_attempts"`
	Failures    int               `json:"failures,omitempty"`
	Crashes     int               `json:"crashes,omitempty"`
	Deferrals   int               `json:"deferrals,omitempty"`
	NextRunAt   time.Time         `json:"next_run_at"`
	CreatedAt   time.Time         `json:"created_at"`
	StartedAt   time.Time         `json:"started_at,omitzero"`
	FinishedAt  time.Time         `json:"finished_at,omitzero"`
	Requeued    bool              `json:"requeued,omitempty"`
	LastError   string            `json:"last_error,omitempty"`
	Parked      string            `json:"parked,omitempty"`
	Parks       int               `json:"parks,omitempty"` // of the current attempt
	// IdempotencyKey is always set, so that receivers of deliveries recognize the task after an import.
	IdempotencyKey string        `json:"idempotency_key,omitempty"`
	Values         []valueLine   `json:"values,omitempty"`
	Attempts       []attemptLine `json:"attempts,omitempty"`
}

// keyLine is a unique key that the store keeps until a time, also if its task is deleted before.
type keyLine struct {
	Key       string          `json:"key"`
	Task      holdfast.TaskID `json:"task"`
	CreatedAt time.Time       `json:"created_at"`
	Until     time.Time       `json:"until"`
}

func (k *keyLine) value() store.KeptKey {
	return store.KeptKey{Key: k.Key, Task: k.Task, CreatedAt: storedTime(k.CreatedAt), Until: storedTime(k.Until)}
}

// check returns an error for the first value that no store accepts.
func (k *keyLine) check() error {
	switch {
	case k.Key == "" || len(k.Key) > holdfast.MaxUniqueLength || hasNUL(k.Key):
		return invalidf("the unique key is missing, is longer than %d bytes or contains a NUL character", holdfast.MaxUniqueLength)
	case k.Task <= 0:
		return invalidf("the id of the task is missing")
	case !storable(k.CreatedAt) || !storable(k.Until):
		return invalidf("a time is missing, or not between 1970 and 9999")
	case !k.CreatedAt.Before(k.Until):
		return invalidf("the unique key is kept until a time before it was stored")
	}
	return nil
}

// valueLine is a value that an attempt has stored.
type valueLine struct {
	Name    string    `json:"name"`
	Attempt int       `json:"attempt"`
	Value   string    `json:"value"`
	At      time.Time `json:"at"`
}

type attemptLine struct {
	Attempt    int            `json:"attempt"`
	Event      holdfast.Event `json:"event"`
	Worker     string         `json:"worker"`
	StartedAt  time.Time      `json:"started_at,omitzero"`
	FinishedAt time.Time      `json:"finished_at"`
	Class      string         `json:"class"`
	Error      string         `json:"error"`
	Stack      string         `json:"stack,omitempty"`
	Details    string         `json:"details,omitempty"`
}

// lineOf returns the line of a task in the store with the given incarnation.
func lineOf(r store.Record, incarnation string) line {
	t := &taskLine{
		ID: r.ID, Type: r.Type, Queue: r.Queue, Priority: r.Priority, State: r.State, Payload: string(r.Payload), Unique: r.Unique, Key: r.Key, Topic: r.Topic, Order: r.Order, Leads: r.Leads, Tags: r.Tags, Trace: r.Trace,
		Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, Failures: r.Failures, Crashes: r.Crashes, Deferrals: r.Deferrals,
		NextRunAt: jsonTime(r.NextRunAt), CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		Requeued: r.Requeued, LastError: r.LastError, Parked: r.Parked, Parks: r.Parks, IdempotencyKey: r.Task.WithIncarnation(incarnation).IdempotencyKey(),
	}
	for _, v := range r.Data {
		t.Values = append(t.Values, valueLine{v.Name, v.Attempt, string(v.Value), v.At})
	}
	for _, a := range r.Attempts {
		t.Attempts = append(t.Attempts, attemptLine{
			Attempt: a.Attempt, Event: a.Event, Worker: a.WorkerName, StartedAt: a.StartedAt, FinishedAt: a.FinishedAt,
			Class: a.Class, Error: a.Error, Stack: a.Stack, Details: string(a.Details),
		})
	}
	return line{Task: t}
}

func (t *taskLine) record() store.Record {
	r := store.Record{
		Task: holdfast.Task{
			ID: t.ID, Type: t.Type, Queue: t.Queue, Priority: t.Priority, State: t.State, Payload: json.RawMessage(t.Payload), Unique: t.Unique, Tags: t.Tags, Trace: t.Trace,
			Attempt: t.Attempt, MaxAttempts: t.MaxAttempts, Failures: t.Failures, Crashes: t.Crashes, Deferrals: t.Deferrals,
			NextRunAt: storedTime(t.NextRunAt), CreatedAt: storedTime(t.CreatedAt), StartedAt: storedTime(t.StartedAt), FinishedAt: storedTime(t.FinishedAt),
			LastError: t.LastError, Parked: t.Parked, Key: t.Key, Topic: t.Topic, Ordered: t.Order != 0, Doomed: t.Order == ordered.Doomed, ImportedKey: t.IdempotencyKey,
		},
		Requeued: t.Requeued, Order: t.Order, Leads: t.Leads, Parks: t.Parks,
	}
	for _, v := range t.Values {
		r.Data = append(r.Data, store.Datum{Task: t.ID, Name: v.Name, Attempt: v.Attempt, Value: json.RawMessage(v.Value), At: storedTime(v.At)})
	}
	for _, a := range t.Attempts {
		attempt := holdfast.Attempt{
			Task: t.ID, Attempt: a.Attempt, Event: a.Event, WorkerName: a.Worker, StartedAt: storedTime(a.StartedAt), FinishedAt: storedTime(a.FinishedAt),
			Class: a.Class, Error: a.Error, Stack: a.Stack,
		}
		if a.Details != "" {
			attempt.Details = json.RawMessage(a.Details)
		}
		r.Attempts = append(r.Attempts, attempt)
	}
	return r
}

// jsonTime limits a time to the last year that JSON can represent. A database may have rounded up the end of the year
// 9999.
func jsonTime(t time.Time) time.Time {
	if end := time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC); t.After(end) {
		return end
	}
	return t
}

// storedTime returns a time as stores represent it: in UTC, with microseconds.
func storedTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// check returns an error for the first value that no store accepts.
func (t *taskLine) check() error {
	task := holdfast.NewTask{Type: t.Type, Queue: t.Queue, Priority: t.Priority, Payload: json.RawMessage(t.Payload), Unique: t.Unique, Key: t.Key, Topic: t.Topic, Ordered: t.Order != 0, Tags: t.Tags, Trace: t.Trace}
	switch err := task.Validate(math.MaxInt); {
	case err != nil:
		return err
	case t.ID <= 0:
		return invalidf("the id is missing")
	case t.Queue == "":
		return invalidf("the queue is missing")
	case t.Payload == "":
		return invalidf("the payload is missing")
	case !t.State.Valid() || t.State == holdfast.Running:
		return invalidf("invalid state %.40q", t.State)
	case t.State.Final() == t.FinishedAt.IsZero():
		return invalidf("the state %s contradicts finished_at", t.State)
	case outOfRange(1, t.Attempt) || outOfRange(0, t.MaxAttempts, t.Failures, t.Crashes, t.Deferrals, t.Parks):
		return invalidf("one of attempt, max_attempts, failures, crashes, deferrals and parks is out of range")
	case !storable(t.CreatedAt) || !storable(t.NextRunAt) || !t.StartedAt.IsZero() && !storable(t.StartedAt) || !t.FinishedAt.IsZero() && !storable(t.FinishedAt):
		return invalidf("a time is missing, or not between 1970 and 9999")
	case hasNUL(t.LastError, t.Parked):
		return invalidf("a text contains a NUL character")
	case len(t.IdempotencyKey) > maxKeyLength || strings.ContainsFunc(t.IdempotencyKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		return invalidf("the idempotency key %.120q is longer than %d characters, or contains spaces or non-ASCII characters", t.IdempotencyKey, maxKeyLength)
	}
	for i, v := range t.Values {
		if err := v.check(t.Values[:i]); err != nil {
			return fmt.Errorf("value %d: %w", i+1, err)
		}
	}
	for i, a := range t.Attempts {
		if err := a.check(t.Attempts[:i]); err != nil {
			return fmt.Errorf("attempt record %d: %w", i+1, err)
		}
	}
	return nil
}

// check returns an error for the first part of a value that no store accepts. previous has the values before it.
func (v *valueLine) check(previous []valueLine) error {
	switch {
	case v.Name == "" || len(v.Name) > maxNameLength || hasNUL(v.Name):
		return invalidf("the name is missing, is longer than %d bytes or contains a NUL character", maxNameLength)
	case len(previous) > 0 && v.Name <= previous[len(previous)-1].Name:
		return invalidf("the value %q follows %q, but the names must increase", v.Name, previous[len(previous)-1].Name)
	case outOfRange(1, v.Attempt):
		return invalidf("the attempt %d is out of range", v.Attempt)
	case !storable(v.At):
		return invalidf("the time is missing, or not between 1970 and 9999")
	case !json.Valid([]byte(v.Value)):
		return invalidf("the value is not valid JSON")
	case holdfast.JSONDepth([]byte(v.Value)) > holdfast.MaxPayloadDepth:
		return invalidf("the value has more than %d levels of arrays and objects", holdfast.MaxPayloadDepth)
	}
	return nil
}

// check returns an error for the first value of an attempt that no store accepts. previous has the earlier attempts.
func (a *attemptLine) check(previous []attemptLine) error {
	switch {
	case slices.ContainsFunc(previous, func(b attemptLine) bool { return b.Attempt == a.Attempt && b.Event == a.Event }):
		return invalidf("attempt %d has the event %s twice", a.Attempt, a.Event)
	case outOfRange(1, a.Attempt):
		return invalidf("the attempt %d is out of range", a.Attempt)
	case a.Event == "":
		return invalidf("the event is missing")
	case !storable(a.FinishedAt) || !a.StartedAt.IsZero() && !storable(a.StartedAt):
		return invalidf("a time is missing, or not between 1970 and 9999")
	case hasNUL(string(a.Event), a.Worker, a.Class, a.Error, a.Stack):
		return invalidf("a text contains a NUL character")
	case a.Details != "" && !json.Valid([]byte(a.Details)):
		return invalidf("the details are not valid JSON")
	}
	return nil
}

func invalidf(text string, args ...any) error {
	return fmt.Errorf("%w: %s", holdfast.ErrInvalid, fmt.Sprintf(text, args...))
}

// outOfRange reports whether a number is below least or too large for a column.
func outOfRange(least int, numbers ...int) bool {
	return slices.ContainsFunc(numbers, func(n int) bool { return n < least || n > math.MaxInt32 })
}

// storable reports whether every store can represent the time.
func storable(t time.Time) bool { return t.UnixMicro() > 0 && t.UTC().Year() <= 9999 }

func hasNUL(texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.ContainsRune(text, 0) })
}
