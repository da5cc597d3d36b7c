package queue

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/effect"
	"github.com/holdfastq/holdfast/internal/plan"
)

// Handler runs one attempt of a task. [Handle] makes one from a function with a typed payload.
//
// If the handler returns nil, the task is done. holdfast.Permanent, Defer, RetryAfter and Cancel return errors that
// decide the next state of the task. Any other error, and a panic, is a failure: the store counts it, and the policy of
// the type decides when the task runs again. ctx ends at the timeout of the attempt, when the task is cancelled, when
// the worker loses its lease, and at the end of a drain. context.Cause returns the reason.
type Handler func(ctx context.Context, task holdfast.Task) error

// Middleware wraps a handler. The returned handler gets the task before next and the error after it. It may change
// both, and it need not call next. Handle calls the middleware itself once for each type.
type Middleware func(next Handler) Handler

// TypeOption is an option of Handle.
type TypeOption interface{ applyToType(*typeOptions) error }

type typeOptions struct {
	settings   holdfast.TypeSettings
	middleware []Middleware
	payload    reflect.Type // the type into which the handler decodes payloads; nil if it accepts any payload
}

type typeOption func(*typeOptions) error

func (f typeOption) applyToType(t *typeOptions) error { return f(t) }

// typeField is an option that cannot fail.
type typeField func(*typeOptions)

func (f typeField) applyToType(t *typeOptions) error {
	f(t)
	return nil
}

// Handle registers handle for the tasks of a type. The worker decodes the payload from JSON into a P. If the payload
// does not fit, the task is dead at once, because a retry cannot help. To get the payload unchanged, use
// json.RawMessage as P. The options override single settings of the type.
//
// The worker makes a JSON Schema from P and stores it. If a person edits the payload of a task, it must fit the schema;
// see AnyPayload.
//
// Handle returns ErrInvalid if the type already has a handler, if the name of the type is not valid, or if an option is
// wrong. It returns ErrConflict after Run has begun. Run returns these errors, too, so a program that calls Run may
// ignore them here.
func Handle[P any](c *Client, taskType string, handle func(ctx context.Context, task holdfast.Task, payload P) error, opts ...TypeOption) error {
	var typed Handler
	if handle != nil {
		typed = Handler(consumer.Typed(handle))
	}
	return c.handle(taskType, typed, reflect.TypeFor[P](), opts)
}

func (c *Client) handle(taskType string, handle Handler, payload reflect.Type, opts []TypeOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.register(taskType, handle, payload, opts)
	if err != nil {
		err = fmt.Errorf("handle type %.100q: %w", taskType, err)
		c.failed = append(c.failed, err)
	}
	return err
}

// register validates and stores the handler. The caller must hold c.mu.
func (c *Client) register(taskType string, handle Handler, payload reflect.Type, opts []TypeOption) error {
	if err := (holdfast.NewTask{Type: taskType}).Validate(0); err != nil {
		return err
	}
	_, exists := c.handlers[taskType]
	switch {
	case c.ran:
		return fmt.Errorf("%w: Run has begun; call Handle before Run", holdfast.ErrConflict)
	case exists:
		return fmt.Errorf("%w: the type already has a handler", holdfast.ErrInvalid)
	case handle == nil:
		return fmt.Errorf("%w: the handler is nil", holdfast.ErrInvalid)
	}
	var t typeOptions
	cfg, err := c.backend.Config.WithType(taskType, func(settings *holdfast.TypeSettings) error {
		t = typeOptions{settings: *settings, payload: payload}
		for _, option := range opts {
			if option == nil {
				continue
			}
			if err := option.applyToType(&t); err != nil {
				return err
			}
		}
		*settings = t.settings
		return nil
	})
	if err != nil {
		return err
	}
	if err := (holdfast.Settings{Defaults: cfg.Types[taskType]}).Validate(); err != nil {
		return err
	}
	for _, wrap := range slices.Backward(slices.Concat(c.options.middleware, t.middleware)) {
		if handle = wrap(handle); handle == nil {
			return fmt.Errorf("%w: a middleware returned a nil handler", holdfast.ErrInvalid)
		}
	}
	c.handlers[taskType] = typeHandler{handle, t.payload}
	c.use(cfg)
	return nil
}

// ClientTypeOption is an option of Open, for all types, and of Handle, for one type.
type ClientTypeOption interface {
	Option
	TypeOption
}

// Use wraps handlers in middleware. The first middleware is the outermost one. The middleware of Open wraps that of
// Handle.
func Use(middleware ...Middleware) ClientTypeOption { return middlewareOption(middleware) }

type middlewareOption []Middleware

func (m middlewareOption) check() error {
	if slices.ContainsFunc(m, func(one Middleware) bool { return one == nil }) {
		return fmt.Errorf("%w: a middleware is nil", holdfast.ErrInvalid)
	}
	return nil
}

func (m middlewareOption) applyToClient(o *options) error {
	o.middleware = append(o.middleware, m...)
	return m.check()
}

func (m middlewareOption) applyToType(t *typeOptions) error {
	t.middleware = append(t.middleware, m...)
	return m.check()
}

