package queue

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// PauseQueue keeps the tasks of a queue from starting, in every process, for the time d or, if d is 0, until ResumeQueue.
// When PauseQueue returns, no worker claims a task of the queue. Handlers that run continue. The reason is for the audit
// log. A second call replaces the reason and the end of the pause. Returns ErrNotFound if the queue does not exist.
func (c *Client) PauseQueue(ctx context.Context, name string, d time.Duration, reason string) error {
	if err := c.checkOpen(); err != nil {
		return err
	}
	_, err := c.backend.Pause(ctx, because(reason), store.Subject{Queue: name}, d)
	return err
}

// ResumeQueue ends the pause of a queue. Returns ErrNotFound if the queue does not exist or is not paused.
func (c *Client) ResumeQueue(ctx context.Context, name, reason string) error {
	if err := c.checkOpen(); err != nil {
		return err
	}
	_, err := c.backend.Resume(ctx, because(reason), store.Subject{Queue: name})
	return err
}

// because returns the actor of the audit log for calls with a reason.
func because(reason string) store.Actor {
	actor := by()
	actor.Reason = reason
	return actor
}
