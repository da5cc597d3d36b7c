package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/queue/queuetest"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

type welcome struct {
	Email string `json:"email"`
	Trial bool   `json:"trial"`
}

var errBoom = errors.New("boom")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func enqueue(t *testing.T, q *queuetest.Queue, taskType string, payload any, opts ...queue.TaskOption) holdfast.TaskID {
	t.Helper()
	result, err := q.Enqueue(t.Context(), taskType, payload, opts...)
	must(t, err)
	return result.ID
}

// fatalRecorder is a testing.TB that records the message of Fatal and panics with itself.
type fatalRecorder struct {
	testing.TB
	text string
}

func (f *fatalRecorder) Helper() {}

func (f *fatalRecorder) Fatal(args ...any) {
	f.text = fmt.Sprint(args...)
	panic(f)
}

func (f *fatalRecorder) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// fatalText returns the message with which call fails its test, or "" if the test passes. fill stores tasks before the
// call.
func fatalText(t *testing.T, call func(q *queuetest.Queue), fill func(q *queuetest.Queue)) (text string) {
	t.Helper()
	f := &fatalRecorder{TB: t}
	q := queuetest.New(f)
	fill(q)
	defer func() {
		if v := recover(); v != nil && v != any(f) {
			panic(v)
		}
		text = f.text
	}()
	call(q)
	return ""
}

func TestRequireEnqueued(t *testing.T) {
	t.Parallel()
	fill := func(q *queuetest.Queue) {
		enqueue(t, q, "welcome", welcome{"ada@example.com", false}, queue.In(time.Hour), queue.Unique("ada"), queue.Queue("mail"), queue.MaxAttempts(3), queue.Tags("new", "eu"))
		enqueue(t, q, "welcome", welcome{"bob@example.com", false})
		enqueue(t, q, "other", nil)
	}
	ada := welcome{"ada@example.com", false}
	for name, c := range map[string]struct {
		taskType string
		payload  any
		options  []queue.TaskOption
		found    bool
	}{
		"payload":         {"welcome", ada, nil, true},
		"another payload": {"welcome", welcome{"ada@example.com", true}, nil, false},
		"map":             {"welcome", map[string]any{"trial": false, "email": "ada@example.com"}, nil, true},
		"several":         {"welcome", queuetest.Any, nil, false},
		"any":             {"other", queuetest.Any, nil, true},
		"null":            {"other", nil, nil, true},
		"no null":         {"welcome", nil, nil, false},
		"another type":    {"goodbye", queuetest.Any, nil, false},
		"all options":     {"welcome", ada, []queue.TaskOption{queue.In(time.Hour), queue.Unique("ada"), queue.Queue("mail"), queue.MaxAttempts(3)}, true},
		"at":              {"welcome", queuetest.Any, []queue.TaskOption{queue.At(time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC))}, true},
		"another time":    {"welcome", ada, []queue.TaskOption{queue.In(2 * time.Hour)}, false},
		"a tag":           {"welcome", ada, []queue.TaskOption{queue.Tags("new")}, true},
		"another tag":     {"welcome", ada, []queue.TaskOption{queue.Tags("new", "old")}, false},
		"another key":     {"welcome", ada, []queue.TaskOption{queue.Unique("bob")}, false},
		"another queue":   {"welcome", ada, []queue.TaskOption{queue.Queue("default")}, false},
		"another limit":   {"welcome", ada, []queue.TaskOption{queue.MaxAttempts(4)}, false},
		"wrong option":    {"welcome", ada, []queue.TaskOption{queue.MaxAttempts(0)}, false},
	} {
		text := fatalText(t, func(q *queuetest.Queue) {
			if task := q.RequireEnqueued(c.taskType, c.payload, c.options...); task.Type != c.taskType {
				t.Errorf("%s: the task is %+v", name, task)
			}
		}, fill)
		if (text == "") != c.found {
			t.Errorf("%s: %q", name, text)
		}
		text = fatalText(t, func(q *queuetest.Queue) { q.RequireNotEnqueued(c.taskType, c.payload, c.options...) }, fill)
		if passed := text == ""; passed == (c.found || name == "several" || name == "wrong option") {
			t.Errorf("%s: RequireNotEnqueued: %q", name, text)
		}
	}
	if text := fatalText(t, func(q *queuetest.Queue) { q.RequireEnqueued("x", nil) }, fill); !strings.Contains(text, `{"email":"bob@example.com","trial":false}`) {
		t.Errorf("the error does not list the ready tasks: %s", text)
	}
}

// unreadable is an error whose text cannot be read.
type unreadable struct{ end func() }

func (u *unreadable) Error() string { u.end(); return "" }

