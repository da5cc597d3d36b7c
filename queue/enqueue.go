package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
)

// Result is the result of storing a task. If Duplicate is set, another task has the unique key, and nothing was stored.
// ID is then the id of that other task, and State its state. State is empty if the store has deleted that task and keeps
// its key for the time of [For].
type Result = producer.Result

// TaskError is the error of one task of EnqueueMany. TaskErrors lists the tasks that were not stored; all other tasks
// were stored.
type (
	TaskError  = producer.TaskError
	TaskErrors = producer.TaskErrors
)

// NewTask is one task of EnqueueMany. Its fields are the arguments of Enqueue.
type NewTask struct {
	Type    string
	Payload any
	Options []TaskOption
}

// TaskOption is an option of Enqueue, and of Cron and Every unless it sets a due time or a unique key.
type TaskOption interface {
	ScheduleOption
	applyToTask(*holdfast.NewTask) error
}

type taskOption func(*holdfast.NewTask) error

func (f taskOption) applyToTask(t *holdfast.NewTask) error { return f(t) }

// In delays the task by d, measured by the store's clock. A handler does not start earlier.
func In(d time.Duration) TaskOption {
	return taskOption(func(t *holdfast.NewTask) error {
		t.Delay = d
		return nil
	})
}

// At delays the task until t. A handler does not start earlier. A time in the past means that the task is due at once.
func At(t time.Time) TaskOption {
	return taskOption(func(task *holdfast.NewTask) error {
		task.At = t
		return nil
	})
}

// Unique makes the store refuse a second task with the same key while it keeps the first one, or as long as [For] or
// [WhileOpen] says. By default the store keeps a task for a week after it is done. If the store refuses a task, Enqueue
// returns no error, and the Result has Duplicate set.
func Unique(key string, until ...UniqueOption) TaskOption {
	return taskOption(func(t *holdfast.NewTask) error {
		if t.Unique = key; key == "" {
			return fmt.Errorf("%w: the unique key is empty", holdfast.ErrInvalid)
		}
		for _, option := range until {
			option.apply(t)
		}
		if len(until) > 0 && !t.ReleasesKey() {
			return fmt.Errorf("%w: the time for which the unique key is held must be positive", holdfast.ErrInvalid)
		}
		return nil
	})
}

// UniqueOption is an option of Unique. The store removes the key from the first task when it stores the next one.
type UniqueOption struct{ apply func(*holdfast.NewTask) }

// For means that a task that was stored d ago, by the store's clock, no longer has its unique key. The store keeps the key
// of this task for d, also if it deletes the task before. A person who deletes the task frees its key.
func For(d time.Duration) UniqueOption {
	return UniqueOption{func(t *holdfast.NewTask) { t.UniqueFor = d }}
}

// WhileOpen means that a task that is done, dead or cancelled no longer has its unique key. The next task may start
// while a dead task that a person retries runs again.
func WhileOpen() UniqueOption {
	return UniqueOption{func(t *holdfast.NewTask) { t.UniqueWhileOpen = true }}
}

// Key names the purpose of the task, such as a tenant or an endpoint. Many tasks can have the same key. People can
// pause a key and find its tasks.
func Key(key string) TaskOption {
	return taskOption(func(t *holdfast.NewTask) error {
		t.Key = key
		return holdfast.CheckKey(key)
	})
}

// Ordered sets the key of the task, and makes the task one of a sequence. The ordered tasks of a key start one after
// the other, in the order in which they were stored. A task must end before the next one starts. AfterDeath decides
// what happens after a task that fails for good.
func Ordered(key string) TaskOption {
	return taskOption(func(t *holdfast.NewTask) error {
		t.Key, t.Ordered = key, true
		return holdfast.CheckKey(key)
	})
}

// Topic sets the stream of the task. While tasks of several topics wait, each topic gets its share of the executors.
// See holdfast.NewTask.
func Topic(topic string) TaskOption {
	return taskOption(func(t *holdfast.NewTask) error {
		t.Topic = topic
		return holdfast.CheckTopic(topic)
	})
}

// Priority sets the priority of the task. The default is holdfast.PriorityNormal.
func Priority(p holdfast.Priority) TaskOption {
	return taskOption(func(t *holdfast.NewTask) error {
		t.Priority = p
		return nil
	})
}

// Tags adds tags to the task, by which people find it. See [holdfast.NewTask] for the allowed characters.
func Tags(tags ...string) TaskOption {
	return taskOption(func(t *holdfast.NewTask) error {
		t.Tags = append(t.Tags, tags...)
		return nil
	})
}

// TypeTaskOption is an option of Handle, for all tasks of a type, and of Enqueue, for one task.
type TypeTaskOption interface {
	TypeOption
	TaskOption
}

// MaxAttempts sets how many attempts of a task may fail before the task is dead; n must be at least 1. With Enqueue it
// sets the task's own limit, which overrides the limit of the type.
func MaxAttempts(n int) TypeTaskOption { return maxAttempts(n) }

type maxAttempts int

func (n maxAttempts) check() error {
	if n < 1 {
		return fmt.Errorf("%w: max attempts %d must be at least 1", holdfast.ErrInvalid, n)
	}
	return nil
}

func (n maxAttempts) applyToType(t *typeOptions) error {
	t.settings.Policy.MaxAttempts = int(n)
	return n.check()
}

func (n maxAttempts) applyToTask(t *holdfast.NewTask) error {
	t.MaxAttempts = int(n)
	return n.check()
}

// Queue sets the queue of a task. The default is the queue of the type, or else "default". With Handle it applies to
// the tasks of the type that this client stores.
func Queue(name string) TypeTaskOption { return queueName(name) }

type queueName string

func (q queueName) applyToType(t *typeOptions) error {
	t.settings.Queue = string(q)
	return checkQueue(string(q))
}

