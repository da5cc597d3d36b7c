package holdfast

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Sentinels that callers act on. They are wrapped; compare with errors.Is.
var (
	// ErrInvalid marks input that can never be accepted as it is.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound marks a task, run or lane that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict marks a request that does not fit the present state, such as
	// retrying a task that is running.
	ErrConflict = errors.New("conflict")
	// ErrUnavailable marks a server that cannot be reached now; trying later may help.
	ErrUnavailable = errors.New("unavailable")
)

// Causes a handler's context is cancelled with; see [context.Cause].
var (
	// ErrLeaseLost: this process could not renew its lease, so another one may
	// already run the task.
	ErrLeaseLost = errors.New("the worker lost its lease")
	// ErrDraining: the worker is shutting down and the time to finish is over.
	ErrDraining = errors.New("the worker is shutting down")
	// ErrCancelled: an operator cancelled the task.
	ErrCancelled = errors.New("the task was cancelled")
	// ErrTimeout: the attempt ran longer than its timeout.
	ErrTimeout = errors.New("the attempt timed out")
)

// outcome is the error behind Permanent, Defer, RetryAfter, Cancel and WorkerFault: a
// handler's wish, with the reason.
type outcome struct {
	event Event
	after time.Duration
	cause error
	free  bool // the deferral is not counted, because the worker is at fault
}

func (o *outcome) Error() string {
	if o.cause == nil {
		return string(o.event)
	}
	return o.cause.Error()
}

func (o *outcome) Unwrap() error { return o.cause }

// Permanent makes the task dead at once: trying again cannot help. err may be nil.
func Permanent(err error) error { return &outcome{event: EventGiveUp, cause: err} }

// Defer defers the task: it comes back after d (a negative d is zero) and
// no failure is counted. Policy.MaxDeferrals and Policy.Deadline bound how often.
func Defer(d time.Duration, err error) error {
	return &outcome{event: EventDefer, after: max(d, 0), cause: err}
}

// RetryAfter fails the attempt, which is counted, and overrides the policy's delay
// for this one error with d (a negative d is zero).
func RetryAfter(d time.Duration, err error) error {
	return &outcome{event: EventRetry, after: max(d, 0), cause: err}
}

// Cancel ends the task in state Cancelled: its work is no longer wanted. err
// says why and may be nil.
func Cancel(err error) error { return &outcome{event: EventCancel, cause: err} }

// WorkerFault defers the task, because this worker and not the task is at fault: it has no file descriptors left, say,
// or no network. The task comes back after d (a negative d is zero) and nothing is counted; only Policy.Deadline bounds
// how often. The worker takes fewer tasks for a while.
func WorkerFault(d time.Duration, err error) error {
	return &outcome{event: EventDefer, after: max(d, 0), cause: err, free: true}
}

// IsWorkerFault reports whether err was made with WorkerFault.
func IsWorkerFault(err error) bool {
	o, ok := errors.AsType[*outcome](err)
	return ok && o.free
}

// HasOutcome reports whether err says by itself what shall become of the task:
// whether it was made with Permanent, Defer, RetryAfter, Cancel or WorkerFault.
func HasOutcome(err error) bool {
	_, ok := errors.AsType[*outcome](err)
	return ok
}

// PanicError is a panic of a handler, caught at its boundary.
type PanicError struct {
	Value any
	Stack string
}

func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Detailed wraps err with facts to keep in the attempt's record, such as an HTTP
// response. class says in a word what kind of error it is, at most MaxNameLength bytes.
// details must marshal to JSON of at most MaxDetailsLength bytes; of others only the reason
// why not is kept. It returns nil if err is nil.
func Detailed(err error, class string, details any) error {
	if err == nil {
		return nil
	}
	encoded, marshalErr := json.Marshal(details)
	if marshalErr == nil && len(encoded) > MaxDetailsLength {
		marshalErr = fmt.Errorf("%d bytes are more than the limit of %d", len(encoded), MaxDetailsLength)
	}
	if marshalErr != nil {
		encoded, _ = json.Marshal(map[string]string{"unreadable": marshalErr.Error()})
	}
	// A json.RawMessage may hold what is no UTF-8, which SQL stores refuse.
	encoded = bytes.ToValidUTF8(encoded, []byte("\uFFFD"))
	return &detailed{err, clip(class, MaxNameLength), encoded}
}

type detailed struct {
	error
	class   string
	details json.RawMessage
}

func (d *detailed) Unwrap() error { return d.error }

// Bounds of what is kept of an error, in bytes.
const (
	MaxErrorLength   = 8 << 10
	MaxStackLength   = 16 << 10
	MaxDetailsLength = 512 << 10
)

// Report is what is kept of an error in an attempt's record.
type Report struct {
	Class   string
	Error   string
	Stack   string
	Details json.RawMessage
}

// ReportOf reads what there is to keep of err. Class is the first of: the class
// given to Detailed, the name of a known cause, "error".
func ReportOf(err error) Report {
	if err == nil {
		return Report{}
	}
	report := Report{Class: classOf(err), Error: clip(err.Error(), MaxErrorLength)}
	if p, ok := errors.AsType[*PanicError](err); ok {
		report.Stack = clip(p.Stack, MaxStackLength)
	}
	if d, ok := errors.AsType[*detailed](err); ok {
		report.Class, report.Details = d.class, d.details
	}
	return report
}

func classOf(err error) string {
	if _, ok := errors.AsType[*PanicError](err); ok {
		return "panic"
	}
	for _, known := range []struct {
		err  error
		name string
	}{{ErrTimeout, "timeout"}, {ErrLeaseLost, "lease_lost"}, {ErrDraining, "drain"}, {ErrCancelled, "cancelled"}, {ErrInvalid, "invalid"}, {errCrashed, "crash"}} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	return "error"
}