// User code may fail in any way while an attempt ends. RunOne returns, and the attempt is a failure with a stack.
func TestAnAttemptWhoseEndFailsIsAFailure(t *testing.T) {
	t.Parallel()
	var none *unreadable
	exits := queue.PolicyFunc(func(p holdfast.Policy, _ error) holdfast.Policy { runtime.Goexit(); return p })
	for name, c := range map[string]struct {
		err     error
		options []queue.TypeOption
	}{
		"a nil pointer":          {none, nil},
		"a text that exits":      {&unreadable{runtime.Goexit}, nil},
		"a policy that exits":    {errBoom, []queue.TypeOption{exits}},
		"an error and a policy":  {none, []queue.TypeOption{exits}},
		"a text with a deadline": {none, []queue.TypeOption{queue.Timeout(time.Hour)}},
	} {
		q := queuetest.New(t)
		must(t, queue.Handle(q.Client, "x", func(context.Context, holdfast.Task, string) error { return c.err }, c.options...))
		id := enqueue(t, q, "x", "")
		task := q.RunOne()
		attempts, err := q.Attempts(t.Context(), id)
		if err != nil || task.State != holdfast.Ready || task.Failures != 1 || task.LastError == "" || len(attempts) != 1 || attempts[0].Stack == "" {
			t.Errorf("%s: %+v, %+v, %v", name, task, attempts, err)
		}
	}
}

// Tasks run in the order of their due times, retries run after their delays, and the clock moves forward.
func TestTasksRunWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	start := q.Now()
	var ran []string
	must(t, queue.Handle(q.Client, "x", func(_ context.Context, task holdfast.Task, name string) error {
		ran = append(ran, fmt.Sprintf("%s at %s", name, q.Now().Sub(start)))
		if name == "fails" && task.Attempt < 3 {
			return errBoom
		}
		return nil
	}, queue.Delays(time.Minute, time.Hour)))
	enqueue(t, q, "x", "later", queue.In(30*time.Minute))
	enqueue(t, q, "x", "fails")
	enqueue(t, q, "x", "now")

	if after := q.RunDue(); len(after) != 2 || after[0].State != holdfast.Ready || after[0].Failures != 1 || after[1].State != holdfast.Done {
		t.Errorf("RunDue returned %+v", after)
	}
	if more := q.RunDue(); len(more) > 0 {
		t.Errorf("no task is due, but RunDue returned %+v", more)
	}
	if task := q.RunOne(); task.Failures != 2 || (task.NextRunAt.Sub(q.Now())-time.Hour).Abs() > 6*time.Minute { // the jitter is 10 %
		t.Errorf("at %s, after the second attempt: %+v", q.Now(), task)
	}
	if rest := q.RunAll(); len(rest) != 2 || rest[1].Failures != 2 || rest[1].State != holdfast.Done {
		t.Errorf("RunAll returned %+v", rest)
	}
	if len(q.Tasks(holdfast.Done)) != 3 || len(q.Tasks()) != 3 {
		t.Errorf("the tasks are %+v", q.Tasks())
	}
	order := make([]string, len(ran))
	for i, text := range ran {
		order[i], _, _ = strings.Cut(text, " ")
	}
	if want := []string{"fails", "now", "fails", "later", "fails"}; !slices.Equal(order, want) || ran[3] != "later at 30m0s" {
		t.Errorf("the attempts are %q", ran)
	}
}

// An attempt has the same result as in a real queue.
func TestAttemptsAreSettled(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t, queue.Logger(nil))
	for name, err := range map[string]error{
		"permanent": holdfast.Permanent(errBoom), "cancel": holdfast.Cancel(errBoom), "defer": holdfast.Defer(time.Minute, errBoom),
	} {
		must(t, queue.Handle(q.Client, name, func(context.Context, holdfast.Task, any) error { return err }, queue.MaxAttempts(1)))
	}
	must(t, queue.Handle(q.Client, "panics", func(context.Context, holdfast.Task, any) error { panic("no") }, queue.MaxAttempts(1)))
	must(t, queue.Handle(q.Client, "slow", func(ctx context.Context, _ holdfast.Task, _ any) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, queue.MaxAttempts(1), queue.Timeout(time.Millisecond)))
	for name, want := range map[string]holdfast.State{
		"permanent": holdfast.Dead, "cancel": holdfast.Cancelled, "defer": holdfast.Ready, "panics": holdfast.Dead, "slow": holdfast.Dead,
	} {
		id := enqueue(t, q, name, nil)
		if task := q.RunOne(); task.ID != id || task.State != want {
			t.Errorf("%s: %+v", name, task)
		}
		if want == holdfast.Ready {
			_, err := q.Cancel(t.Context(), id)
			must(t, err)
		}
		if attempts, err := q.Attempts(t.Context(), id); err != nil || len(attempts) != 1 {
			t.Errorf("%s: the attempts are %+v, %v", name, attempts, err)
		}
	}
}

