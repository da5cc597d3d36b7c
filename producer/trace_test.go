package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// fakeTracer records the calls of Enqueue and sets contexts.
type fakeTracer struct {
	holdfast.Tracer
	mu    sync.Mutex
	ended []string
}

const fakeTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func (f *fakeTracer) Enqueue(_ context.Context, tasks []holdfast.NewTask) func(holdfast.TaskID, error) {
	queue := tasks[0].Queue
	for i := range tasks {
		if tasks[i].Trace == "" {
			tasks[i].Trace = fakeTrace
		}
	}
	return func(id holdfast.TaskID, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ended = append(f.ended, fmt.Sprintf("%d in %s, id %t, error %t", len(tasks), queue, id != 0, err != nil))
	}
}

func TestEveryCallIsTraced(t *testing.T) {
	t.Parallel()
	tracer := &fakeTracer{}
	w := newWorld(t, func(o *Options) { o.Tracer = tracer })
	one, err := w.Enqueue(t.Context(), holdfast.NewTask{Type: "a"})
	w.must(err)
	tasks := []holdfast.NewTask{{Type: "a"}, {Type: "a", Trace: fakeTrace + " own=1"}}
	many, err := w.EnqueueMany(t.Context(), tasks)
	w.must(err)
	tx, err := pgtest.Admin(t).BeginTx(t.Context(), nil)
	w.must(err)
	defer func() { _ = tx.Rollback() }()
	inTx, err := w.EnqueueTx(t.Context(), tx, holdfast.NewTask{Type: "a"})
	w.must(err)
	w.must(tx.Commit())
	for id, want := range map[holdfast.TaskID]string{
		one.ID: fakeTrace, many[0].ID: fakeTrace, many[1].ID: fakeTrace + " own=1", inTx[0].ID: fakeTrace,
	} {
		task, err := w.store.Task(t.Context(), id)
		w.must(err)
		if task.Trace != want {
			t.Errorf("task %s has the context %q, want %q", id, task.Trace, want)
		}
	}
	if tasks[0].Trace != "" {
		t.Error("the tasks of the caller have changed")
	}
	// An invalid task makes no span, and a call that fails ends its span.
	if _, err := w.Enqueue(t.Context(), holdfast.NewTask{}); !errors.Is(err, holdfast.ErrInvalid) {
		t.Error(err)
	}
	w.must(w.Close())
	if _, err := w.Enqueue(t.Context(), holdfast.NewTask{Type: "a"}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	want := []string{
		"1 in default, id true, error false", "2 in default, id false, error false", "1 in default, id true, error false",
		"1 in default, id false, error true",
	}
	if !slices.Equal(tracer.ended, want) {
		t.Errorf("the calls are %q, want %q", tracer.ended, want)
	}
}
