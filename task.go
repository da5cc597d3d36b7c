package holdfast

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// TaskID identifies a task for ever; ids grow but have gaps. In JSON it is a
// string, so that no reader rounds it.
type TaskID int64

// String returns the id in decimal.
func (id TaskID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements encoding.TextMarshaler.
func (id TaskID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *TaskID) UnmarshalText(text []byte) error {
	parsed, err := ParseTaskID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// ParseTaskID reads an id as a person types it: a positive decimal number.
func ParseTaskID(text string) (TaskID, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%w: task id %q is not a positive number", ErrInvalid, text)
	}
	return TaskID(n), nil
}

// RunID identifies one life of one worker process. It is never used again.
// Zero means "no run". In JSON it is a string.
type RunID int64

// String returns the id in decimal.
func (id RunID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements encoding.TextMarshaler.
func (id RunID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *RunID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%w: run id %q is not a number", ErrInvalid, text)
	}
	*id = RunID(n)
	return nil
}

// Limits and defaults of a task. A payload limit of one's own can be set on the
// producer.
const (
	DefaultLane        = "default"
	DefaultMaxAttempts = 10
	DefaultMaxPayload  = 1 << 20 // bytes
	MaxNameLength      = 100     // of a type or lane, in bytes
	MaxUniqueLength    = 255     // of a unique key, in bytes
)

// typeName and laneName say which names are good, but for their length.
func typeName(name string) bool { return madeOf(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "_.:/-") }

func laneName(name string) bool { return madeOf(name, "", "_-") }

// madeOf reports whether a name has only lower-case letters, digits and those others, and none of the inner ones at its start.
func madeOf(name, others, inner string) bool {
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', strings.IndexByte(others, c) >= 0:
		case i > 0 && strings.IndexByte(inner, c) >= 0:
		default:
			return false
		}
	}
	return name != ""
}

// NewTask is what a caller asks for. Type is required, the zero value of
// everything else is a sensible default.
type NewTask struct {
	// Type chooses the handler: letters, digits and . _ : / -, at most
	// MaxNameLength bytes.
	Type string
	// Payload is the handler's input, valid JSON. Empty means null.
	Payload json.RawMessage
	// Lane is the queue the task waits in: lower-case letters, digits, _ and -.
	// Empty means DefaultLane.
	Lane string
	// Delay keeps the task from running before now + Delay by the store's clock.
	// It must not be negative, and not be set together with At.
	Delay time.Duration
	// At keeps the task from running before that moment. A past moment means now.
	At time.Time
	// MaxAttempts is how many failures the task may have before it is dead; 0
	// means the setting of its type.
	MaxAttempts int
	// Unique, if not empty, makes the store refuse a second task with the same
	// key for as long as the first one's row is kept.
	Unique string
}

// Validate reports the first thing that is wrong with the request, as an
// [ErrInvalid] whose text a person can act on. maxPayload is in bytes.
func (n NewTask) Validate(maxPayload int) error {
	switch {
	case n.Type == "":
		return fmt.Errorf("%w: a task needs a type", ErrInvalid)
	case len(n.Type) > MaxNameLength || !typeName(n.Type):
		return fmt.Errorf("%w: task type %.120q must be at most %d letters, digits or . _ : / -", ErrInvalid, n.Type, MaxNameLength)
	case n.Lane != "" && (len(n.Lane) > MaxNameLength || !laneName(n.Lane)):
		return fmt.Errorf("%w: lane %.120q must be at most %d lower-case letters, digits, _ or -", ErrInvalid, n.Lane, MaxNameLength)
	case len(n.Payload) > maxPayload:
		return fmt.Errorf("%w: the payload has %d bytes, the limit is %d; keep large data elsewhere and send a reference", ErrInvalid, len(n.Payload), maxPayload)
	case len(n.Payload) > 0 && !json.Valid(n.Payload):
		return fmt.Errorf("%w: the payload is not valid JSON", ErrInvalid)
	case !utf8.Valid(n.Payload): // which json.Valid lets pass and SQL stores refuse
		return fmt.Errorf("%w: the payload is not valid UTF-8", ErrInvalid)
	case !utf8.ValidString(n.Unique) || strings.ContainsRune(n.Unique, 0):
		return fmt.Errorf("%w: the unique key %.120q is not plain UTF-8 text", ErrInvalid, n.Unique)
	case n.Delay < 0:
		return fmt.Errorf("%w: the delay %s is negative", ErrInvalid, n.Delay)
	case n.Delay > 0 && !n.At.IsZero():
		return fmt.Errorf("%w: give a delay or a time, not both", ErrInvalid)
	case n.At.UTC().Year() > 9999: // which RFC 3339 cannot write
		return fmt.Errorf("%w: the time is after the year 9999", ErrInvalid)
	case n.MaxAttempts < 0 || n.MaxAttempts > math.MaxInt32:
		return fmt.Errorf("%w: max attempts %d must be between 0 and %d", ErrInvalid, n.MaxAttempts, math.MaxInt32)
	case len(n.Unique) > MaxUniqueLength:
		return fmt.Errorf("%w: the unique key has %d bytes, the limit is %d", ErrInvalid, len(n.Unique), MaxUniqueLength)
	}
	return nil
}

// Task is a stored task. Times are UTC and the store's clock; a zero time means
// "not yet". A Task is a snapshot: changing it changes nothing in the store.
type Task struct {
	ID          TaskID          `json:"id"`
	Type        string          `json:"type"`
	Lane        string          `json:"lane"`
	State       State           `json:"state"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	Unique      string          `json:"unique,omitempty"`
	Attempt     int             `json:"attempt"`      // number of the current or next execution, from 1
	MaxAttempts int             `json:"max_attempts"` // failures allowed; 0 means what the settings of its worker say
	Failures    int             `json:"failures"`     // attempts the task itself failed
	Crashes     int             `json:"crashes"`      // attempts that ended with their worker
	Deferrals   int             `json:"deferrals"`    // attempts that asked to come back later
	Run         RunID           `json:"run,omitempty"`
	NextRunAt   time.Time       `json:"next_run_at"`
	CreatedAt   time.Time       `json:"created_at"`
	StartedAt   time.Time       `json:"started_at,omitzero"`  // of the last claim
	FinishedAt  time.Time       `json:"finished_at,omitzero"` // when it reached a final state
	// Buffered says that the worker of a running task claimed it before an executor was free. The handler may not have
	// started.
	Buffered bool `json:"buffered,omitempty"`
	// LastError is the text of the newest failure, at most MaxErrorLength bytes.
	LastError string `json:"last_error,omitempty"`
	// Parked says why a ready task waits although it is due, for example because
	// the worker that took its ticket has no handler for its type.
	Parked string `json:"parked,omitempty"`
	// Key is the idempotency key that the task has brought from another store, and "" for most tasks. Handlers call
	// [Task.IdempotencyKey].
	Key string `json:"idempotency_key,omitempty"`

	incarnation string // see WithIncarnation
}

// Attempt is the record of one attempt that did not end in success.
type Attempt struct {
	Task       TaskID          `json:"task"`
	Attempt    int             `json:"attempt"`
	Event      Event           `json:"event"`
	Run        RunID           `json:"run"`
	Worker     string          `json:"worker"` // name of the process, as in the list of workers
	StartedAt  time.Time       `json:"started_at,omitzero"`
	FinishedAt time.Time       `json:"finished_at"`
	Class      string          `json:"class"` // short and stable: what kind of error
	Error      string          `json:"error"`
	Stack      string          `json:"stack,omitempty"`   // of a panic
	Details    json.RawMessage `json:"details,omitempty"` // what the handler added, for example a response
}
