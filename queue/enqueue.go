package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
)

// Result says where a task is. Duplicate means that another task has the unique key: ID is that task, and nothing was
// stored.
type Result = producer.Result

// TaskError is the error of one task of EnqueueMany. TaskErrors names the tasks that were not stored; all others were.
type (
	TaskError  = producer.TaskError
	TaskErrors = producer.TaskErrors
)

// NewTask is one task of EnqueueMany: the arguments of Enqueue.
type NewTask struct {
	Type    string
	Payload any
	Options []TaskOption
}

// TaskOption is an option of Enqueue.
type TaskOption interface {
	applyToTask(*holdfast.NewTask) error
}

type taskOption func(*holdfast.NewTask) error

func (f taskOption) applyToTask(t *holdfast.NewTask) error { return f(t) }

// In keeps the task from running before d has passed, by the store's clock.
func In(d time.Duration) TaskOption {
	return taskOption(func(t *holdfast.NewTask) error {
		t.Delay = d
		return nil
	})
}

// At keeps the task from running before a time. A time in the past means now.
func At(moment time.Time) TaskOption {
	return taskOption(func(t *holdfast.NewTask) error {
		t.At = moment
		return nil
	})
}

// Unique makes the store refuse a second task with the same key while the first one is kept: until it has been done for a
// week, by default. A second call of Enqueue is then no error, and its Result is a Duplicate.
func Unique(key string) TaskOption {
	return taskOption(func(t *holdfast.NewTask) error {
		if key == "" {
			return fmt.Errorf("%w: the unique key is empty", holdfast.ErrInvalid)
		}
		t.Unique = key
		return nil
	})
}

// TypeTaskOption is an option of Handle for all tasks of a type, and of Enqueue for one task.
type TypeTaskOption interface {
	TypeOption
	TaskOption
}

// MaxAttempts is how many failures a task may have before it is dead. With Enqueue it is the task's own limit, which wins
// over that of its type.
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

// Queue names the queue in which a task waits, "default" by default. With Handle it holds for the tasks of the type that
// this client stores.
func Queue(name string) TypeTaskOption { return queueName(name) }

type queueName string

func (q queueName) applyToType(t *typeOptions) error {
	t.settings.Lane = string(q)
	return checkQueue(string(q))
}

func (q queueName) applyToTask(t *holdfast.NewTask) error {
	t.Lane = string(q)
	return checkQueue(string(q))
}

// Enqueue stores one task. The payload is encoded as JSON; json.RawMessage is stored as it is, and nil means null. Calls at
// the same time share a transaction. The client publishes the task after Enqueue has returned.
//
// Returns ErrInvalid if the task can never be accepted, and ErrUnavailable if the store cannot be reached. If ctx ends while
// the task is on its way, the task may be stored or not; with a [Unique] key it is safe to call again.
func (c *Client) Enqueue(ctx context.Context, taskType string, payload any, opts ...TaskOption) (Result, error) {
	task, err := c.newTask(NewTask{taskType, payload, opts})
	if err != nil {
		return Result{}, fmt.Errorf("enqueue: %w", err)
	}
	return c.producer.Enqueue(ctx, task)
}

// EnqueueMany stores many tasks with few statements. The results are in the order of the tasks.
//
// The error is a *TaskError if a task is wrong; then nothing was stored. It is a TaskErrors if the store refused the tasks
// that it names and stored all others. After any other error there are results only for the leading tasks that are stored
// for certain.
func (c *Client) EnqueueMany(ctx context.Context, tasks []NewTask) ([]Result, error) {
	list, err := c.newTasks(tasks)
	if err != nil {
		return nil, err
	}
	return c.producer.EnqueueMany(ctx, list)
}

func (c *Client) newTasks(tasks []NewTask) ([]holdfast.NewTask, error) {
	list := make([]holdfast.NewTask, len(tasks))
	for i, task := range tasks {
		var err error
		if list[i], err = c.newTask(task); err != nil {
			return nil, &TaskError{Index: i, Err: err}
		}
	}
	return list, nil
}

// newTask is the task in the domain's form, in the queue of its type. The producer validates it.
func (c *Client) newTask(n NewTask) (holdfast.NewTask, error) {
	task, err := n.Complete()
	if err == nil && task.Lane == "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		task.Lane = c.handlers[n.Type].settings.Lane
	}
	return task, err
}

// Complete returns the task in the form that package producer takes. The queue and the limit of attempts are empty if no
// option names them. Returns ErrInvalid if the payload cannot be encoded or an option is wrong.
func (n NewTask) Complete() (holdfast.NewTask, error) {
	task := holdfast.NewTask{Type: n.Type}
	if n.Payload != nil {
		encoded, err := json.Marshal(n.Payload)
		if err != nil {
			return task, fmt.Errorf("%w: the payload cannot be encoded: %w", holdfast.ErrInvalid, err)
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

// Tx stores tasks inside a transaction of the caller. Make one with [Client.Tx].
type Tx struct {
	client *Client
	tx     store.Tx
}

// Tx returns what stores tasks inside tx: a *sql.Tx, a *sqlx.Tx or anything with their two methods, on the database of the
// store. The tasks exist exactly if tx commits. A janitor publishes them as soon as it has. Package pgxqueue does the same
// for pgx.
//
// In a file, tx is a transaction of the driver modernc.org/sqlite on that file, opened with _txlock=immediate.
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
		return nil, fmt.Errorf("enqueue in a transaction: %w: the transaction is nil", holdfast.ErrInvalid)
	}
	list, err := t.client.newTasks(tasks)
	if err != nil {
		return nil, err
	}
	return t.client.producer.EnqueueTx(ctx, t.tx, list...)
}
