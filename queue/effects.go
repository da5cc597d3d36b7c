package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/effect"
	"github.com/holdfastq/holdfast/store"
)

// Output sets the output of the task whose handler got ctx. The store keeps it together with the success of the
// attempt, or not at all. A later call replaces it. [OutputOf] reads it, as long as the store keeps the task.
//
// Output returns ErrInvalid if the value cannot be encoded, or if it is larger than the limit for payloads.
func Output(ctx context.Context, value any) error {
	return during(ctx, "output", func(a *effect.Attempt) error {
		encoded, err := encodeValue(value)
		if err != nil {
			return err
		}
		return a.Output(encoded)
	})
}

// OutputOf returns the output of a task, decoded from JSON. It returns ErrNotFound if the task has none: the task is not
// done, or its handler has not called [Output]. Call [Client.Wait] before to wait for the task.
func OutputOf[T any](ctx context.Context, c *Client, id holdfast.TaskID) (T, error) {
	var output T
	values, err := c.data(ctx, id, store.OutputData)
	if err == nil && len(values) == 0 {
		err = fmt.Errorf("%w: the task has no output", holdfast.ErrNotFound)
	}
	if err == nil {
		err = decodeValue(values[0].Value, &output)
	}
	if err != nil {
		return output, fmt.Errorf("read the output of task %s: %w", id, err)
	}
	return output, nil
}

// data returns the values of a task with a name.
func (c *Client) data(ctx context.Context, id holdfast.TaskID, name string) ([]store.Datum, error) {
	if err := c.checkOpen(); err != nil {
		return nil, err
	}
	return c.backend.Store.TaskData(ctx, []holdfast.TaskID{id}, name)
}

// Next stores a task together with the success of the attempt whose handler got ctx. If the attempt does not succeed,
// the task is not stored. The arguments are those of [Client.Enqueue]. If a task has the unique key already, nothing is
// stored and the success counts.
//
// Next returns ErrInvalid if the task can never be accepted, and for more than 1,000 tasks or 4 MiB of payloads in one
// attempt.
func Next(ctx context.Context, taskType string, payload any, opts ...TaskOption) error {
	return during(ctx, "next task", func(a *effect.Attempt) error {
		task, err := NewTask{taskType, payload, opts}.Complete()
		if err != nil {
			return err
		}
		return a.Next(task)
	})
}

// Once runs a step of a task once. If an attempt of the task has stored a value for the step, Once returns that value
// and does not call do. Otherwise it calls do and stores the value before it returns. If do returns an error, Once
// stores nothing and returns that error. So a step that has succeeded does not run again in later attempts.
//
// If another goroutine of the attempt runs the same step, Once waits for it and returns its value. So do must not call
// Once with the same name.
//
// If the worker crashes, or ctx ends, between the end of do and the commit of the value, the step runs again. To make
// such a step safe too, pass holdfast.Task.IdempotencyKey to the other system. If a person edits the payload and retries
// the task, the stored values stay.
//
// The name of a step is unique in its task and has the characters of a task type. A task can have 1,000 values, of at
// most 4 MiB together and each of at most the size of a payload. Once does not call do if ctx has ended, or if the task
// cannot have another value. If the value of do is too large or cannot be encoded, the effect of the step has happened.
// For a task with too many or too large values, Once returns a holdfast.Permanent error that wraps ErrInvalid; return
// it, and the step does not run again.
//
// Once returns an error that wraps holdfast.ErrLeaseLost if the attempt does not run any more; return it.
func Once[T any](ctx context.Context, step string, do func() (T, error)) (value T, err error) {
	failed := func(err error) (T, error) { return value, fmt.Errorf("step %.100q: %w", step, err) }
	a, err := effect.From(ctx)
	if err == nil && (holdfast.NewTask{Type: step}).Validate(0) != nil {
		err = fmt.Errorf("%w: the name of a step needs 1 to %d letters, digits or . _ : / -", holdfast.ErrInvalid, holdfast.MaxNameLength)
	}
	if err != nil {
		return failed(err)
	}
	stored, end, err := a.BeginStep(ctx, store.StepData(step))
	if err != nil {
		return failed(err)
	}
	defer end()
	if stored != nil {
		if err = decodeValue(stored, &value); err != nil {
			return failed(err)
		}
		return value, nil
	}
	if value, err = do(); err != nil {
		return value, err
	}
	if err = saveStep(ctx, a, step, value); err != nil {
		return failed(err)
	}
	return value, nil
}

// saveStep stores the value of a step that has run. If no attempt could store it, the error is permanent, because the
// next attempt would repeat the effect.
func saveStep(ctx context.Context, a *effect.Attempt, step string, value any) error {
	encoded, err := encodeValue(value)
	if err == nil {
		err = a.Save(ctx, store.StepData(step), encoded)
	}
	if errors.Is(err, holdfast.ErrInvalid) {
		return holdfast.Permanent(fmt.Errorf("the step has run and its effect has happened, but its value cannot be stored: %w", err))
	}
	return err
}

