package surface

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/search"
)

// NewTask is the JSON form of a new task: a line of "enqueue --jsonl", and the body of POST /tasks.
type NewTask struct {
	Type        string             `json:"type"`
	Payload     json.RawMessage    `json:"payload" required:"false"`
	Queue       string             `json:"queue" required:"false"`
	Priority    *holdfast.Priority `json:"priority" required:"false" doc:"low, normal, high or critical, or a number from 0 to 9."`
	Delay       string             `json:"delay" required:"false"`
	At          string             `json:"at" required:"false"`
	MaxAttempts *int               `json:"max_attempts" required:"false"`
	Unique      string             `json:"unique" required:"false"`
	Key         string             `json:"key" required:"false"`
	Ordered     *bool              `json:"ordered" required:"false" doc:"Whether the task waits for the end of all earlier ordered tasks with the same key."`
	Topic       string             `json:"topic" required:"false" doc:"The stream that the task belongs to. While tasks of several topics wait, each topic gets its share of the executors."`
	Tags        []string           `json:"tags" required:"false"`
}

// ParseTask parses a task. Missing keys have the values of defaults. The error text is for the user who wrote the JSON.
func ParseTask(line []byte, defaults holdfast.NewTask) (holdfast.NewTask, error) {
	var l NewTask
	if err := ReadObject(line, "a task", &l); err != nil {
		return holdfast.NewTask{}, err
	}
	task := defaults
	task.Type, task.Queue, task.Unique = cmp.Or(l.Type, task.Type), cmp.Or(l.Queue, task.Queue), l.Unique
	task.Key, task.Topic = cmp.Or(l.Key, task.Key), cmp.Or(l.Topic, task.Topic)
	task.Priority, task.Ordered = *cmp.Or(l.Priority, &task.Priority), *cmp.Or(l.Ordered, &task.Ordered)
	if l.Payload != nil {
		task.Payload = l.Payload
	}
	if l.Tags != nil {
		task.Tags = l.Tags
	}
	if l.MaxAttempts != nil {
		if task.MaxAttempts = *l.MaxAttempts; task.MaxAttempts < 1 {
			return task, fmt.Errorf("max_attempts %d must be at least 1", task.MaxAttempts)
		}
	}
	if l.Delay != "" || l.At != "" {
		var err error
		task.Delay, task.At, err = ParseDelayAndTime(l.Delay, l.At)
		return task, err
	}
	return task, nil
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
