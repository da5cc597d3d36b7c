package holdfast

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Sentinel errors that callers act on. They are usually wrapped; compare with errors.Is.
var (
	// ErrInvalid marks input that is not acceptable in its present form.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound marks a task, worker or queue that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict marks a request that is not allowed in the present state, such as a retry of a running task.
	ErrConflict = errors.New("conflict")
	// ErrUnavailable marks a server that cannot be reached now. The caller may try again later.
	ErrUnavailable = errors.New("unavailable")
)

// Causes with which the worker cancels the context of a handler; see [context.Cause].
var (
	// ErrLeaseLost: the worker could not renew its lease, so another worker may already run the task.
	ErrLeaseLost = errors.New("the worker lost its lease")
	// ErrDraining: the worker is shutting down, and its drain timeout has expired.
	ErrDraining = errors.New("the worker is shutting down")
	// ErrCancelled: an operator cancelled the task.
	ErrCancelled = errors.New("the task was cancelled")
	// ErrTimeout: the attempt ran longer than its timeout.
	ErrTimeout = errors.New("the attempt timed out")
)

// outcome is the error type of Permanent, Defer, RetryAfter, Cancel and WorkerFault. It has the event that the handler
// requests, and the reason.
type outcome struct {
	event Event
	after time.Duration
	cause error
	free  bool // the deferral is not counted, because the fault is in the worker
}

func (o *outcome) Error() string {
	if o.cause == nil {
		return string(o.event)
	}
	return o.cause.Error()
}

func (o *outcome) Unwrap() error { return o.cause }

// Permanent returns an error that makes the task dead at once, because another attempt would fail, too. err may be nil.
func Permanent(err error) error { return &outcome{event: EventGiveUp, cause: err} }

// Defer returns an error that makes the task ready again after d without counting a failure. A negative d is zero.
// Policy.MaxDeferrals and Policy.Deadline limit the deferrals. err may be nil.
func Defer(d time.Duration, err error) error {
	return &outcome{event: EventDefer, after: max(d, 0), cause: err}
}

// RetryAfter returns an error that counts as a failure. For this attempt only, d replaces the delay of the policy. A
// negative d is treated as zero. err may be nil.
func RetryAfter(d time.Duration, err error) error {
	return &outcome{event: EventRetry, after: max(d, 0), cause: err}
}

// Cancel returns an error that moves the task to the state Cancelled, because its work is no longer wanted. err is the
// reason and may be nil.
func Cancel(err error) error { return &outcome{event: EventCancel, cause: err} }

// WorkerFault returns an error that makes the task ready again after d, because the fault is in this worker and not in
// the task. For example, the worker has no free file descriptors or no network. A negative d is treated as zero.
// Neither a failure nor a deferral is counted; only Policy.Deadline limits such attempts. The worker takes fewer tasks
// for a while. err may be nil.
func WorkerFault(d time.Duration, err error) error {
	return &outcome{event: EventDefer, after: max(d, 0), cause: err, free: true}
}

// IsWorkerFault reports whether err was made with WorkerFault.
func IsWorkerFault(err error) bool {
	o, ok := errors.AsType[*outcome](err)
	return ok && o.free
}

// TargetFault marks err as a fault of the task's target: the target has answered that it cannot work for any task, such
// as with an HTTP status 502. If a target has several faults in succession, the worker trips its breaker. The mark does
// not change the outcome of the attempt. It has no effect on a task without a target; see TargetOf. TargetFault returns
// nil if err is nil.
func TargetFault(err error) error { return marked(err, TargetMark{Fault: true, Answered: true}) }

// MessageFault marks err as a fault that may be the fault of this task alone: the target has answered that it cannot
// work for this task, such as with an HTTP status 500. Faults of a few tasks do not trip the breaker. It trips if most
// of the tasks in its window fail. In all other respects, MessageFault is like TargetFault.
func MessageFault(err error) error {
	return marked(err, TargetMark{Fault: true, Answered: true, Message: true})
}

// NoAnswer marks err as a fault of a target that did not answer. In all other respects, NoAnswer is like TargetFault.
func NoAnswer(err error) error { return marked(err, TargetMark{Fault: true}) }

// Refused marks err as a request of the task's target for a pause of d, such as an HTTP status 429. 0 or a negative d
// means that the target has not named a time. The worker trips the breaker of the target at once. In all other
// respects, Refused is like TargetFault.
func Refused(d time.Duration, err error) error {
	return marked(err, TargetMark{Fault: true, Answered: true, Refused: true, Pause: max(d, 0)})
}

