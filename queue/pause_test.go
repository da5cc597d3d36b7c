package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
)

// A paused queue starts no task, and other queues continue. The paused tasks run after ResumeQueue.
func TestAQueueIsPaused(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		var mails atomic.Int64
		w.must(queue.Handle(q, "mail", func(context.Context, holdfast.Task, string) error { mails.Add(1); return nil }))
		w.must(queue.Handle(q, "log", func(context.Context, holdfast.Task, string) error { return nil }))
		if err := q.ResumeQueue(t.Context(), "mail", ""); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("a queue that does not exist: %v", err)
		}
		w.must(q.PauseQueue(t.Context(), "mail", 0, "before its first task"))
		ids := []holdfast.TaskID{w.enqueue(q, "mail", "ada@example.com", queue.Queue("mail"))}
		w.must(q.PauseQueue(t.Context(), "mail", time.Hour, "upkeep"))
		stop := w.run(q)
		ids = append(ids, w.enqueue(q, "mail", "bob@example.com", queue.Queue("mail")))
		w.wait(q, w.enqueue(q, "log", "hello"))
		if n := mails.Load(); n > 0 {
			t.Errorf("%d tasks of the paused queue ran", n)
		}
		w.must(q.ResumeQueue(t.Context(), "mail", "done"))
		if err := q.ResumeQueue(t.Context(), "mail", ""); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("a second ResumeQueue: %v", err)
		}
		for _, id := range ids {
			if task := w.wait(q, id); task.State != holdfast.Done {
				t.Errorf("task %s is %s", id, task.State)
			}
		}
		if n := mails.Load(); n != 2 {
			t.Errorf("%d tasks ran, want 2", n)
		}
		stop()
		w.must(q.Close())
		if err := q.PauseQueue(t.Context(), "mail", 0, ""); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
