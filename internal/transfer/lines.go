package transfer

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	format  = "holdfast export"
	version = 1

	longestKey = 255 // idempotency keys are sent in headers
)

// line is one line: exactly one of its fields is set.
type line struct {
	Header *header   `json:"header,omitempty"`
	Task   *taskLine `json:"task,omitempty"`
	End    *Totals   `json:"end,omitempty"`
}

type header struct {
	Format      string    `json:"format"`
	Version     int       `json:"version"`
	Incarnation string    `json:"incarnation"` // of the store that was exported
	ExportedAt  time.Time `json:"exported_at"`
}

// taskLine is a task. JSON that belongs to the task is text, so that it stays as it is to the last character.
type taskLine struct {
	ID          holdfast.TaskID `json:"id"`
	Type        string          `json:"type"`
	Queue       string          `json:"queue"`
	State       holdfast.State  `json:"state"`
	Payload     string          `json:"payload"`
	Unique      string          `json:"unique_key,omitempty"`
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"max_attempts"`
	Failures    int             `json:"failures,omitempty"`
	Crashes     int             `json:"crashes,omitempty"`
	Deferrals   int             `json:"deferrals,omitempty"`
	NextRunAt   time.Time       `json:"next_run_at"`
	CreatedAt   time.Time       `json:"created_at"`
	StartedAt   time.Time       `json:"started_at,omitzero"`
	FinishedAt  time.Time       `json:"finished_at,omitzero"`
	Requeued    bool            `json:"requeued,omitempty"`
	LastError   string          `json:"last_error,omitempty"`
	Parked      string          `json:"parked,omitempty"`
	Parks       int             `json:"parks,omitempty"` // at this attempt
	// IdempotencyKey is always there, so that receivers of deliveries know the task wherever it goes.
	IdempotencyKey string        `json:"idempotency_key,omitempty"`
	Attempts       []attemptLine `json:"attempts,omitempty"`
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

// lineOf returns the line of a task that is in the store with the incarnation.
func lineOf(r store.Record, incarnation string) line {
	t := &taskLine{
		ID: r.ID, Type: r.Type, Queue: r.Lane, State: r.State, Payload: string(r.Payload), Unique: r.Unique,
		Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, Failures: r.Failures, Crashes: r.Crashes, Deferrals: r.Deferrals,
		NextRunAt: writable(r.NextRunAt), CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		Requeued: r.Again, LastError: r.LastError, Parked: r.Parked, Parks: r.Parks, IdempotencyKey: r.Task.WithIncarnation(incarnation).IdempotencyKey(),
	}
	for _, a := range r.Attempts {
		t.Attempts = append(t.Attempts, attemptLine{
			Attempt: a.Attempt, Event: a.Event, Worker: a.Worker, StartedAt: a.StartedAt, FinishedAt: a.FinishedAt,
			Class: a.Class, Error: a.Error, Stack: a.Stack, Details: string(a.Details),
		})
	}
	return line{Task: t}
}

func (t *taskLine) record() store.Record {
	r := store.Record{
		Task: holdfast.Task{
			ID: t.ID, Type: t.Type, Lane: t.Queue, State: t.State, Payload: json.RawMessage(t.Payload), Unique: t.Unique,
			Attempt: t.Attempt, MaxAttempts: t.MaxAttempts, Failures: t.Failures, Crashes: t.Crashes, Deferrals: t.Deferrals,
			NextRunAt: moment(t.NextRunAt), CreatedAt: moment(t.CreatedAt), StartedAt: moment(t.StartedAt), FinishedAt: moment(t.FinishedAt),
			LastError: t.LastError, Parked: t.Parked, Key: t.IdempotencyKey,
		},
		Again: t.Requeued, Parks: t.Parks,
	}
	for _, a := range t.Attempts {
		attempt := holdfast.Attempt{
			Task: t.ID, Attempt: a.Attempt, Event: a.Event, Worker: a.Worker, StartedAt: moment(a.StartedAt), FinishedAt: moment(a.FinishedAt),
			Class: a.Class, Error: a.Error, Stack: a.Stack,
		}
		if a.Details != "" {
			attempt.Details = json.RawMessage(a.Details)
		}
		r.Attempts = append(r.Attempts, attempt)
	}
	return r
}

// writable is a time that JSON can hold. A server may have rounded the end of the year 9999 up.
func writable(t time.Time) time.Time {
	if end := time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC); t.After(end) {
		return end
	}
	return t
}

// moment is a time as stores keep it.
func moment(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// check reports the first thing that no store can hold.
func (t *taskLine) check() error {
	asked := holdfast.NewTask{Type: t.Type, Lane: t.Queue, Payload: json.RawMessage(t.Payload), Unique: t.Unique}
	switch err := asked.Validate(math.MaxInt); {
	case err != nil:
		return err
	case t.ID <= 0:
		return invalid("the id is missing")
	case t.Queue == "":
		return invalid("the queue is missing")
	case t.Payload == "":
		return invalid("the payload is missing")
	case !t.State.Valid() || t.State == holdfast.Running:
		return invalid("the state is %.40q", t.State)
	case t.State.Final() == t.FinishedAt.IsZero():
		return invalid("the state is %s, which does not go with finished_at", t.State)
	case outside(1, t.Attempt) || outside(0, t.MaxAttempts, t.Failures, t.Crashes, t.Deferrals, t.Parks):
		return invalid("one of attempt, max_attempts, failures, crashes, deferrals and parks is out of range")
	case !stored(t.CreatedAt, t.NextRunAt) || !t.StartedAt.IsZero() && !stored(t.StartedAt) || !t.FinishedAt.IsZero() && !stored(t.FinishedAt):
		return invalid("a time is missing, or not between 1970 and 9999")
	case binary(t.LastError, t.Parked):
		return invalid("a text has a NUL character")
	case len(t.IdempotencyKey) > longestKey || strings.ContainsFunc(t.IdempotencyKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		return invalid("the idempotency key %.120q is not at most %d ASCII characters without space", t.IdempotencyKey, longestKey)
	}
	for i, a := range t.Attempts {
		if err := a.check(t.Attempts[:i]); err != nil {
			return fmt.Errorf("record %d of its attempts: %w", i+1, err)
		}
	}
	return nil
}

// check reports the first thing that no store can hold of an attempt that follows on those before.
func (a *attemptLine) check(before []attemptLine) error {
	for _, other := range before {
		if other.Attempt == a.Attempt && other.Event == a.Event {
			return invalid("attempt %d has two of the event %s", a.Attempt, a.Event)
		}
	}
	switch {
	case outside(1, a.Attempt):
		return invalid("the attempt is %d", a.Attempt)
	case a.Event == "":
		return invalid("the event is missing")
	case !stored(a.FinishedAt) || !a.StartedAt.IsZero() && !stored(a.StartedAt):
		return invalid("a time is missing, or not between 1970 and 9999")
	case binary(string(a.Event), a.Worker, a.Class, a.Error, a.Stack):
		return invalid("a text has a NUL character")
	case a.Details != "" && !json.Valid([]byte(a.Details)):
		return invalid("the details are not valid JSON")
	}
	return nil
}

func invalid(text string, args ...any) error {
	return fmt.Errorf("%w: %s", holdfast.ErrInvalid, fmt.Sprintf(text, args...))
}

// outside reports whether one of the numbers is below the least one, or too large for a column.
func outside(least int, numbers ...int) bool {
	for _, n := range numbers {
		if n < least || n > math.MaxInt32 {
			return true
		}
	}
	return false
}

// stored reports whether every store can hold the times.
func stored(times ...time.Time) bool {
	for _, t := range times {
		if t = t.UTC(); t.UnixMicro() <= 0 || t.Year() > 9999 {
			return false
		}
	}
	return true
}

func binary(texts ...string) bool {
	for _, text := range texts {
		if strings.ContainsRune(text, 0) {
			return true
		}
	}
	return false
}
