package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/payload"
)

// Handler runs one attempt of a task. Its implementations must be safe for concurrent use.
//
// If Handle returns nil, the task is done. Any other error is a failure: it uses up an attempt, and the policy of the
// task's type decides about the retry. Errors made with holdfast.Permanent, Defer, RetryAfter or Cancel mean what these
// functions say. A panic is a failure; the attempt's record keeps its stack. The same holds for a panic in a method of
// the returned error, which the worker calls on another goroutine. holdfast.Detailed adds details to the record.
//
// ctx ends at the attempt's timeout, when the task is cancelled, when the worker loses its lease, and at the end of a
// drain. context.Cause(ctx) says which. A handler that continues after the end of ctx may run beside a second execution
// of its task, and after holdfast.TypeSettings.AbandonAfter its result is refused.
//
// To protect an effect that must not happen twice, use the fencing token (task.ID, task.Attempt): a later execution has
// a larger attempt. If another system deduplicates by key, use task.IdempotencyKey(). It is the same for all attempts
// of the task, and different for all other tasks of all stores.
type Handler interface {
	Handle(ctx context.Context, task holdfast.Task) error
}

// HandlerFunc is an adapter that makes a function a Handler.
type HandlerFunc func(ctx context.Context, task holdfast.Task) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, task holdfast.Task) error { return f(ctx, task) }

// Registry maps task types to handlers. It must not be changed after the consumer has started. The zero value is empty
// and ready to use.
type Registry struct {
	handlers map[string]Handler
	payloads map[string]reflect.Type // that typed handlers decode, by task type
}

// Add registers h for a task type. It panics if the type is invalid, if the type already has a handler, or if h is nil.
func (r *Registry) Add(taskType string, h Handler) {
	if h == nil {
		panic(fmt.Sprintf("consumer: the handler for %q is nil", taskType))
	}
	if err := (holdfast.NewTask{Type: taskType}).Validate(0); err != nil {
		panic(fmt.Sprintf("consumer: %s", err))
	}
	if _, taken := r.handlers[taskType]; taken {
		panic(fmt.Sprintf("consumer: type %q has two handlers", taskType))
	}
	if r.handlers == nil {
		r.handlers = make(map[string]Handler)
	}
	r.handlers[taskType] = h
}

// Describe says that the handler of a task type decodes payloads from JSON into a value of type decoded. From that type
// the worker makes a JSON Schema and stores it. A payload that a person edits must fit the schema. Without a call of
// Describe, it may be any JSON.
func (r *Registry) Describe(taskType string, decoded reflect.Type) {
	if r.payloads == nil {
		r.payloads = make(map[string]reflect.Type)
	}
	r.payloads[taskType] = decoded
}

// schemas returns the JSON Schemas of the payloads of the described types.
func (r *Registry) schemas() map[string]json.RawMessage {
	schemas := make(map[string]json.RawMessage)
	for taskType, t := range r.payloads {
		if schema := payload.Schema(t); schema != nil {
			schemas[taskType] = schema
		}
	}
	return schemas
}

// Types returns the registered types, sorted.
func (r *Registry) Types() []string { return slices.Sorted(maps.Keys(r.handlers)) }

// Register adds a handler that gets the payload decoded from JSON into a P; see Typed. It also calls Describe.
func Register[P any](r *Registry, taskType string, handle func(ctx context.Context, task holdfast.Task, payload P) error) {
	r.Add(taskType, Typed(handle))
	r.Describe(taskType, reflect.TypeFor[P]())
}

// Typed returns a handler that decodes the payload from JSON into a P and calls handle. If the payload cannot be
// decoded, the task is dead at once, because no retry can change the payload.
func Typed[P any](handle func(ctx context.Context, task holdfast.Task, payload P) error) HandlerFunc {
	return func(ctx context.Context, task holdfast.Task) error {
		var payload P
		if err := json.Unmarshal(task.Payload, &payload); err != nil {
			return holdfast.Permanent(fmt.Errorf("%w: the payload does not fit %T: %w", holdfast.ErrInvalid, payload, err))
		}
		return handle(ctx, task, payload)
	}
}
