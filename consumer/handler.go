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

// Handler runs one attempt of a task. Implementations must be safe for concurrent use.
//
// If Handle returns nil, the task is done. Errors from holdfast.Permanent, Defer, RetryAfter or Cancel have the effects
// that these functions document. Any other error is a failure: it uses up an attempt, and the policy of the task's type
// decides about the retry. holdfast.Detailed adds details to the attempt's record.
//
// A panic is a failure, too, and the attempt's record keeps its stack. The worker calls the methods of the returned
// error on another goroutine. A panic there has the same effect.
//
// ctx ends at the attempt's timeout, when the task is cancelled, when the worker loses its lease, and at the end of a
// drain. context.Cause(ctx) is the reason. A handler that continues after the end of ctx may run beside a second
// execution of its task. After holdfast.TypeSettings.AbandonAfter its result is refused.
//
// To protect an effect that must not happen twice, use the fencing token (task.ID, task.Attempt): a later execution has
// a larger attempt. If another system deduplicates by key, use task.IdempotencyKey(). The key is the same for all
// attempts of the task, and different for every other task of any store.
type Handler interface {
	Handle(ctx context.Context, task holdfast.Task) error
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(ctx context.Context, task holdfast.Task) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, task holdfast.Task) error { return f(ctx, task) }

// Registry maps task types to handlers. It must not change after the consumer has started. The zero value is empty and
// ready to use.
type Registry struct {
	handlers map[string]Handler
	payloads map[string]reflect.Type // the types into which typed handlers decode payloads, by task type
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

// Describe declares that the handler of a task type decodes payloads from JSON into the type decoded. The worker makes
// a JSON Schema from that type and stores it. If a person edits a payload, it must fit the schema. Without a call of
// Describe, any JSON is accepted.
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

// Register adds a handler that receives the payload decoded from JSON into a P; see Typed. It also calls Describe.
func Register[P any](r *Registry, taskType string, handle func(ctx context.Context, task holdfast.Task, payload P) error) {
	r.Add(taskType, Typed(handle))
	r.Describe(taskType, reflect.TypeFor[P]())
}

// Typed returns a handler that decodes the payload from JSON into a P and calls handle. If decoding fails, the task is
// dead at once, because no retry can change the payload.
func Typed[P any](handle func(ctx context.Context, task holdfast.Task, payload P) error) HandlerFunc {
	return func(ctx context.Context, task holdfast.Task) error {
		var payload P
		if err := json.Unmarshal(task.Payload, &payload); err != nil {
			return holdfast.Permanent(fmt.Errorf("%w: the payload does not fit %T: %w", holdfast.ErrInvalid, payload, err))
		}
		return handle(ctx, task, payload)
	}
}