func (q queueName) applyToTask(t *holdfast.NewTask) error {
	t.Queue = string(q)
	return checkQueue(string(q))
}

// Enqueue stores one task. It encodes the payload as JSON without the escapes of HTML, and stores nil as null. If the
// payload or what it points to is a [json.Marshaler], such as a json.RawMessage, Enqueue stores the JSON that
// MarshalJSON returns byte for byte. If raw JSON is inside another value, package json removes its white space.
//
// Concurrent calls share a transaction. The client publishes the task after Enqueue has returned.
//
// Enqueue returns ErrInvalid if the task can never be accepted, and ErrUnavailable if the store cannot be reached. If
// ctx ends before the store has answered, the task may or may not be stored. With a [Unique] key it is safe to repeat
// the call.
func (c *Client) Enqueue(ctx context.Context, taskType string, payload any, opts ...TaskOption) (Result, error) {
	task, err := NewTask{taskType, payload, opts}.Complete()
	if err != nil {
		return Result{}, fmt.Errorf("enqueue: %w", err)
	}
	return c.producer.Enqueue(ctx, task)
}

// EnqueueMany stores many tasks with few statements. The results are in the order of the tasks.
//
// If a task is invalid, EnqueueMany stores nothing and returns a *TaskError. If the store refuses some tasks and stores
// all others, EnqueueMany returns a TaskErrors, which lists the refused ones. After any other error the results cover
// only the leading tasks that are certainly stored.
func (c *Client) EnqueueMany(ctx context.Context, tasks []NewTask) ([]Result, error) {
	list, err := newTasks(tasks)
	if err != nil {
		return nil, err
	}
	return c.producer.EnqueueMany(ctx, list)
}

// newTasks converts tasks for the producer, which validates them.
func newTasks(tasks []NewTask) ([]holdfast.NewTask, error) {
	list := make([]holdfast.NewTask, len(tasks))
	for i, task := range tasks {
		var err error
		if list[i], err = task.Complete(); err != nil {
			return nil, &TaskError{Index: i, Err: err}
		}
	}
	return list, nil
}

// Complete returns the task in the form for package producer. If no option sets them, the queue is empty and the limit
// of attempts is 0. Complete returns ErrInvalid if the payload cannot be encoded or an option is wrong.
func (n NewTask) Complete() (holdfast.NewTask, error) {
	task := holdfast.NewTask{Type: n.Type}
	if n.Payload != nil {
		encoded, err := encode(n.Payload)
		if err != nil {
			return task, fmt.Errorf("%w: encode payload: %w", holdfast.ErrInvalid, err)
		}
		task.Payload = encoded
	}
	for _, option := range n.Options {
		if option == nil {
			continue
		}
		if err := option.applyToTask(&task); err != nil {
			return task, err
		}
	}
	return task, nil
}

// encode returns a payload as JSON. It keeps every byte of raw JSON, because a signature may cover them. The result
// shares no memory with the payload, which the caller may change while the task is being stored.
func encode(payload any) (json.RawMessage, error) {
	raw, isRaw, err := rawJSON(payload)
	if err != nil {
		return nil, err
	}
	if isRaw {
		if err := json.Unmarshal(raw, new(json.RawMessage)); err != nil { // returns an error that names the problem and its position
			return nil, err
		}
		return bytes.Clone(raw), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(payload); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// maxPointers is the maximum number of pointers that rawJSON follows. Package json reports a cycle of pointers.
const maxPointers = 100

// rawJSON returns the JSON of a json.Marshaler, or of one to which payload points. isRaw is false for other values, and
// for nil.
func rawJSON(payload any) (raw []byte, isRaw bool, err error) {
	v := reflect.ValueOf(payload)
	for range maxPointers {
		pointer := v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface
		if pointer && v.IsNil() {
			return nil, false, nil
		}
		if v.Type().Implements(reflect.TypeFor[json.Marshaler]()) {
			raw, err = v.Interface().(json.Marshaler).MarshalJSON()
			return raw, true, err
		}
		if !pointer {
			return nil, false, nil
		}
		v = v.Elem()
	}
	return nil, false, nil
}

// Tx stores tasks inside a transaction of the caller. Make one with [Client.Tx].
type Tx struct {
	client *Client
	tx     store.Tx
}

// Tx returns a Tx that stores tasks inside tx, a transaction on the database of the store. tx is a *sql.Tx, a *sqlx.Tx
// or any type with the same two methods. If tx commits, the tasks exist. They usually start a few milliseconds later,
// because the client queries for the commit on a connection of its own. If tx commits more than a second after its
// begin, they start up to 200 ms later. If tx does not commit, no task is stored. For pgx, use package pgxqueue.
//
// If the tasks are in a file, tx must be a transaction of the driver modernc.org/sqlite on that file, opened with
// _txlock=immediate.
func (c *Client) Tx(tx store.Tx) Tx { return Tx{c, tx} }

// Enqueue stores one task inside the transaction. After an error the caller must roll back.
func (t Tx) Enqueue(ctx context.Context, taskType string, payload any, opts ...TaskOption) (Result, error) {
	results, err := t.EnqueueMany(ctx, []NewTask{{taskType, payload, opts}})
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

// EnqueueMany stores tasks inside the transaction. After an error the caller must roll back.
func (t Tx) EnqueueMany(ctx context.Context, tasks []NewTask) ([]Result, error) {
	if t.tx == nil {
		return nil, fmt.Errorf("enqueue in transaction: %w: the transaction is nil", holdfast.ErrInvalid)
	}
	list, err := newTasks(tasks)
	if err != nil {
		return nil, err
	}
	return t.client.producer.EnqueueTx(ctx, t.tx, list...)
}