// Answered marks err as an answer that proves that the task's target works, such as an HTTP status 404. An error
// without a mark says nothing about the target.
func Answered(err error) error { return marked(err, TargetMark{Answered: true}) }

// TargetMark is the information in an error about the target of a task.
type TargetMark struct {
	Fault    bool // the target cannot work
	Message  bool // the fault may be that of the task alone
	Answered bool // the target has answered
	Refused  bool // the target has requested a pause
	Pause    time.Duration
}

type targetError struct {
	error
	mark TargetMark
}

func (e *targetError) Unwrap() error { return e.error }

func marked(err error, mark TargetMark) error {
	if err == nil {
		return nil
	}
	return &targetError{err, mark}
}

// TargetMarkOf returns the mark of err. A nil error is treated as an answer.
func TargetMarkOf(err error) TargetMark {
	if err == nil {
		return TargetMark{Answered: true}
	}
	if e, ok := errors.AsType[*targetError](err); ok {
		return e.mark
	}
	return TargetMark{}
}

// HasOutcome reports whether err comes from Permanent, Defer, RetryAfter, Cancel or WorkerFault, and so decides the
// outcome of the attempt.
func HasOutcome(err error) bool {
	_, ok := errors.AsType[*outcome](err)
	return ok
}

// PanicError is a panic of a handler, recovered by the worker.
type PanicError struct {
	Value any // nil if the handler ended its goroutine with runtime.Goexit
	Stack string
}

func (p *PanicError) Error() string {
	if p.Value == nil {
		return "the handler ended its goroutine without returning (runtime.Goexit)"
	}
	return fmt.Sprintf("panic: %v", p.Value)
}

// Detailed wraps err with data for the record of the attempt, such as an HTTP response. class is a short name for a
// kind of error; Detailed cuts it to MaxNameLength bytes. details must marshal to at most MaxDetailsLength bytes of
// JSON. Otherwise the record has the reason instead. Detailed returns nil if err is nil.
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
	// A json.RawMessage may contain invalid UTF-8, which SQL stores refuse.
	encoded = bytes.ToValidUTF8(encoded, []byte("\uFFFD"))
	return &detailed{err, clip(class, MaxNameLength), encoded}
}

type detailed struct {
	error
	class   string
	details json.RawMessage
}

func (d *detailed) Unwrap() error { return d.error }

// Limits of the record of an error, in bytes.
const (
	MaxErrorLength   = 8 << 10
	MaxStackLength   = 16 << 10
	MaxDetailsLength = 512 << 10
)

// Report describes an error in the record of an attempt.
type Report struct {
	Class   string
	Error   string
	Stack   string
	Details json.RawMessage
}

func (r *Report) isZero() bool {
	return r.Class == "" && r.Error == "" && r.Stack == "" && len(r.Details) == 0
}

// ReportOf returns the report of err. Class is the class given to Detailed, or else the name of a known cause, or else
// "error". If a method of err panics or calls runtime.Goexit, the report describes that failure and has its stack.
func ReportOf(err error) Report {
	if err == nil {
		return Report{}
	}
	err = contain(err)
	report := Report{Class: classOf(err), Error: err.Error()}
	if p, ok := errors.AsType[*PanicError](err); ok {
		report.Stack = clip(p.Stack, MaxStackLength)
	}
	if d, ok := errors.AsType[*detailed](err); ok {
		report.Class, report.Details = d.class, d.details
	}
	return report
}

// onceClass is the class of a death whose only reason is that the type of the task runs at most once.
const onceClass = "once"

// knownCauses are the errors with a class of their own.
var knownCauses = []struct {
	err   error
	class string
}{
	{ErrTimeout, "timeout"}, {ErrLeaseLost, "lease_lost"}, {ErrDraining, "drain"}, {ErrCancelled, "cancelled"},
	{ErrInvalid, "invalid"}, {errCrashed, "crash"}, {errExpired, "deadline"}, {errOnce, onceClass},
}

func classOf(err error) string {
	if p, ok := errors.AsType[*PanicError](err); ok && p.Value != nil {
		return "panic"
	}
	for _, known := range knownCauses {
		if errors.Is(err, known.err) {
			return known.class
		}
	}
	return "error"
}
