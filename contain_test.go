package holdfast_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

// faulty is an error whose methods call functions. A nil function means that the method does nothing.
type faulty struct {
	text   func() string
	is     func() bool
	as     func() bool
	unwrap func() error
}

func (f *faulty) Error() string {
	if f.text == nil { // also panics if f is nil
		return "faulty"
	}
	return f.text()
}

func (f *faulty) Is(error) bool { return f.is != nil && f.is() }

func (f *faulty) As(any) bool { return f.as != nil && f.as() }

func (f *faulty) Unwrap() error {
	if f.unwrap == nil {
		return nil
	}
	return f.unwrap()
}

// evil is a panic value that cannot be printed.
type evil struct{ exits bool }

func (e evil) Error() string {
	if e.exits {
		runtime.Goexit()
	}
	panic(e)
}

func exit[T any]() T {
	runtime.Goexit()
	panic("not reached")
}

func TestAnErrorThatCannotBeReadIsAFailureWithAStack(t *testing.T) {
	t.Parallel()
	var none *faulty
	wrong := errors.New("wrong")
	for name, err := range map[string]error{
		"Error of nil":             none,
		"Error panics":             &faulty{text: func() string { panic("boom") }},
		"Error panics with itself": &faulty{text: func() string { panic(evil{}) }},
		"Error panics and exits":   &faulty{text: func() string { panic(evil{exits: true}) }},
		"Error exits":              &faulty{text: exit[string]},
		"Error of a wrapped error": &faulty{text: func() string { return none.Error() }, unwrap: func() error { return none }},
		"Error of a joined error":  errors.Join(wrong, none),
		"Is panics":                &faulty{is: func() bool { panic("boom") }},
		"Is exits":                 &faulty{is: exit[bool]},
		"As panics":                &faulty{as: func() bool { panic(wrong) }},
		"As exits":                 &faulty{as: exit[bool]},
		"Unwrap panics":            &faulty{unwrap: func() error { panic("boom") }},
		"Unwrap exits":             &faulty{unwrap: exit[error]},
		"a mark":                   holdfast.TargetFault(none),
		"details":                  holdfast.Detailed(none, "mine", 1),
	} {
		cause := holdfast.Returned(err)
		move, settleErr := holdfast.Settle(running(), cause, time.Now(), holdfast.DefaultPolicy())
		if settleErr != nil || move.Event != holdfast.EventRetry || move.Failures != 1 || !move.Recorded {
			t.Errorf("%s: %+v, %v", name, move, settleErr)
		}
		report := holdfast.ReportOf(err)
		if report.Error != move.Report.Error || !strings.Contains(report.Error, "a method of the error failed") || !strings.Contains(report.Stack, "contain_test.go") {
			t.Errorf("%s: the report is %+v", name, report)
		}
		if strings.HasPrefix(name, "Error") && !strings.Contains(report.Error, "cannot be read") {
			t.Errorf("%s: the report does not say that the text cannot be read: %s", name, report.Error)
		}
	}
}

// The outcome that an error requests and its mark for the target apply, even if the text of the error cannot be read.
func TestWhatCanBeReadOfAnErrorCounts(t *testing.T) {
	t.Parallel()
	var none *faulty
	move, err := holdfast.Settle(running(), holdfast.Returned(fmt.Errorf("%w", holdfast.ErrTimeout)), time.Now(), holdfast.DefaultPolicy())
	if err != nil || move.Report.Class != "timeout" {
		t.Errorf("a timeout: %+v, %v", move, err)
	}
	move, err = holdfast.Settle(running(), holdfast.Returned(holdfast.Permanent(holdfast.Refused(time.Minute, holdfast.Detailed(none, "mine", 1)))), time.Now(), holdfast.DefaultPolicy())
	if err != nil || move.Event != holdfast.EventGiveUp || move.Report.Class != "mine" || string(move.Report.Details) != "1" || move.Report.Stack == "" {
		t.Errorf("a permanent failure: %+v, %v", move, err)
	}
	read := holdfast.Returned(holdfast.Refused(time.Minute, none)).Err()
	if mark := holdfast.TargetMarkOf(read); !mark.Refused || mark.Pause != time.Minute {
		t.Errorf("the mark is %+v", mark)
	}
	if worker := holdfast.Returned(holdfast.WorkerFault(0, none)).Err(); !holdfast.IsWorkerFault(worker) || worker.Error() == "" {
		t.Errorf("a fault of the worker: %v", worker)
	}
	panicked := holdfast.Returned(&holdfast.PanicError{Value: evil{exits: true}, Stack: "the first stack"})
	if report := holdfast.ReportOf(panicked.Err()); report.Class != "panic" || report.Stack != "the first stack" {
		t.Errorf("a panic whose value cannot be printed: %+v", report)
	}
	forwards := &faulty{}
	forwards.is = func() bool { return true }
	if report := holdfast.ReportOf(forwards); report.Class != "timeout" {
		t.Errorf("a method Is is ignored: %+v", report)
	}
}