// AnyPayload makes the worker store no JSON Schema of the payloads. People can then edit them to any JSON. It is for
// handlers whose middleware changes the payload before it is decoded, for example decrypts it.
func AnyPayload() TypeOption {
	return typeField(func(t *typeOptions) { t.payload = nil })
}

// Timeout limits the duration of one attempt; 0 means no limit.
func Timeout(d time.Duration) TypeOption {
	return typeField(func(t *typeOptions) { t.settings.Timeout = d })
}

// AbandonAfter limits how long the handler may ignore the end of its context, one hour by default. Then the worker gives
// up the attempt and refuses its result; see holdfast.TypeSettings. 0 means no limit.
func AbandonAfter(d time.Duration) TypeOption {
	return typeField(func(t *typeOptions) { t.settings.AbandonAfter = d })
}

// Backoff sets exponential delays after failures. The first delay is first, and no delay exceeds longest. The
// configuration sets the factor, 2.5 by default, and the jitter.
func Backoff(first, longest time.Duration) TypeOption {
	return typeOption(func(t *typeOptions) error {
		if longest < first {
			return fmt.Errorf("%w: the longest delay %s is shorter than the first delay %s", holdfast.ErrInvalid, longest, first)
		}
		p := &t.settings.Policy
		p.Strategy, p.Base, p.Max = holdfast.Exponential, first, longest
		if p.Factor < 1 {
			p.Factor = holdfast.DefaultPolicy().Factor
		}
		return nil
	})
}

// Delays sets the delays after the first failure, the second failure and so on. The last delay repeats.
func Delays(delays ...time.Duration) TypeOption {
	return typeField(func(t *typeOptions) {
		p := &t.settings.Policy
		p.Strategy, p.Delays, p.Max = holdfast.List, slices.Clone(delays), 0
	})
}

// Policy replaces the whole retry policy. Start from holdfast.DefaultPolicy.
func Policy(policy holdfast.Policy) TypeOption {
	return typeField(func(t *typeOptions) { t.settings.Policy = policy })
}

// KeepAttempts sets which attempts are recorded. If Policy is used too, give KeepAttempts after it, because Policy
// replaces it.
func KeepAttempts(keep holdfast.Keep) TypeOption {
	return typeField(func(t *typeOptions) { t.settings.Policy.KeepAttempts = keep })
}

// AtMostOnce makes the tasks of the type run at most once: after an attempt has started, no other attempt starts before
// a person retries the task. So if an attempt does not succeed, its task is dead. If Policy is used too, give AtMostOnce
// after it, because Policy replaces it. A worker with such a handler claims no tasks ahead of its executors, so run
// these types in a process of their own.
func AtMostOnce() TypeOption {
	return typeField(func(t *typeOptions) { t.settings.Policy.AtMostOnce = true })
}

// AfterDeath sets what the death of an ordered task does to the later tasks of its key; see [Ordered]. If Policy is
// used too, give AfterDeath after it, because Policy replaces it.
func AfterDeath(after holdfast.AfterDeath) TypeOption {
	return typeField(func(t *typeOptions) { t.settings.Policy.AfterDeath = after })
}

// PolicyFunc sets a function that returns the policy for the error of an attempt. Its argument policy is the policy of
// the type, with the delays of the source if the task is a slice; see [SourceRetry]. f may change and return it. f must
// be safe for concurrent use, and runs on a goroutine of its own. If f panics or returns an invalid policy, the worker
// logs an error and uses the argument. After a panic, the record of the attempt has its stack.
func PolicyFunc(f func(policy holdfast.Policy, err error) holdfast.Policy) TypeOption {
	return typeField(func(t *typeOptions) { t.settings.PolicyFor = f })
}

// Execute calls the handler of a claimed task, as Run does for each attempt, and returns the resulting transition
// without storing it. now is the time of the store. It returns ErrNotFound if the type has no handler. Execute is for
// package queuetest.
func (c *Client) Execute(ctx context.Context, task holdfast.Task, now time.Time) (holdfast.Transition, error) {
	c.mu.Lock()
	h, ok := c.handlers[task.Type]
	c.mu.Unlock()
	if !ok {
		return holdfast.Transition{}, fmt.Errorf("execute task %s: %w: no handler for type %q", task.ID, holdfast.ErrNotFound, task.Type)
	}
	settings := plan.TaskSettings((*c.settings.Load()).For(task.Type), &task)
	var cause holdfast.Cause
	var attempt effect.Context
	switch {
	case task.Doomed:
		cause = holdfast.KeyDied()
	case settings.Policy.StartedBefore(task):
		cause = holdfast.StartedBefore()
	case settings.Policy.Expired(task, now):
		cause = holdfast.Expired()
	default:
		ctx := attempt.Begin(ctx, &executing{c, task, now})
		cause = consumer.Attempt(ctx, consumer.HandlerFunc(h.handle), task, settings.Timeout)
	}
	effects := attempt.End()
	policy, cause, err := settings.PolicyOf(cause)
	if err != nil {
		c.log().WithError(err).WithField("task", task.ID).Error("policy function failed: using the policy of the task's type")
	}
	move, err := holdfast.Settle(task, cause, now, policy)
	if move.Event == holdfast.EventComplete {
		move.Effects = effects
	}
	return move, err
}
