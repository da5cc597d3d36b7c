package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
)

// Handler runs one attempt of a task. [Handle] makes one from a function with a typed payload.
//
// A nil error completes the task. holdfast.Permanent, Defer, RetryAfter and Cancel make errors that say what becomes of it.
// Any other error is a failure: it counts, and the policy of the type decides when the task runs again. A panic is a failure
// too. ctx ends at the timeout of the attempt, when the task is cancelled, when the worker loses its lease, and at the end
// of a drain; context.Cause tells which.
type Handler func(ctx context.Context, task holdfast.Task) error

// Middleware wraps a handler. It sees the task before the handler and the error after it. It may change both, and it may
// leave out the call of next. It is called once for each type, before Run takes tasks.
type Middleware func(next Handler) Handler

// TypeOption is an option of Handle.
type TypeOption interface{ applyToType(*typeOptions) error }

// typeOptions are those of a task type.
type typeOptions struct {
	settings   holdfast.TypeSettings // those of the configuration at first
	middleware []Middleware
}

type typeOption func(*typeOptions) error

func (f typeOption) applyToType(t *typeOptions) error { return f(t) }

// Handle registers handle for the tasks of a type. The payload is decoded from JSON into a P. A payload that does not fit
// makes the task dead at once: no retry can change it. Use json.RawMessage as P for a payload as it is. The options change
// the settings of the type and leave what they do not name.
//
// Returns an ErrInvalid if the type has a handler, if no task can have the type, or if an option is wrong, and an ErrConflict
// after Run has begun. Run returns these errors too, so a program that calls Run may ignore them here.
func Handle[P any](c *Client, taskType string, handle func(ctx context.Context, task holdfast.Task, payload P) error, opts ...TypeOption) error {
	var typed Handler
	if handle != nil {
		typed = Handler(consumer.Typed(handle))
	}
	return c.handle(taskType, typed, opts)
}

func (c *Client) handle(taskType string, handle Handler, opts []TypeOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.register(taskType, handle, opts)
	if err != nil {
		err = fmt.Errorf("handle type %.100q: %w", taskType, err)
		c.problems = append(c.problems, err)
	}
	return err
}

// register checks the handler and keeps it. The caller holds c.mu.
func (c *Client) register(taskType string, handle Handler, opts []TypeOption) error {
	if err := (holdfast.NewTask{Type: taskType}).Validate(0); err != nil {
		return err
	}
	_, taken := c.handlers[taskType]
	switch {
	case c.ran:
		return fmt.Errorf("%w: Run has begun; call Handle before it", holdfast.ErrConflict)
	case taken:
		return fmt.Errorf("%w: the type has a handler", holdfast.ErrInvalid)
	case handle == nil:
		return fmt.Errorf("%w: the handler is nil", holdfast.ErrInvalid)
	}
	t := typeOptions{settings: c.backend.Config.Settings().For(taskType)}
	t.settings.Policy.Delays = slices.Clone(t.settings.Policy.Delays)
	for _, option := range opts {
		if option == nil {
			continue
		}
		if err := option.applyToType(&t); err != nil {
			return err
		}
	}
	if err := (holdfast.Settings{Defaults: t.settings}).Validate(); err != nil {
		return err
	}
	for _, wrap := range slices.Backward(slices.Concat(c.options.middleware, t.middleware)) {
		if handle = wrap(handle); handle == nil {
			return fmt.Errorf("%w: a middleware returned no handler", holdfast.ErrInvalid)
		}
	}
	c.handlers[taskType] = typeHandler{handle, t.settings}
	return nil
}

// ClientTypeOption is an option of Open for all types, and of Handle for one.
type ClientTypeOption interface {
	Option
	TypeOption
}

// Use wraps handlers. The first middleware is the outermost one. Those of Open are outside those of Handle.
func Use(middleware ...Middleware) ClientTypeOption { return wrapOption(middleware) }

type wrapOption []Middleware

func (w wrapOption) check() error {
	if slices.ContainsFunc(w, func(m Middleware) bool { return m == nil }) {
		return fmt.Errorf("%w: a middleware is nil", holdfast.ErrInvalid)
	}
	return nil
}

func (w wrapOption) applyToClient(o *options) error {
	o.middleware = append(o.middleware, w...)
	return w.check()
}

func (w wrapOption) applyToType(t *typeOptions) error {
	t.middleware = append(t.middleware, w...)
	return w.check()
}

// Timeout bounds one attempt; 0 means no bound.
func Timeout(d time.Duration) TypeOption {
	return typeOption(func(t *typeOptions) error {
		t.settings.Timeout = d
		return nil
	})
}

// Backoff makes the delay after a failure grow from first to longest. The factor, 2.5 by default, and the jitter are those
// of the configuration.
func Backoff(first, longest time.Duration) TypeOption {
	return typeOption(func(t *typeOptions) error {
		if longest < first {
			return fmt.Errorf("%w: the longest delay %s is shorter than the first one, %s", holdfast.ErrInvalid, longest, first)
		}
		p := &t.settings.Policy
		p.Strategy, p.Base, p.Max = holdfast.Exponential, first, longest
		if p.Factor < 1 {
			p.Factor = holdfast.DefaultPolicy().Factor
		}
		return nil
	})
}

// Delays are the delays after the first failure, the second and so on. The last one repeats.
func Delays(delays ...time.Duration) TypeOption {
	return typeOption(func(t *typeOptions) error {
		p := &t.settings.Policy
		p.Strategy, p.Delays, p.Max = holdfast.List, slices.Clone(delays), 0
		return nil
	})
}

// Policy replaces the whole policy. Start from holdfast.DefaultPolicy.
func Policy(policy holdfast.Policy) TypeOption {
	return typeOption(func(t *typeOptions) error {
		t.settings.Policy = policy
		return nil
	})
}

// PolicyFunc chooses the policy by the error of an attempt. policy is that of the type. f may change and return it, and must
// be safe for concurrent use. If f panics or its policy is not valid, the worker logs that and uses the policy of the type.
func PolicyFunc(f func(policy holdfast.Policy, err error) holdfast.Policy) TypeOption {
	return typeOption(func(t *typeOptions) error {
		t.settings.PolicyFor = f
		return nil
	})
}

// Execute calls the handler of a claimed task and returns what becomes of the task, as Run does for each attempt. It stores
// nothing. now is the time of the store. Returns ErrNotFound if the type has no handler. It is for package queuetest.
func (c *Client) Execute(ctx context.Context, task holdfast.Task, now time.Time) (holdfast.Transition, error) {
	c.mu.Lock()
	h, ok := c.handlers[task.Type]
	c.mu.Unlock()
	if !ok {
		return holdfast.Transition{}, fmt.Errorf("execute task %s: %w: there is no handler for type %q", task.ID, holdfast.ErrNotFound, task.Type)
	}
	cause := consumer.Attempt(ctx, consumer.HandlerFunc(h.handle), task, h.settings.Timeout)
	policy, err := h.settings.PolicyOf(cause)
	if err != nil {
		c.log().WithError(err).WithField("task", task.ID).Error("policy function failed: using the policy of the task's type")
	}
	return holdfast.Settle(task, cause, now, policy)
}
