package surface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/search"
)

// NewTask is the JSON form of a new task: a line of "enqueue --jsonl", and the body of POST /tasks.
type NewTask struct {
	Type        string             `json:"type"`
	Payload     json.RawMessage    `json:"payload"`
	Queue       string             `json:"queue"`
	Priority    *holdfast.Priority `json:"priority" doc:"low, normal, high or critical, or a number from 0 to 9."`
	Delay       string             `json:"delay"`
	At          string             `json:"at"`
	MaxAttempts *int               `json:"max_attempts"`
	Unique      string             `json:"unique"`
	Key         string             `json:"key"`
	Ordered     *bool              `json:"ordered" doc:"Whether the task waits for the end of all earlier ordered tasks with the same key."`
	Topic       string             `json:"topic" doc:"The stream that the task belongs to. While tasks of several topics wait, each topic gets its share of the executors."`
	Tags        []string           `json:"tags"`
}

// ParseTask parses a task. Missing keys have the values of defaults. The error text is for the user who wrote the JSON.
func ParseTask(line []byte, defaults holdfast.NewTask) (holdfast.NewTask, error) {
	if !utf8.Valid(line) { // the decoder would silently replace invalid bytes
		return holdfast.NewTask{}, errors.New("not valid UTF-8")
	}
	var l NewTask
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return holdfast.NewTask{}, explainJSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return holdfast.NewTask{}, errors.New("unexpected data after the JSON object")
	}
	if line[0] != '{' { // null decodes without an error
		return holdfast.NewTask{}, errors.New("not a JSON object")
	}
	task := defaults
	if l.Type != "" {
		task.Type = l.Type
	}
	if l.Payload != nil {
		task.Payload = l.Payload
	}
	if l.Queue != "" {
		task.Queue = l.Queue
	}
	if l.Priority != nil {
		task.Priority = *l.Priority
	}
	if l.MaxAttempts != nil {
		if task.MaxAttempts = *l.MaxAttempts; task.MaxAttempts < 1 {
			return task, fmt.Errorf("max_attempts %d must be at least 1", task.MaxAttempts)
		}
	}
	if l.Delay != "" || l.At != "" {
		var err error
		if task.Delay, task.At, err = ParseDelayAndTime(l.Delay, l.At); err != nil {
			return task, err
		}
	}
	task.Unique = l.Unique
	if l.Key != "" {
		task.Key = l.Key
	}
	if l.Ordered != nil {
		task.Ordered = *l.Ordered
	}
	if l.Topic != "" {
		task.Topic = l.Topic
	}
	if l.Tags != nil {
		task.Tags = l.Tags
	}
	return task, nil
}

// explainJSON replaces an error of encoding/json by a text without terms of Go.
func explainJSON(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("a task must be a JSON object, not %s", article(wrong.Value))
		}
		kind := "a string"
		switch wrong.Field {
		case "max_attempts":
			kind = "a whole number"
		case "ordered":
			kind = "true or false"
		case "tags":
			kind = "a list of strings"
		}
		return fmt.Errorf("%s must be %s, not %s", wrong.Field, kind, article(wrong.Value))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("unexpected end of JSON")
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if key, ok := strings.CutPrefix(text, "unknown field "); ok {
		return fmt.Errorf("unknown key %s", key)
	}
	return fmt.Errorf("not valid JSON: %s", text)
}

// article returns the name of a JSON type with its indefinite article.
func article(kind string) string {
	if kind == "array" || kind == "object" {
		return "an " + kind
	}
	return "a " + kind
}

// ParseDelayAndTime parses a delay and a time; an empty text gives a zero value. The error begins with the name of the
// invalid one, "delay" or "at".
func ParseDelayAndTime(delay, at string) (d time.Duration, t time.Time, err error) {
	if delay != "" {
		if d, err = time.ParseDuration(delay); err != nil {
			return 0, time.Time{}, fmt.Errorf("delay %q is not a duration like 90s or 2h", delay)
		}
		if d < 0 {
			return 0, time.Time{}, fmt.Errorf("delay %s is negative", delay)
		}
	}
	if at != "" {
		if t, err = search.Time(at); err != nil {
			return 0, time.Time{}, fmt.Errorf("at %w", err)
		}
	}
	return d, t, nil
}
