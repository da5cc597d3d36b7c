package queue

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
)

// Task returns a task with its payload. Returns ErrNotFound if there is no task of that id.
func (c *Client) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	return c.about(ctx, "read task", id, c.backend.Task)
}

// Attempts returns the attempts of a task that did not end in success, oldest first. Returns ErrNotFound if there is no task
// of that id.
func (c *Client) Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	attempts, err := c.backend.Store.Attempts(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read attempts of task %s: %w", id, err)
	}
	return attempts, nil
}

// Cancel moves a task that is ready, running or dead to state cancelled, and returns it. The context of a running handler ends
// with holdfast.ErrCancelled at the next renewal of the lease. Returns ErrNotFound if there is no task of that id, and
// ErrConflict if its state does not allow the move.
func (c *Client) Cancel(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	return c.about(ctx, "cancel task", id, func(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
		return c.backend.Move(ctx, id, holdfast.EventCancel)
	})
}

// Retry makes a task that is dead or cancelled ready again, with all its attempts, and returns it. Errors are those of
// Cancel.
func (c *Client) Retry(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	return c.about(ctx, "retry task", id, func(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
		return c.backend.Move(ctx, id, holdfast.EventRequeue)
	})
}

// Wait waits until a task is in a final state and returns it. If ctx ends first, Wait returns the task as it last saw it and
// the error of ctx. It looks ten times a second: it is for tests and tools.
func (c *Client) Wait(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	return c.about(ctx, "wait for task", id, c.backend.Await)
}

// about calls do for a task and wraps its error.
func (c *Client) about(ctx context.Context, operation string, id holdfast.TaskID, do func(context.Context, holdfast.TaskID) (holdfast.Task, error)) (holdfast.Task, error) {
	if err := c.open(); err != nil {
		return holdfast.Task{}, err
	}
	task, err := do(ctx, id)
	if err != nil {
		return task, fmt.Errorf("%s %s: %w", operation, id, err)
	}
	return task, nil
}

// open returns ErrClosed after Close.
func (c *Client) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return nil
}
