package janitor

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
)

// stuckEdits is a store in which the edit of a task never ends.
type stuckEdits struct {
	Store
	began func()
}

func (s stuckEdits) Task(ctx context.Context, _ holdfast.TaskID) (holdfast.Task, error) {
	s.began()
	<-ctx.Done()
	return holdfast.Task{}, ctx.Err()
}

// Other operations do not wait for an edit whose patch is slow.
func TestASlowEditDelaysNoOtherOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.store.Insert(t.Context(), []holdfast.NewTask{newTask()}, 0)
	w.must(err)
	start := func(r operate.Request) store.ID {
		r.Filter = store.Filter{States: []holdfast.State{holdfast.Ready}}
		o := r.Operation(1, false)
		o.State = store.OperationRunning
		o, err := w.store.CreateOperation(t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, o)
		w.must(err)
		return o.ID
	}
	began := make(chan struct{})
	j := w.janitor(func(o *Options) { o.Store = stuckEdits{o.Store, sync.OnceFunc(func() { close(began) })} })
	start(operate.Request{Action: store.ActionEdit, Patch: []byte(`[{"op":"replace","path":"/queue","value":"other"}]`)})
	w.run(j)
	<-began
	other := start(operate.Request{Action: store.ActionCancel})
	w.eventually("the other operation is done", func() bool {
		o, err := w.store.Operation(t.Context(), other)
		w.must(err)
		return o.State == store.OperationDone && o.Changed == 1
	})
}
