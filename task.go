package holdfast

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// TaskID identifies a task. A store never reuses an id. Ids increase, with gaps. In JSON an id is a string, so that no
// reader rounds it.
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

// ParseTaskID parses a task id: a positive decimal number. Returns ErrInvalid if text is anything else.
func ParseTaskID(text string) (TaskID, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%w: task id %q is not a positive number", ErrInvalid, text)
	}
	return TaskID(n), nil
}

// WorkerID identifies one registration of a worker process. A store does not assign an id again, even if it loses
// commits, because the last six digits are random. Zero means "no worker". In JSON an id is a string.
type WorkerID int64

// String returns the id in decimal.
func (id WorkerID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements encoding.TextMarshaler.
func (id WorkerID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *WorkerID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%w: worker id %q is not a number", ErrInvalid, text)
	}
	*id = WorkerID(n)
	return nil
}

// BatchID identifies a batch. Ids increase, with gaps. Zero means "no batch". In JSON an id is a string.
type BatchID int64

// String returns the id in decimal.
func (id BatchID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements encoding.TextMarshaler.
func (id BatchID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *BatchID) UnmarshalText(text []byte) error {
	parsed, err := ParseBatchID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// ParseBatchID parses the id of a batch: a positive decimal number. Returns ErrInvalid if text is anything else.
func ParseBatchID(text string) (BatchID, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%w: batch id %q is not a positive number", ErrInvalid, text)
	}
	return BatchID(n), nil
}

// Limits and defaults of a task. A producer may have another limit for payloads.
const (
	DefaultQueue       = "default"
	DefaultMaxAttempts = 10
	DefaultMaxPayload  = 1 << 20 // bytes
	// MaxPayloadDepth is the maximum nesting of arrays and objects in a payload. Package encoding/json reads 10,000
	// levels, and the documents of the API have a few levels around a payload.
	MaxPayloadDepth = 9990
	MaxNameLength   = 100 // bytes of a type or queue
	MaxUniqueLength = 255 // bytes of a unique key
	MaxKeyLength    = 255 // bytes of a key
	MaxTags         = 16  // tags of a task
	MaxTagLength    = 64  // bytes of a tag
	// MaxTraceLength is the maximum number of bytes of a trace context. It has room for a tracestate of 512 bytes, which
	// every system that continues a trace should pass on.
	MaxTraceLength = 600
)

// typeName reports whether a task type has only valid characters. It does not check the length.
func typeName(name string) bool { return madeOf(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "_.:/-") }

// queueName reports whether the name of a queue has only valid characters. It does not check the length.
func queueName(name string) bool { return madeOf(name, "", "_-") }

// madeOf reports whether a name is not empty and has only lower-case letters, digits and characters in others and
// inner. The first character must not be in inner.
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

// NewTask describes a task to store. Type is required. The zero value of every other field is a default.
type NewTask struct {
	// Type selects the handler. It has letters, digits and . _ : / - and at most MaxNameLength bytes.
	Type string
	// Payload is the input of the handler, valid JSON. Empty means null.
	Payload json.RawMessage
	// Queue is the name of the queue: lower-case letters, digits, _ and -. Empty means the setting of the type.
	Queue string
	// Priority decides which due tasks start first. The zero value is PriorityNormal.
	Priority Priority
	// Delay is how long after its creation the task becomes due, by the clock of the store. It is between 0 and
	// MaxDuration. Delay and At must not both be set.
	Delay time.Duration
	// At is when the task becomes due, in the years from 1970 to 9999. If it is in the past, the task is due at once.
	At time.Time
	// MaxAttempts is the number of failures after which the task is dead. 0 means the setting of the type.
	MaxAttempts int
	// Unique, if not empty, makes the store refuse a second task with the same key while the row of the first task
	// exists. The next two fields make the first task lose its key earlier. Then the store accepts the second task and
	// removes the key from the first one. If both fields are set, either condition is enough.
	//
	// If a janitor deletes a task with UniqueFor and without UniqueWhileOpen, the store keeps its key until UniqueFor has
	// passed. If it deletes another task, or if a person deletes a task, the key is free.
	//
	// Keys that begin with schedule/, slice/, batch/ or shard/ belong to the tasks of schedules, sources, batches and
	// shard jobs. Another task with such a key could stop one of them, or make it run twice.
	Unique string
	// UniqueFor, if not 0, is the time after which a task no longer has the key, counted from when it was stored, by the
	// clock of the store. Janitors may delete the task before; its key stays for that time. It is at most MaxDuration,
	// and requires Unique.
	UniqueFor time.Duration
	// UniqueWhileOpen means that a task that is done, dead or cancelled no longer has the key. It requires Unique.
	UniqueWhileOpen bool
	// Key names the purpose of the task, such as a tenant or an endpoint, in plain text of at most MaxKeyLength bytes.
	// Many tasks can have the same key. A person can pause a key, and the store finds the tasks of a key without a
	// scan.
	Key string
	// Ordered makes the task one of a sequence. The ordered tasks of a key start one after the other, in the order in
	// which they were stored. Ordered requires a Key. While a transaction that stores an ordered task is open, other
	// inserts of ordered tasks of the key wait for it. Policy.AfterDeath decides what happens after a death.
	Ordered bool
	// Topic names the stream of the task, such as a customer or a site, in plain text of at most MaxKeyLength bytes.
	// Any number of topics share a queue. While tasks of several topics wait, the topics start tasks in turn, by their
	// weights. The store also records up to which id the tasks of a topic have started and have ended.
	Topic string
	// Tags are words by which people find the task, at most MaxTags different ones. A tag has at most MaxTagLength
	// bytes of printable characters, without space, comma, quote or backslash. The store finds tasks by tag without a
	// scan.
	Tags []string
	// Trace is the context of the trace that the task belongs to; see CheckTrace. Handlers continue the trace. Empty
	// means none.
	Trace string
}

// Validate returns an [ErrInvalid] that describes the first problem of the task, or nil. maxPayload is in bytes.
func (n NewTask) Validate(maxPayload int) error { return n.validate(maxPayload) }

// validate is Validate without a copy.
func (n *NewTask) validate(maxPayload int) error {
	switch {
	case n.Type == "":
		return fmt.Errorf("%w: a task needs a type", ErrInvalid)
	case len(n.Type) > MaxNameLength || !typeName(n.Type):
		return fmt.Errorf("%w: task type %.120q must be at most %d letters, digits or . _ : / -", ErrInvalid, n.Type, MaxNameLength)
	case n.Queue != "" && (len(n.Queue) > MaxNameLength || !queueName(n.Queue)):
		return fmt.Errorf("%w: queue %.120q must be at most %d lower-case letters, digits, _ or -", ErrInvalid, n.Queue, MaxNameLength)
	case !n.Priority.valid():
		return fmt.Errorf("%w: priority %d is unknown; use PriorityLow to PriorityCritical", ErrInvalid, n.Priority)
	case len(n.Payload) > maxPayload:
		return fmt.Errorf("%w: the payload has %d bytes, the limit is %d; keep large data elsewhere and send a reference", ErrInvalid, len(n.Payload), maxPayload)
	case len(n.Payload) > 0 && !json.Valid(n.Payload):
		return fmt.Errorf("%w: the payload is not valid JSON", ErrInvalid)
	case len(n.Payload) > 2*MaxPayloadDepth && JSONDepth(n.Payload) > MaxPayloadDepth: // a shorter payload cannot be nested too deep
		return fmt.Errorf("%w: the payload has more than %d levels of arrays and objects", ErrInvalid, MaxPayloadDepth)
	case !utf8.Valid(n.Payload): // json.Valid accepts invalid UTF-8, and SQL stores refuse it
		return fmt.Errorf("%w: the payload is not valid UTF-8", ErrInvalid)
	case !utf8.ValidString(n.Unique) || strings.ContainsRune(n.Unique, 0):
		return fmt.Errorf("%w: the unique key %.120q is not plain UTF-8 text", ErrInvalid, n.Unique)
	case n.Unique == "" && (n.UniqueFor != 0 || n.UniqueWhileOpen):
		return fmt.Errorf("%w: a task that is unique for a time or while it is open needs a unique key", ErrInvalid)
	case n.Delay > 0 && !n.At.IsZero():
		return fmt.Errorf("%w: give a delay or a time, not both", ErrInvalid)
	case n.MaxAttempts < 0 || n.MaxAttempts > math.MaxInt32:
		return fmt.Errorf("%w: max attempts %d must be between 0 and %d", ErrInvalid, n.MaxAttempts, math.MaxInt32)
	case len(n.Unique) > MaxUniqueLength:
		return fmt.Errorf("%w: the unique key has %d bytes, the limit is %d", ErrInvalid, len(n.Unique), MaxUniqueLength)
	case n.Ordered && n.Key == "":
		return fmt.Errorf("%w: an ordered task needs a key, because the ordered tasks of a key run one after the other", ErrInvalid)
	}
	err := cmp.Or(CheckDuration("the delay", n.Delay), CheckTime("the time", n.At), CheckDuration("the time of the unique key", n.UniqueFor))
	if err != nil {
		return err
	}
	if n.Key != "" {
		if err := CheckKey(n.Key); err != nil {
			return err
		}
	}
	if n.Topic != "" {
		if err := CheckTopic(n.Topic); err != nil {
			return err
		}
	}
	if n.Trace != "" {
		if err := CheckTrace(n.Trace); err != nil {
			return err
		}
	}
	return checkTags(n.Tags)
}

// Complete validates the task and sets the defaults of its type. maxPayload is in bytes. check, if not nil, checks the
// payload.
func (n *NewTask) Complete(settings *TypeSettings, maxPayload int, check func(payload []byte) error) error {
	if err := n.validate(maxPayload); err != nil {
		return err
	}
	if check != nil {
		if err := check(n.Payload); err != nil {
			return err
		}
	}
	n.Queue = cmp.Or(n.Queue, settings.Queue)
	n.MaxAttempts = cmp.Or(n.MaxAttempts, settings.Policy.MaxAttempts)
	if len(n.Payload) == 0 {
		n.Payload = []byte("null")
	}
	return nil
}

// JSONDepth returns the maximum nesting of arrays and objects in a valid JSON value.
func JSONDepth(value []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\':
			i++ // in JSON, only strings contain backslashes
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// ReleasesKey reports whether an earlier task may lose the unique key of the task; see UniqueFor and UniqueWhileOpen.
func (n *NewTask) ReleasesKey() bool { return n.UniqueFor != 0 || n.UniqueWhileOpen }

// KeepsKey reports whether the store keeps the unique key of the task for UniqueFor, also if janitors delete the task
// before. With UniqueWhileOpen it does not, because a deleted task has ended.
func (n *NewTask) KeepsKey() bool { return n.UniqueFor != 0 && !n.UniqueWhileOpen }

// Subqueue returns the name of the subqueue of the task. Its queue must be set.
func (n *NewTask) Subqueue() string { return Subqueue(n.Queue, n.Priority) }

// CheckKey returns an ErrInvalid if no task can have the key; see NewTask.
func CheckKey(key string) error { return checkLabel("key", key) }

// CheckTopic returns an ErrInvalid if no task can have the topic; see NewTask.
func CheckTopic(topic string) error { return checkLabel("topic", topic) }

// checkLabel checks the text of a key or a topic. what is its name in errors.
func checkLabel(what, text string) error {
	switch {
	case text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%w: the %s %.120q must be UTF-8 text without control characters, and not empty", ErrInvalid, what, text)
	case len(text) > MaxKeyLength:
		return fmt.Errorf("%w: the %s has %d bytes, the limit is %d", ErrInvalid, what, len(text), MaxKeyLength)
	}
	return nil
}

func checkTags(tags []string) error {
	if len(tags) > MaxTags {
		return fmt.Errorf("%w: the task has %d tags, the limit is %d", ErrInvalid, len(tags), MaxTags)
	}
	for i, tag := range tags {
		if err := CheckTag(tag); err != nil {
			return err
		}
		if slices.Contains(tags[:i], tag) {
			return fmt.Errorf("%w: the tag %s appears twice", ErrInvalid, tag)
		}
	}
	return nil
}

// CheckTag returns an ErrInvalid if no task can have the tag; see NewTask.
func CheckTag(tag string) error {
	if tag == "" || len(tag) > MaxTagLength || !utf8.ValidString(tag) ||
		strings.ContainsFunc(tag, func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(" ,\"'`\\", r) }) {
		return fmt.Errorf("%w: the tag %.120q must be 1 to %d bytes of printable characters without spaces, commas, quotes and backslashes", ErrInvalid, tag, MaxTagLength)
	}
	return nil
}

// CheckTrace returns an ErrInvalid if no task can have the trace context. A trace context is the value of the header
// traceparent of the W3C recommendation Trace Context, or that value, a space and the value of the header tracestate. It
// has printable ASCII characters, and at most MaxTraceLength bytes.
func CheckTrace(trace string) error {
	switch {
	case len(trace) > MaxTraceLength:
		return fmt.Errorf("%w: the trace context has %d bytes, the limit is %d", ErrInvalid, len(trace), MaxTraceLength)
	case !traceParent.MatchString(trace) || strings.ContainsFunc(trace, func(r rune) bool { return r < ' ' || r > '~' }):
		return fmt.Errorf("%w: the trace context %.120q must begin with a W3C traceparent, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", ErrInvalid, trace)
	}
	return nil
}

// traceParent is the beginning of a trace context: the version, the id of the trace, the id of the span, and the flags.
// A later version of the recommendation may add fields after a hyphen.
var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[^ ]*)?( |$)`)

// Task is a stored task. Times are in UTC and from the clock of the store; a zero time means "not yet". A Task is a
// snapshot: a change to it does not change the store.
type Task struct {
	ID          TaskID          `json:"id"`
	Type        string          `json:"type"`
	Queue       string          `json:"queue"`
	Priority    Priority        `json:"priority"`
	State       State           `json:"state"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	Unique      string          `json:"unique,omitempty"`
	Key         string          `json:"key,omitempty"`
	Ordered     bool            `json:"ordered,omitempty"` // see NewTask.Ordered
	Topic       string          `json:"topic,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Trace       string          `json:"trace,omitempty"` // see NewTask.Trace
	Attempt     int             `json:"attempt"`         // number of the current or next execution, from 1
	MaxAttempts int             `json:"max_attempts"`    // failures allowed; 0 means the worker's setting for the type
	Failures    int             `json:"failures"`        // attempts in which the task itself failed
	Crashes     int             `json:"crashes"`         // attempts during which the worker crashed
	Deferrals   int             `json:"deferrals"`       // attempts that ended with Defer
	Worker      WorkerID        `json:"worker,omitempty"`
	NextRunAt   time.Time       `json:"next_run_at"`
	CreatedAt   time.Time       `json:"created_at"`
	StartedAt   time.Time       `json:"started_at,omitzero"`  // time of the last claim
	FinishedAt  time.Time       `json:"finished_at,omitzero"` // when the task reached a final state
	// Batch is the batch that the task belongs to, or 0. A claim does not read it, so a handler does not get it.
	Batch BatchID `json:"batch,omitempty"`
	// Buffered means that the worker claimed the task before an executor was free. The handler may not have started.
	Buffered bool `json:"buffered,omitempty"`
	// Doomed means that an earlier ordered task of the key is dead, and that its policy makes this task die too. The
	// worker that claims the task gives it up without calling the handler. See AfterDeathDead.
	Doomed bool `json:"doomed,omitempty"`
	// LastError is the text of the latest failure, at most MaxErrorLength bytes.
	LastError string `json:"last_error,omitempty"`
	// Parked is the reason why a ready task waits although it is due. For example, the worker that received its ticket
	// has no handler for its type.
	Parked string `json:"parked,omitempty"`
	// ImportedKey is the idempotency key of a task that was imported from another store, and "" for all other tasks.
	// Handlers use [Task.IdempotencyKey].
	ImportedKey string `json:"idempotency_key,omitempty"`

	incarnation string // see WithIncarnation
}

// Subqueue returns the name of the subqueue of the task.
func (t *Task) Subqueue() string { return Subqueue(t.Queue, t.Priority) }

// Attempt is the record of one attempt. Policy.KeepAttempts selects the attempts that have a record.
type Attempt struct {
	Task       TaskID          `json:"task"`
	Attempt    int             `json:"attempt"`
	Event      Event           `json:"event"`
	Worker     WorkerID        `json:"worker"`
	WorkerName string          `json:"worker_name"` // as in the list of workers
	StartedAt  time.Time       `json:"started_at,omitzero"`
	FinishedAt time.Time       `json:"finished_at"`
	Class      string          `json:"class"` // short, stable name for the kind of error; empty for a success
	Error      string          `json:"error"`
	Stack      string          `json:"stack,omitempty"`   // stack of a panic
	Details    json.RawMessage `json:"details,omitempty"` // from Detailed, for example a response
}

// Report returns the report from which the attempt was recorded.
func (a *Attempt) Report() Report {
	return Report{Class: a.Class, Error: a.Error, Stack: a.Stack, Details: a.Details}
}