// TestKeepAttempts checks that the option of Handle reaches the record of a success.
func TestKeepAttempts(t *testing.T) {
	t.Parallel()
	for keep, want := range map[holdfast.Keep]int{holdfast.KeepNone: 0, holdfast.KeepRetried: 0, holdfast.KeepAll: 1} {
		q := queuetest.New(t)
		must(t, queue.Handle(q.Client, "x", func(context.Context, holdfast.Task, any) error { return nil }, queue.KeepAttempts(keep)))
		id := enqueue(t, q, "x", nil)
		q.RunAll()
		attempts, err := q.Attempts(t.Context(), id)
		if err != nil || len(attempts) != want || want > 0 && attempts[0].Event != holdfast.EventComplete {
			t.Errorf("%s: %+v, %v; want %d attempts", keep, attempts, err, want)
		}
	}
	q := queuetest.New(t)
	if err := queue.Handle(q.Client, "x", func(context.Context, holdfast.Task, any) error { return nil }, queue.KeepAttempts("some")); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("an unknown value: %v", err)
	}
}

func TestKeysRetriesAndWaits(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	repaired := false
	must(t, queue.Handle(q.Client, "x", func(context.Context, holdfast.Task, any) error {
		if repaired {
			return nil
		}
		return holdfast.Permanent(errBoom)
	}))
	id := enqueue(t, q, "x", nil, queue.Unique("k"))
	if second, err := q.Enqueue(t.Context(), "x", nil, queue.Unique("k", queue.WhileOpen())); err != nil || !second.Duplicate || second.ID != id {
		t.Errorf("%+v, %v", second, err)
	}
	q.RunAll()
	if task, err := q.Wait(t.Context(), id); err != nil || task.State != holdfast.Dead {
		t.Errorf("%+v, %v", task, err)
	}
	repaired = true
	_, err := q.Retry(t.Context(), id)
	must(t, err)
	if task := q.RunOne(); task.State != holdfast.Done {
		t.Errorf("after the retry: %+v", task)
	}
	if result, err := q.Tx(noTransaction{}).Enqueue(t.Context(), "x", nil); err != nil || q.RunOne().ID != result.ID {
		t.Errorf("in a transaction: %+v, %v", result, err)
	}
}

// noTransaction replaces a transaction of the code under test.
type noTransaction struct{ store.Tx }

func TestFatalErrors(t *testing.T) {
	t.Parallel()
	empty := func(*queuetest.Queue) {}
	if text := fatalText(t, func(q *queuetest.Queue) { q.RunOne() }, empty); !strings.Contains(text, "no task is ready") {
		t.Errorf("no task: %q", text)
	}
	if text := fatalText(t, func(q *queuetest.Queue) { q.RunAll() }, func(q *queuetest.Queue) { enqueue(t, q, "x", nil) }); !strings.Contains(text, "no handler") {
		t.Errorf("no handler: %q", text)
	}
	if text := fatalText(t, func(q *queuetest.Queue) { q.Advance(-1) }, empty); !strings.Contains(text, "back") {
		t.Errorf("negative duration: %q", text)
	}
	endless := func(q *queuetest.Queue) {
		must(t, queue.Handle(q.Client, "x", func(context.Context, holdfast.Task, any) error {
			_, err := q.Enqueue(t.Context(), "x", nil)
			return err
		}))
		enqueue(t, q, "x", nil)
	}
	if text := fatalText(t, func(q *queuetest.Queue) { q.RunAll() }, endless); !strings.Contains(text, "still ready") {
		t.Errorf("endless tasks: %q", text)
	}
}

// A test can cover a program that calls Run in a goroutine: Run runs no task.
func TestRunRunsNothing(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	must(t, queue.Handle(q.Client, "x", func(context.Context, holdfast.Task, any) error { return nil }))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	id := enqueue(t, q, "x", nil)
	if q.RequireEnqueued("x", nil).ID != id || q.RunOne().State != holdfast.Done {
		t.Error("the task did not run")
	}
	cancel()
	must(t, <-ended)
}

// A thousand tests take at most ten seconds. On an idle machine they take less than one second.
func TestAThousandTests(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for range 1000 {
		t.Run("user", func(t *testing.T) {
			q := queuetest.New(t)
			sent := 0
			must(t, queue.Handle(q.Client, "welcome", func(_ context.Context, task holdfast.Task, _ welcome) error {
				if sent++; task.Attempt == 1 {
					return errBoom
				}
				return nil
			}))
			enqueue(t, q, "welcome", welcome{Email: "ada@example.com"}, queue.In(time.Hour))
			q.RequireEnqueued("welcome", welcome{Email: "ada@example.com"}, queue.In(time.Hour))
			if q.RunAll(); sent != 2 {
				t.Errorf("sent %d times", sent)
			}
		})
	}
	if took, most := time.Since(began), slow.Times(30*time.Second); took > most {
		t.Errorf("1000 tests took %s, want at most %s", took, most)
	} else {
		t.Logf("1000 tests took %s", took)
	}
}
