package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfastq/holdfast"
)

// Task describes the tasks of a schedule.
type Task struct {
	Type        string            `json:"type"`
	Payload     json.RawMessage   `json:"payload,omitempty"`
	Queue       string            `json:"queue"`
	Priority    holdfast.Priority `json:"priority"`
	MaxAttempts int               `json:"max_attempts,omitempty"`
	Key         string            `json:"key,omitempty"`
	Ordered     bool              `json:"ordered,omitempty"`
	Topic       string            `json:"topic,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
}

// taskFields are the fields of a Task without its methods. A document that contains another one loses the spaces between
// the values of the inner one. So a payload with such spaces is also a text.
type taskFields struct {
	task
	PayloadText string `json:"payload_text,omitempty"`
}

type task Task

// MarshalJSON implements json.Marshaler.
func (t Task) MarshalJSON() ([]byte, error) {
	fields := taskFields{task: task(t)}
	var compact bytes.Buffer
	if len(t.Payload) > 0 && (json.Compact(&compact, t.Payload) != nil || !bytes.Equal(compact.Bytes(), t.Payload)) {
		fields.PayloadText = string(t.Payload)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // a payload keeps its characters
	err := encoder.Encode(fields)
	return bytes.TrimSpace(text.Bytes()), err
}

// UnmarshalJSON implements json.Unmarshaler. A member that this build does not know is an error; see decode.
func (t *Task) UnmarshalJSON(text []byte) error {
	fields := taskFields{task: task(*t)}
	if err := decode(text, &fields); err != nil {
		return err
	}
	if json.Valid([]byte(fields.PayloadText)) {
		fields.Payload = json.RawMessage(fields.PayloadText)
	}
	*t = Task(fields.task)
	return nil
}

// TaskOf returns the description of a new task, without its unique key and its due time.
func TaskOf(t holdfast.NewTask) Task {
	return Task{t.Type, t.Payload, t.Queue, t.Priority, t.MaxAttempts, t.Key, t.Ordered, t.Topic, t.Tags}
}

// New returns a new task.
func (t Task) New() holdfast.NewTask {
	return holdfast.NewTask{
		Type: t.Type, Payload: t.Payload, Queue: t.Queue, Priority: t.Priority, MaxAttempts: t.MaxAttempts, Key: t.Key, Ordered: t.Ordered,
		Topic: t.Topic, Tags: t.Tags,
	}
}

// Duration is a time.Duration with the text form of its method String.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// MaxDuration is the longest duration in a plan. Times and durations of plans are in the range of all others, so their
// sums are exact, and every time has a text.
const MaxDuration = holdfast.MaxDuration

// MaxName is the maximum length of the name of a schedule in bytes.
const MaxName = 100

// CheckName returns an ErrInvalid if no plan can have the name.
func CheckName(name string) error {
	valid := name != "" && len(name) <= MaxName && name[0] != '.'
	for i := range len(name) {
		c := name[i]
		valid = valid && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if !valid {
		return fmt.Errorf("%w: the name %.120q must be 1 to %d letters, digits or . _ -, and not begin with a dot", holdfast.ErrInvalid, name, MaxName)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
}

// decode decodes JSON and returns errUnknown if it has members that this build does not know.
func decode(text json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errUnknown
	}
	return nil
}

// encode returns a value as JSON. The values of this package always marshal.
func encode(value any) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // a payload keeps its characters
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("plan: %v", err))
	}
	return bytes.TrimSpace(text.Bytes())
}

// hash returns a short text that differs between different settings.
func hash(settings any) string {
	sum := sha256.Sum256(encode(settings))
	return hex.EncodeToString(sum[:8])
}
