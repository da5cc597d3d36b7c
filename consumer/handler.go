package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfastq/holdfast"
)

// Handler runs one attempt of a task.
//
// A nil error completes the task. Any other error is a failure that counts and
// is retried by the policy of the task's type, unless it is made with
// holdfast.Permanent, Defer, RetryAfter or Cancel. A panic is a failure, kept with
// its stack. holdfast.Detailed adds facts to the attempt's record.
//
// ctx ends at the attempt's timeout, when the task is cancelled, when the worker
// loses its lease and at the end of a drain; context.Cause(ctx) tells which. A handler that
// goes on after that may run beside a second execution. What must not happen
// twice should be guarded with the fencing token (task.ID, task.Attempt): later
// executions have the larger attempt. Where another system keeps what it has seen, give
// it task.IdempotencyKey(), which is the same at every attempt and belongs to no other task of any store.
//
// Handle is called from many goroutines at once.
type Handler interface {
	Handle(ctx context.Context, task holdfast.Task) error
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, task holdfast.Task) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, task holdfast.Task) error { return f(ctx, task) }

// Registry maps task types to handlers. Fill it before the consumer runs; it must
// not be changed afterwards. The zero value is empty and ready to use.
type Registry struct {
	handlers map[string]Handler
}

// Add registers h for a task type. It panics if no task can have the type, if the type has a handler already, and if h
// is nil. These are mistakes of the program that its first start shows.
func (r *Registry) Add(taskType string, h Handler) {
	if h == nil {
		panic(fmt.Sprintf("consumer: the handler for %q is nil", taskType))
	}
	if err := (holdfast.NewTask{Type: taskType}).Validate(0); err != nil {
		panic(fmt.Sprintf("consumer: %s", err))
	}
	if _, taken := r.handlers[taskType]; taken {
		panic(fmt.Sprintf("consumer: there are two handlers for %q", taskType))
	}
	if r.handlers == nil {
		r.handlers = make(map[string]Handler)
	}
	r.handlers[taskType] = h
}

// Types returns the registered types, sorted.
func (r *Registry) Types() []string { return slices.Sorted(maps.Keys(r.handlers)) }

// Register adds a handler whose payload is decoded from JSON into a P; see Typed.
func Register[P any](r *Registry, taskType string, handle func(ctx context.Context, task holdfast.Task, payload P) error) {
	r.Add(taskType, Typed(handle))
}

// Typed returns a handler that decodes the payload from JSON into a P and calls handle. A payload that does not fit makes
// the task dead at once: no retry can change it.
func Typed[P any](handle func(ctx context.Context, task holdfast.Task, payload P) error) HandlerFunc {
	return func(ctx context.Context, task holdfast.Task) error {
		var payload P
		if err := json.Unmarshal(task.Payload, &payload); err != nil {
			return holdfast.Permanent(fmt.Errorf("%w: the payload does not fit %T: %w", holdfast.ErrInvalid, payload, err))
		}
		return handle(ctx, task, payload)
	}
}
