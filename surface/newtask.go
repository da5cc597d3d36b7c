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
	Type        string             `json:"type" flag:"TYPE" doc:"The type of the task, which selects the handler; http is built in."`
	Payload     json.RawMessage    `json:"payload" required:"false"`
	Queue       string             `json:"queue" flag:"QUEUE" required:"false" doc:"The queue of the task; default the queue of the type."`
	Priority    *holdfast.Priority `json:"priority" flag:"PRIORITY" required:"false" doc:"The priority of the task: low, normal, high or critical, or a number from 0 to 9; default normal."`
	Delay       string             `json:"delay" flag:"DURATION" required:"false" doc:"Run no earlier than so long from now, for example 90s."`
	At          string             `json:"at" flag:"TIME" required:"false" doc:"Run no earlier than this time: 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z; without a zone, local time."`
	MaxAttempts *int               `json:"max_attempts" flag:"N" required:"false" minimum:"1" doc:"The task is dead after so many failed attempts; default the limit of the type."`
	Unique      string             `json:"unique" flag:"KEY" required:"false" doc:"Store nothing if the store has a task with the same unique key."`
	UniqueFor   string             `json:"unique_for" flag:"DURATION" required:"false" doc:"A task that was stored so long ago no longer has the unique key, and the key of this task is kept for that time, for example 24h."`
	UniqueOpen  *bool              `json:"unique_while_open" flag:"-" required:"false" doc:"A task that is done, dead or cancelled no longer has the unique key."`
	Key         string             `json:"key" flag:"KEY" required:"false" doc:"What the task is for, such as a tenant; people can pause a key and find its tasks."`
	Ordered     *bool              `json:"ordered" flag:"-" required:"false" doc:"Start the task after all earlier ordered tasks with the same key."`
	Topic       string             `json:"topic" flag:"TOPIC" required:"false" doc:"The stream that the task belongs to; while tasks of several topics wait, each topic gets its share of the executors."`
	Tags        []string           `json:"tags" required:"false" doc:"Words by which to find the task."`
}

// ParseTask parses a task. Missing keys have the values of defaults. The text of an error is for the author of the
// JSON.
func ParseTask(line []byte, defaults holdfast.NewTask) (holdfast.NewTask, error) {
	var l NewTask
	if err := ReadObject(line, "a task", &l); err != nil {
		return holdfast.NewTask{}, err
	}
	return l.Task(defaults)
}

// Task returns the task that the request describes. Missing members have the values of defaults. An error begins with
// the name of the invalid member.
func (l NewTask) Task(defaults holdfast.NewTask) (holdfast.NewTask, error) {
	task := defaults
	task.Type, task.Queue, task.Unique = cmp.Or(l.Type, task.Type), cmp.Or(l.Queue, task.Queue), l.Unique
	task.Key, task.Topic = cmp.Or(l.Key, task.Key), cmp.Or(l.Topic, task.Topic)
	task.Priority, task.Ordered = *cmp.Or(l.Priority, &task.Priority), *cmp.Or(l.Ordered, &task.Ordered)
	task.UniqueWhileOpen = *cmp.Or(l.UniqueOpen, &task.UniqueWhileOpen)
	if l.UniqueFor != "" {
		var err error
		if task.UniqueFor, err = time.ParseDuration(l.UniqueFor); err != nil || task.UniqueFor <= 0 {
			return task, fmt.Errorf("unique_for %q is not a duration like 90s or 24h", l.UniqueFor)
		}
	}
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
		task.Delay, task.At, err = parseDelayAndTime(l.Delay, l.At)
		return task, err
	}
	return task, nil
}

// parseDelayAndTime parses a delay and a time. An empty text gives a zero value. The error begins with "delay" or "at".
func parseDelayAndTime(delay, at string) (d time.Duration, t time.Time, err error) {
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
