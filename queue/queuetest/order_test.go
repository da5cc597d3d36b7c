package queuetest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/queue/queuetest"
)

// names registers the type x, whose handler records the payloads of the attempts. A payload "dies" fails for good, and
// "retries" fails once, unless the test has set repaired.
type names struct {
	ran      []string
	repaired bool
}

func (n *names) handle(t *testing.T, q *queuetest.Queue, opts ...queue.TypeOption) {
	t.Helper()
	must(t, queue.Handle(q.Client, "x", func(_ context.Context, task holdfast.Task, name string) error {
		n.ran = append(n.ran, name)
		switch {
		case name == "dies" && !n.repaired:
			return holdfast.Permanent(errBoom)
		case name == "retries" && task.Failures == 0:
			return holdfast.RetryAfter(time.Hour, errBoom)
		}
		return nil
	}, opts...))
}

func (n *names) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(n.ran, want) {
		t.Errorf("the attempts are %q, want %q", n.ran, want)
	}
}

// A task waits behind the active one of its key, also while that one waits for a retry. Other tasks do not wait.
func TestOrderedTasksWaitForTheirTurns(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	var n names
	n.handle(t, q)
	enqueue(t, q, "x", "retries", queue.Ordered("a"))
	second := enqueue(t, q, "x", "second", queue.Ordered("a"))
	enqueue(t, q, "x", "third", queue.Ordered("a"), queue.In(3*time.Hour))
	enqueue(t, q, "x", "other", queue.Ordered("b"))
	if after := q.RunDue(); len(after) != 2 {
		t.Errorf("RunDue returned %+v", after)
	}
	n.want(t, "retries", "other")
	start := q.Now()
	if task := q.RunOne(); task.State != holdfast.Done || q.Now().Sub(start) < 50*time.Minute {
		t.Errorf("at %s: %+v", q.Now(), task)
	}
	if task := q.RunOne(); task.ID != second || task.State != holdfast.Done {
		t.Errorf("after the retry: %+v", task)
	}
	q.RunAll()
	n.want(t, "retries", "other", "retries", "second", "third")
	if passed := q.Now().Sub(start); passed != 3*time.Hour {
		t.Errorf("the last task ran after %s", passed)
	}
}

// A death holds the later tasks until a person has dealt with it.
func TestATaskWaitsBehindADeadOneOfItsKey(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	var n names
	n.handle(t, q)
	first := enqueue(t, q, "x", "dies", queue.Ordered("a"))
	enqueue(t, q, "x", "second", queue.Ordered("a"))
	if after := q.RunAll(); len(after) != 1 || after[0].State != holdfast.Dead {
		t.Errorf("RunAll returned %+v", after)
	}
	q.RequireEnqueued("x", "second", queue.Ordered("a"))
	n.repaired = true
	_, err := q.Retry(t.Context(), first)
	must(t, err)
	q.RunAll()
	n.want(t, "dies", "dies", "second")

	text := fatalText(t, func(q *queuetest.Queue) { q.RunAll(); q.RunOne() }, func(q *queuetest.Queue) {
		new(names).handle(t, q)
		enqueue(t, q, "x", "dies", queue.Ordered("a"))
		enqueue(t, q, "x", "second", queue.Ordered("a"))
	})
	for _, want := range []string{"no ready task can start", "task 2: ", "waits behind task 1 of its key, which is dead"} {
		if !strings.Contains(text, want) {
			t.Errorf("failed with %q, want %q", text, want)
		}
	}
}

// The other policies for a death apply, too.
func TestAfterDeath(t *testing.T) {
	t.Parallel()
	for after, want := range map[holdfast.AfterDeath]holdfast.State{
		holdfast.AfterDeathSkip: holdfast.Done, holdfast.AfterDeathDead: holdfast.Dead,
	} {
		q := queuetest.New(t)
		var n names
		n.handle(t, q, queue.AfterDeath(after))
		enqueue(t, q, "x", "dies", queue.Ordered("a"))
		enqueue(t, q, "x", "second", queue.Ordered("a"))
		tasks := q.RunAll()
		if len(tasks) != 2 || tasks[0].State != holdfast.Dead || tasks[1].State != want {
			t.Errorf("%s: %+v", after, tasks)
		}
		if want == holdfast.Done {
			n.want(t, "dies", "second")
		} else {
			n.want(t, "dies")
		}
	}
}

// Topics start their tasks in turn, whatever the number of tasks of each. Tasks without a topic do not wait.
func TestTopicsStartTasksInTurn(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	var n names
	n.handle(t, q)
	for i := range 50 {
		enqueue(t, q, "x", fmt.Sprint("big ", i), queue.Topic("big"))
	}
	enqueue(t, q, "x", "small 0", queue.Topic("small"))
	enqueue(t, q, "x", "small 1", queue.Topic("small"))
	enqueue(t, q, "x", "none")
	q.RunDue()
	if len(n.ran) != 53 {
		t.Fatalf("%d attempts", len(n.ran))
	}
	for name, want := range map[string]int{"big 0": 0, "small 0": 1, "small 1": 3, "big 20": 22} {
		if at := slices.Index(n.ran, name); at != want {
			t.Errorf("%s was attempt %d, want %d: %q", name, at, want, n.ran)
		}
	}
}