// An error may wrap itself.
func TestACycleOfErrorsIsRead(t *testing.T) {
	t.Parallel()
	cycle := &faulty{text: func() string { return "again" }}
	cycle.unwrap = func() error { return cycle }
	if report := holdfast.ReportOf(cycle); report.Error != "again" || report.Class != "error" {
		t.Errorf("got %+v", report)
	}
	several := &joined{}
	several.list = []error{several, several}
	if report := holdfast.ReportOf(several); report.Error != "joined" {
		t.Errorf("got %+v", report)
	}
}

type joined struct{ list []error }

func (*joined) Error() string     { return "joined" }
func (j *joined) Unwrap() []error { return j.list }

// A policy function gets the original error of the handler, also after a timeout.
func TestPolicyForGetsTheOriginalError(t *testing.T) {
	t.Parallel()
	var got error
	settings := holdfast.TypeSettings{Policy: holdfast.DefaultPolicy(), PolicyFor: func(p holdfast.Policy, err error) holdfast.Policy {
		got, p.MaxAttempts = err, 7
		return p
	}}
	own := &faulty{text: func() string { return "own" }}
	for name, cause := range map[string]holdfast.Cause{
		"as returned": holdfast.Returned(own),
		"wrapped":     holdfast.Returned(fmt.Errorf("%w: %w", holdfast.ErrTimeout, holdfast.Returned(own).Err())),
	} {
		policy, _, err := settings.PolicyOf(cause)
		if err != nil || policy.MaxAttempts != 7 {
			t.Errorf("%s: %+v, %v", name, policy, err)
		}
		if found, ok := errors.AsType[*faulty](got); !ok || found != own || errors.Is(got, holdfast.ErrTimeout) != (name == "wrapped") {
			t.Errorf("%s: the function gets %v", name, got)
		}
	}
	if policy, _, err := settings.PolicyOf(holdfast.Returned(io.EOF)); got != io.EOF || err != nil || policy.MaxAttempts != 7 {
		t.Errorf("the function gets %v; %v", got, err)
	}
}

func TestAPolicyFunctionThatEndsItsGoroutineLeavesAStack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){
		"panics": func() { panic("boom") }, "panics with an error that cannot be printed": func() { panic(evil{exits: true}) }, "exits": runtime.Goexit,
	} {
		settings := holdfast.TypeSettings{Policy: holdfast.DefaultPolicy(), PolicyFor: func(holdfast.Policy, error) holdfast.Policy {
			end()
			return holdfast.Policy{}
		}}
		policy, cause, err := settings.PolicyOf(holdfast.Returned(errBoom))
		if err == nil || err.Error() == "" || policy.MaxAttempts != holdfast.DefaultMaxAttempts {
			t.Errorf("%s: %+v, %v", name, policy, err)
		}
		move, settleErr := holdfast.Settle(running(), cause, time.Now(), policy)
		if settleErr != nil || move.Event != holdfast.EventRetry || !strings.Contains(move.Report.Stack, "contain_test.go") ||
			!strings.HasPrefix(move.Report.Error, "boom; the policy function failed: ") {
			t.Errorf("%s: %+v, %v", name, move, settleErr)
		}
	}
}

// Reading a success allocates no memory.
func TestASuccessIsReadWithoutMemory(t *testing.T) {
	settings := holdfast.TypeSettings{Policy: holdfast.DefaultPolicy(), PolicyFor: func(p holdfast.Policy, _ error) holdfast.Policy { return p }}
	if n := testing.AllocsPerRun(100, func() { _, _, _ = settings.PolicyOf(holdfast.Returned(nil)) }); n != 0 {
		t.Errorf("%.0f allocations for a success, want none", n)
	}
}
