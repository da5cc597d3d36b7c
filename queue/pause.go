package queue

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// NoEnd removes the end of a pause; see Client.PauseQueue.
const NoEnd time.Duration = -1

// NoReason removes the reason of a pause; see Client.PauseQueue.
const NoReason = "none"

// PauseQueue prevents the tasks of a queue from starting, in every process. The pause ends after d or, if d is 0, with
// a call of ResumeQueue. When PauseQueue returns, no worker claims a task of the queue. Running handlers continue. The
// pause and the audit log record the reason.
//
// If the queue is already paused, PauseQueue changes that pause. A d of 0 keeps its end, and NoEnd removes it. An empty
// reason keeps its reason, and NoReason removes it. The queue may have no task yet.
func (c *Client) PauseQueue(ctx context.Context, name string, d time.Duration, reason string) error {
	if err := c.checkOpen(); err != nil {
		return err
	}
	change := store.PauseChange{Subject: store.Subject{Queue: name}}
	switch d {
	case 0:
	case NoEnd:
		change.For = new(time.Duration)
	default:
		change.For = &d
	}
	if reason == NoReason {
		reason, change.NoReason = "", true
	}
	_, err := c.backend.Pause(ctx, by(reason), change)
	return err
}

// ResumeQueue ends the pause of a queue. It returns ErrNotFound if the queue does not exist or is not paused.
func (c *Client) ResumeQueue(ctx context.Context, name, reason string) error {
	if err := c.checkOpen(); err != nil {
		return err
	}
	_, err := c.backend.Resume(ctx, by(reason), store.Subject{Queue: name})
	return err
}