// A task with a topic can be delayed, retried and ordered.
func TestTasksWithTopicsWaitForOtherReasons(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	var n names
	n.handle(t, q)
	enqueue(t, q, "x", "retries", queue.Topic("a"), queue.Ordered("k"))
	enqueue(t, q, "x", "second", queue.Topic("a"), queue.Ordered("k"))
	enqueue(t, q, "x", "now", queue.Topic("a"))
	enqueue(t, q, "x", "later", queue.Topic("b"), queue.In(30*time.Minute))
	q.RunDue()
	n.want(t, "retries", "now")
	q.RunAll()
	n.want(t, "retries", "now", "later", "retries", "second")
}

// Tasks that are due at the same time in the future start in turn, too.
func TestTopicsThatAreDueTogetherTakeTurns(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	var n names
	n.handle(t, q)
	for _, name := range []string{"big 0", "big 1", "big 2", "small 0"} {
		topic, _, _ := strings.Cut(name, " ")
		enqueue(t, q, "x", name, queue.Topic(topic), queue.In(time.Hour))
	}
	q.RunAll()
	n.want(t, "big 0", "small 0", "big 1", "big 2")
}

// RequireEnqueued compares the order, the topic and the priority, also with those that are the defaults.
func TestRequireEnqueuedComparesHowATaskStarts(t *testing.T) {
	t.Parallel()
	fill := func(q *queuetest.Queue) {
		enqueue(t, q, "x", "ordered", queue.Ordered("a"), queue.Topic("news"), queue.Priority(holdfast.PriorityHigh))
		enqueue(t, q, "x", "plain", queue.Key("b"))
		enqueue(t, q, "x", "delayed", queue.In(time.Hour), queue.Priority(holdfast.PriorityLow))
	}
	for name, c := range map[string]struct {
		payload any
		option  queue.TaskOption
		found   bool
	}{
		"ordered":           {"ordered", queue.Ordered("a"), true},
		"its key":           {"ordered", queue.Key("a"), true},
		"not ordered":       {"plain", queue.Ordered("b"), false},
		"topic":             {"ordered", queue.Topic("news"), true},
		"another topic":     {"ordered", queue.Topic("sports"), false},
		"no topic":          {"plain", queue.Topic("news"), false},
		"high":              {"ordered", queue.Priority(holdfast.PriorityHigh), true},
		"not normal":        {"ordered", queue.Priority(holdfast.PriorityNormal), false},
		"not low":           {"plain", queue.Priority(holdfast.PriorityLow), false},
		"low":               {"delayed", queue.Priority(holdfast.PriorityLow), true},
		"the normal one":    {queuetest.Any, queue.Priority(holdfast.PriorityNormal), true},
		"without a delay":   {"plain", queue.In(0), true},
		"not without delay": {"delayed", queue.In(0), false},
	} {
		text := fatalText(t, func(q *queuetest.Queue) { q.RequireEnqueued("x", c.payload, c.option) }, fill)
		if (text == "") != c.found {
			t.Errorf("%s: %q", name, text)
		}
	}
	text := fatalText(t, func(q *queuetest.Queue) { q.RequireEnqueued("x", "none") }, fill)
	for _, want := range []string{`priority high, key "a", topic "news"`, `key "b"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the error does not describe the tasks with %q: %s", want, text)
		}
	}
}

// RunBatch ends although subtasks wait behind a dead task.
func TestRunBatchWithOrderedSubtasks(t *testing.T) {
	t.Parallel()
	ordered := []queue.TaskOption{queue.Ordered("a")}
	for fails, want := range map[string]string{"dies": "waits behind task 1 of its key, which is dead", "first": ""} {
		var status queue.BatchStatus
		text := fatalText(t, func(q *queuetest.Queue) { status = q.RunBatch(1) }, func(q *queuetest.Queue) {
			new(names).handle(t, q)
			b, err := q.OpenBatch(t.Context())
			must(t, err)
			enqueue(t, q, "x", fails, ordered...)
			must(t, b.AddTasks(t.Context(), []queue.NewTask{{Type: "x", Payload: "second", Options: ordered}}))
			must(t, b.Seal(t.Context()))
		})
		if !strings.Contains(text, want) || (want == "") != (status.State == queue.BatchDone) {
			t.Errorf("%s: %q, %+v", fails, text, status)
		}
	}
	q := queuetest.New(t)
	new(names).handle(t, q)
	b, err := q.OpenBatch(t.Context())
	must(t, err)
	both := []queue.NewTask{{Type: "x", Payload: "dies", Options: ordered}, {Type: "x", Payload: "second", Options: ordered}}
	must(t, b.AddTasks(t.Context(), both))
	must(t, b.Seal(t.Context()))
	if status := q.RunBatch(b.ID()); status.State != queue.BatchStopped || status.Now.Dead != 1 {
		t.Errorf("a batch whose own subtask is dead: %+v", status)
	}
}