// Save stores a checkpoint, the state from which the next attempt of the task continues if this one fails. It replaces
// the earlier checkpoint at once. After an error of the connection, the store may still carry out the call, even after a
// later Save of the same attempt. Save returns an error that wraps holdfast.ErrLeaseLost, and stores nothing, if the
// attempt does not run any more; return it.
func Save(ctx context.Context, state any) error {
	return during(ctx, "save checkpoint", func(a *effect.Attempt) error {
		encoded, err := encodeValue(state)
		if err != nil {
			return err
		}
		return a.Save(ctx, store.CheckpointData, encoded)
	})
}

// Load decodes the checkpoint of the task into state, a pointer. It returns false, and does not change state, if no
// attempt has saved one.
func Load(ctx context.Context, state any) (found bool, err error) {
	err = during(ctx, "load checkpoint", func(a *effect.Attempt) error {
		stored, err := a.Value(ctx, store.CheckpointData)
		if found = err == nil && stored != nil; !found {
			return err
		}
		return decodeValue(stored, state)
	})
	return found && err == nil, err
}

// Progress records how far the attempt is, for people: percent from 0 to 100, and a note of at most 1,000 bytes. The
// worker writes at most one progress a second, so a loop may call Progress in each pass. A write that fails is dropped.
// If ctx does not belong to an attempt, Progress does nothing.
func Progress(ctx context.Context, percent int, note string) {
	if a, err := effect.From(ctx); err == nil {
		a.Progress(ctx, store.Progress{Percent: percent, Note: note})
	}
}

// CompleteTx stores the success of the attempt in tx, a transaction of the handler on the database of the store, with
// the output and the next tasks. The task is done if and only if tx commits. So the writes of the handler in tx, and the
// success, take effect together or not at all. tx is a *sql.Tx, a *sqlx.Tx or any type with the same two methods; for
// pgx, use package pgxqueue.
//
// Call CompleteTx last, just before the commit, because tx then locks the task:
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	if err := queue.CompleteTx(ctx, tx); err != nil {
//		return err
//	}
//	return tx.Commit()
//
// CompleteTx returns an error that wraps holdfast.ErrLeaseLost if the attempt does not run any more. After any error the
// handler must roll back and return the error. After CompleteTx, the other functions for attempts return ErrConflict. If
// the handler returns nil without a commit, the attempt has failed with the class "uncommitted".
//
// If the tasks are in a file, tx must be a transaction of the driver modernc.org/sqlite on that file, opened with
// _txlock=immediate. It must be short, because no other transaction can write meanwhile.
func CompleteTx(ctx context.Context, tx store.Tx) error {
	return during(ctx, "complete task in transaction", func(a *effect.Attempt) error {
		if tx == nil {
			return fmt.Errorf("%w: the transaction is nil", holdfast.ErrInvalid)
		}
		return a.CompleteTx(ctx, tx)
	})
}

// during calls do with the attempt of ctx, and adds the operation to its error.
func during(ctx context.Context, operation string, do func(*effect.Attempt) error) error {
	a, err := effect.From(ctx)
	if err == nil {
		err = do(a)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// encodeValue returns a value as JSON, as Enqueue encodes a payload.
func encodeValue(value any) (json.RawMessage, error) {
	if value == nil {
		return json.RawMessage("null"), nil
	}
	encoded, err := encode(value)
	if err != nil {
		return nil, fmt.Errorf("%w: encode: %w", holdfast.ErrInvalid, err)
	}
	return encoded, nil
}

func decodeValue(stored json.RawMessage, value any) error {
	if err := json.Unmarshal(stored, value); err != nil {
		return fmt.Errorf("%w: the stored value does not fit %T: %w", holdfast.ErrInvalid, value, err)
	}
	return nil
}

// executing runs an attempt for Client.Execute. It implements effect.Host.
type executing struct {
	client *Client
	task   holdfast.Task
	now    time.Time
}

// Task implements effect.Host.
func (e *executing) Task() *holdfast.Task { return &e.task }

// Store implements effect.Host.
func (e *executing) Store() effect.Store { return e.client.backend.Store }

// MaxPayload implements effect.Host.
func (e *executing) MaxPayload() int { return e.client.backend.Config.Producer.MaxPayload }

// Leased implements effect.Host. Client.Execute needs no lease.
func (e *executing) Leased() bool { return true }

// Complete implements effect.Host.
func (e *executing) Complete(task holdfast.NewTask) (holdfast.NewTask, error) {
	err := task.Complete((*e.client.settings.Load()).For(task.Type), e.MaxPayload(), e.client.backend.Check[task.Type])
	return task, err
}

// Success implements effect.Host.
func (e *executing) Success() (holdfast.Transition, error) {
	return holdfast.Settle(e.task, holdfast.Returned(nil), e.now, (*e.client.settings.Load()).For(e.task.Type).Policy)
}
