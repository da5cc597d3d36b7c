package queuetest_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/queue/queuetest"
)

// lengths registers a batch type whose split adds the words of a text and whose reduce sums their lengths. fail may be
// nil.
func lengths(t *testing.T, q *queuetest.Queue, fail func(task holdfast.Task, word string) error) {
	t.Helper()
	must(t, queue.HandleBatch(q.Client, "lengths", queue.Batch[string, string, int]{
		Split: func(ctx context.Context, text string, to *queue.Split[string]) error {
			done, _ := strconv.Atoi(to.Cursor())
			for i, word := range strings.Fields(text) {
				if i < done {
					continue
				}
				if err := to.Add(ctx, word, strconv.Itoa(i+1)); err != nil {
					return err
				}
			}
			return nil
		},
		Map: func(_ context.Context, task holdfast.Task, word string) (int, error) {
			if fail != nil {
				if err := fail(task, word); err != nil {
					return 0, err
				}
			}
			return len(word), nil
		},
		Reduce: func(ctx context.Context, items *queue.Results[string, int]) (any, error) {
			sum := 0
			for item, err := range items.All(ctx) {
				if err != nil {
					return nil, err
				}
				sum += item.Output
			}
			return sum, nil
		},
	}))
}

func TestRunBatch(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	lengths(t, q, func(task holdfast.Task, _ string) error {
		if task.Failures == 0 {
			return errors.New("failed once")
		}
		return nil
	})
	id, err := q.StartBatch(t.Context(), "lengths", strings.Repeat("four ", 100), queue.Window(10))
	must(t, err)
	status := q.RunBatch(id)
	if status.State != queue.BatchDone || status.Subtasks != (queue.BatchCounts{Total: 100, Done: 100}) {
		t.Errorf("status %+v", status)
	}
	if sum, err := queue.ReducedOf[int](t.Context(), q.Client, id); err != nil || sum != 400 {
		t.Errorf("reduced to %d, %v", sum, err)
	}
	if again := q.RunBatch(id); again != status {
		t.Errorf("a batch that has ended: %+v", again)
	}
}

// A batch is stopped, goes on after a retry, and a chain ends without it.
func TestRunBatchAfterFailures(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	repaired := false
	lengths(t, q, func(_ holdfast.Task, word string) error {
		if word == "bad" && !repaired {
			return holdfast.Permanent(errors.New("bad"))
		}
		return nil
	})
	id, err := q.StartBatch(t.Context(), "lengths", "a bad word")
	must(t, err)
	if status := q.RunBatch(id); status.State != queue.BatchStopped || status.Now.Dead != 1 || status.Now.Done != 2 {
		t.Errorf("status %+v", status)
	}
	repaired = true
	for _, task := range q.Tasks(holdfast.Dead) {
		_, err := q.Retry(t.Context(), task.ID)
		must(t, err)
	}
	if status := q.RunBatch(id); status.State != queue.BatchDone {
		t.Errorf("status %+v", status)
	}
	if sum, err := queue.ReducedOf[int](t.Context(), q.Client, id); err != nil || sum != 8 {
		t.Errorf("reduced to %d, %v", sum, err)
	}
}

func TestRunOpenBatch(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	lengths(t, q, nil)
	var outputs []int
	must(t, queue.Handle(q.Client, "then", func(ctx context.Context, _ holdfast.Task, _ any) (err error) {
		outputs, err = queue.Previous[int](ctx)
		return err
	}))
	b, err := q.OpenBatch(t.Context(), queue.Then("then", nil))
	must(t, err)
	must(t, b.Add(t.Context(), "lengths", "one", "three"))
	must(t, b.Seal(t.Context()))
	if status := q.RunBatch(b.ID()); status.State != queue.BatchDone || len(outputs) != 2 || outputs[0]+outputs[1] != 8 {
		t.Errorf("status %+v, outputs %v", status, outputs)
	}
}

func TestRunBatchFails(t *testing.T) {
	t.Parallel()
	for want, call := range map[string]func(q *queuetest.Queue){
		"there is no batch 77": func(q *queuetest.Queue) { q.RunBatch(77) },
		"needs subtasks":       func(q *queuetest.Queue) { q.RunBatch(1) },
	} {
		text := fatalText(t, call, func(q *queuetest.Queue) {
			b, err := q.OpenBatch(t.Context())
			must(t, err)
			if b.ID() != 1 {
				t.Errorf("the batch has the id %s", b.ID())
			}
		})
		if !strings.Contains(text, want) {
			t.Errorf("failed with %q, want %q", text, want)
		}
	}
}
