package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Settings that a person sets in the store reach the worker and the producer of a running program. Settings of a type
// replace options of Handle. Defaults replace only settings that the program has not set, even if it has set the
// default value.
func TestSettingsOfTheStore(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		limits := make(chan time.Duration, 1)
		timed := func(ctx context.Context, _ holdfast.Task, _ any) error {
			end, _ := ctx.Deadline()
			limits <- time.Until(end)
			return nil
		}
		w.must(queue.Handle(q, "plain", timed))
		w.must(queue.Handle(q, "timed", timed, queue.Timeout(time.Hour), queue.Queue("default")))
		w.must(queue.Handle(q, "failing", func(context.Context, holdfast.Task, any) error { return errors.New("no") },
			queue.MaxAttempts(100_000), queue.Delays(10*time.Millisecond)))
		w.run(q)
		set := func(settings map[string]string) {
			w.Helper()
			_, err := queue.Backend(q).ChangeSettings(w.Context(), store.Actor{Name: "ada"}, app.SettingsRequest{Set: settings})
			w.must(err)
		}
		limit := func(kind string) time.Duration {
			w.enqueue(q, kind, nil)
			return (<-limits).Round(10 * time.Minute)
		}
		await := func(what string, holds func() bool) {
			w.Helper()
			for late := time.Now().Add(slow.Patience()); !holds(); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(late) {
					w.Fatal(what)
				}
			}
		}
		set(map[string]string{"defaults.timeout": "3h", "defaults.queue": "elsewhere"})
		await("the defaults of the store have no effect", func() bool { return limit("plain") == 3*time.Hour })
		if got := limit("timed"); got != time.Hour {
			w.Errorf("the timeout of the program is %s after a change of the defaults", got)
		}
		for kind, want := range map[string]string{"plain": "elsewhere", "timed": "default"} {
			task, err := q.Task(w.Context(), w.enqueue(q, kind, nil, queue.In(time.Hour)))
			w.must(err)
			if task.Queue != want || task.MaxAttempts != 0 {
				w.Errorf("type %s: the queue is %s, the task has %d attempts of its own", kind, task.Queue, task.MaxAttempts)
			}
		}
		set(map[string]string{"types.timed.timeout": "2h"})
		await("the setting of the type has no effect", func() bool { return limit("timed") == 2*time.Hour })

		// The new limit applies at once to a stored task without a limit of its own.
		id := w.enqueue(q, "failing", nil)
		await("the task does not fail", func() bool {
			task, err := q.Task(w.Context(), id)
			return err == nil && task.Failures > 2
		})
		set(map[string]string{"types.failing.max_attempts": "3"})
		if task := w.wait(q, id); task.State != holdfast.Dead || task.Failures >= 100_000 {
			w.Errorf("the task is %s after %d failures", task.State, task.Failures)
		}
	})
}
