package queuetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/queue/queuetest"
	"github.com/holdfastq/holdfast/store"
)

// A test can read what each attempt of a task has stored.
func TestEffects(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	charges := 0
	must(t, queue.Handle(q.Client, "order", func(ctx context.Context, task holdfast.Task, order string) error {
		charge, err := queue.Once(ctx, "charge", func() (int, error) {
			charges++
			return 7, nil
		})
		if err != nil {
			return err
		}
		if err := errors.Join(queue.Save(ctx, charge), queue.Output(ctx, order), queue.Next(ctx, "ship", order)); err != nil {
			return err
		}
		if task.Failures == 0 {
			return errBoom
		}
		_, err = queue.Once(ctx, "book", func() (any, error) { return nil, nil })
		return err
	}))
	enqueue(t, q, "order", "o7")

	task := q.RunOne()
	var charge, checkpoint int
	q.RequireStep(task, "charge", &charge)
	q.RequireCheckpoint(task, &checkpoint)
	if steps := q.Steps(task); !slices.Equal(steps, []string{"charge"}) || charge != 7 || checkpoint != 7 {
		t.Errorf("after the failure: steps %v, charge %d, checkpoint %d", steps, charge, checkpoint)
	}
	q.RequireNotEnqueued("ship", queuetest.Any)

	task = q.RunOne()
	var output string
	q.RequireOutput(task, &output)
	q.RequireEnqueued("ship", "o7")
	if steps := q.Steps(task); !slices.Equal(steps, []string{"book", "charge"}) || output != "o7" || charges != 1 || task.State != holdfast.Done {
		t.Errorf("after the success: %s, steps %v, output %q, %d charges", task.State, steps, output, charges)
	}

	q = queuetest.New(t)
	must(t, queue.Handle(q.Client, "pay", func(ctx context.Context, _ holdfast.Task, _ any) error {
		if err := errors.Join(queue.Output(ctx, "paid"), queue.Next(ctx, "invoice", nil)); err != nil {
			return err
		}
		return queue.CompleteTx(ctx, struct{ store.Tx }{})
	}))
	enqueue(t, q, "pay", nil)
	if task = q.RunOne(); task.State != holdfast.Done {
		t.Errorf("after CompleteTx: %s", task.State)
	}
	q.RequireOutput(task, &output)
	q.RequireEnqueued("invoice", nil)
	if output != "paid" {
		t.Errorf("after CompleteTx: output %q", output)
	}
}

// A step behaves as on a real store: its effect is not repeated if its value cannot be stored, and it does not run after
// the end of its context.
func TestStepsWhoseValuesCannotBeStored(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	effects := 0
	must(t, queue.Handle(q.Client, "large", func(ctx context.Context, _ holdfast.Task, _ any) error {
		_, err := queue.Once(ctx, "more", func() (string, error) {
			effects++
			return strings.Repeat("x", 5<<20), nil
		})
		return err
	}))
	enqueue(t, q, "large", nil)
	if task := q.RunOne(); task.State != holdfast.Dead || effects != 1 || !strings.Contains(task.LastError, "its effect has happened") {
		t.Errorf("%d effects: task %+v", effects, task)
	}

	must(t, queue.Handle(q.Client, "late", func(ctx context.Context, _ holdfast.Task, _ any) error {
		ended, cancel := context.WithCancelCause(ctx)
		cancel(errBoom)
		_, err := queue.Once(ended, "charge", func() (any, error) {
			effects++
			return nil, nil
		})
		return err
	}))
	enqueue(t, q, "late", nil)
	if task := q.RunOne(); task.LastError != `step "charge": `+errBoom.Error() || effects != 1 {
		t.Errorf("%d effects, want 1: task %+v", effects, task)
	}
}

func TestMissingEffects(t *testing.T) {
	t.Parallel()
	var task holdfast.Task
	fill := func(q *queuetest.Queue) {
		must(t, queue.Handle(q.Client, "x", func(ctx context.Context, _ holdfast.Task, _ any) error { return queue.Save(ctx, "text") }))
		enqueue(t, q, "x", nil)
		task = q.RunOne()
	}
	for want, call := range map[string]func(q *queuetest.Queue){
		"queuetest: task 1 of type x is done and has no output":                        func(q *queuetest.Queue) { q.RequireOutput(task, new(any)) },
		"queuetest: task 1 of type x is done and has no value of the step s":           func(q *queuetest.Queue) { q.RequireStep(task, "s", new(any)) },
		`queuetest: the checkpoint of task 1 is "text": json: cannot unmarshal string`: func(q *queuetest.Queue) { q.RequireCheckpoint(task, new(int)) },
	} {
		if got := fatalText(t, call, fill); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
