package queue

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Task returns the task with the given id, with its payload. It returns ErrNotFound if there is no such task.
func (c *Client) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	return c.withTask(ctx, "read task", id, c.backend.Task)
}

// Attempts returns the recorded attempts of a task, oldest first; see KeepAttempts. It returns ErrNotFound if there is
// no task with the given id.
func (c *Client) Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error) {
	if err := c.checkOpen(); err != nil {
		return nil, err
	}
	attempts, err := c.backend.Store.Attempts(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read attempts of task %s: %w", id, err)
	}
	return attempts, nil
}

// Cancel moves a task that is ready, running or dead to state cancelled, and returns the task. If its handler is
// running, the worker cancels the context of the handler with holdfast.ErrCancelled at the next renewal of the lease.
// Cancel returns ErrNotFound if there is no task with the given id, and ErrConflict if the task is in another state.
func (c *Client) Cancel(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	return c.withTask(ctx, "cancel task", id, func(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
		return c.backend.Act(ctx, by(""), id, store.ActionCancel)
	})
}

// Retry makes a task that is dead or cancelled ready again and returns the task. Its counts of failures, crashes and
// deferrals restart at 0. Retry returns ErrNotFound if there is no task with the given id, and ErrConflict if the task
// is in another state.
func (c *Client) Retry(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	return c.withTask(ctx, "retry task", id, func(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
		return c.backend.Act(ctx, by(""), id, store.ActionRetry)
	})
}

// Wait waits until a task is done, dead, cancelled or archived, and returns the task. If ctx ends first, Wait returns
// the task as last read and the error of ctx. Wait reads the task ten times a second, so use it only in tests and
// tools.
func (c *Client) Wait(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	return c.withTask(ctx, "wait for task", id, c.backend.Await)
}

// by returns the actor for calls of this package in the audit log.
func by(reason string) store.Actor {
	return store.Actor{Name: filepath.Base(os.Args[0]), Surface: store.Library, Reason: reason}
}

// withTask calls do with the id of a task and wraps its error.
func (c *Client) withTask(ctx context.Context, operation string, id holdfast.TaskID, do func(context.Context, holdfast.TaskID) (holdfast.Task, error)) (holdfast.Task, error) {
	if err := c.checkOpen(); err != nil {
		return holdfast.Task{}, err
	}
	task, err := do(ctx, id)
	if err != nil {
		return task, fmt.Errorf("%s %s: %w", operation, id, err)
	}
	return task, nil
}

// checkOpen returns ErrClosed after Close.
func (c *Client) checkOpen() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return nil
}
