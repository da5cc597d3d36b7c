// Package queuetest is a queue in memory with a clock that stands still, for tests of programs that use package queue.
//
//	q := queuetest.New(t)
//	registerHandlers(q.Client)                   // queue.Handle, as the program does
//	signUp(ctx, q.Client, "ada@example.com")     // the code under test enqueues
//	q.RequireEnqueued("welcome", Welcome{"ada@example.com"}, queue.In(time.Hour))
//	task := q.RunOne()                           // an hour passes at once
//
// Rules are those of a real queue: the same code validates tasks, keeps unique keys, judges attempts and computes delays. No
// worker runs: a task runs only inside [Queue.RunOne], [Queue.RunDue] and [Queue.RunAll], on the goroutine of the test. So a
// handler may call t.Fatal, and a test needs no waiting. A queue needs no server and no file, and takes less than a
// millisecond to make.
//
// Two things differ. [queue.Tx] stores tasks at once, whatever becomes of the transaction. [queue.Client.Run] runs no task
// and returns when its context ends.
package queuetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/sim/simstore"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
)

// maxRuns is how many attempts RunAll makes: a task that asks to come back each time would never end it.
const maxRuns = 10_000

// Queue is a queue in memory. Its Client is what the code under test gets. Its own methods belong to the goroutine of the
// test; the Client may be used by any goroutine.
type Queue struct {
	*queue.Client

	t     testing.TB
	store *simstore.Client
	clock *clock
	run   holdfast.RunID // that claims the tasks
}

// clock is the time of the store.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// New returns an empty queue that ends with the test. Its clock stands at the start of the year 2000. The options are those
// of queue.Open that change no setting: queue.Use, queue.Logger, queue.Observer. The settings are the defaults.
func New(t testing.TB, opts ...queue.Option) *Queue {
	t.Helper()
	return NewWith(t, configs.Default(), opts...)
}

// NewWith is New with the settings of a configuration.
func NewWith(t testing.TB, cfg configs.Config, opts ...queue.Option) *Queue {
	t.Helper()
	cfg.Roles = nil // no worker and no janitor
	q := &Queue{t: t, clock: &clock{now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}}
	q.store = simstore.New(q.clock.read).Client(nil)
	var err error
	if q.run, err = q.store.OpenRun(q.ctx(), store.RunInfo{Name: "queuetest"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	backend := &app.Backend{Config: cfg, Store: memory{q.store}, Broker: nowhere{}, Topology: broker.NewTopology("queuetest", 1, "queuetest")}
	if q.Client, err = queue.Over(backend, opts...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Client.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// ctx is that of calls which neither wait nor fail.
func (q *Queue) ctx() context.Context { return context.Background() }

// Now returns the time of the queue's clock.
func (q *Queue) Now() time.Time { return q.clock.read() }

// Advance moves the queue's clock forward. It runs no task.
func (q *Queue) Advance(d time.Duration) {
	q.t.Helper()
	if d < 0 {
		q.t.Fatalf("queuetest: the clock cannot go back by %s", -d)
	}
	q.clock.mu.Lock()
	defer q.clock.mu.Unlock()
	q.clock.now = q.clock.now.Add(d)
}

// Tasks returns the tasks in the given states with their payloads, the oldest first; without states all tasks.
func (q *Queue) Tasks(states ...holdfast.State) []holdfast.Task {
	q.t.Helper()
	listed := q.list(states...)
	slices.Reverse(listed)
	for i := range listed {
		var err error
		if listed[i], err = q.store.Task(q.ctx(), listed[i].ID); err != nil {
			q.t.Fatal(err)
		}
	}
	return listed
}

// list returns the tasks without their payloads, the newest first.
func (q *Queue) list(states ...holdfast.State) []holdfast.Task {
	q.t.Helper()
	counts, err := q.store.Count(q.ctx(), store.Filter{States: states})
	if err != nil {
		q.t.Fatal(err)
	}
	total := 0
	for _, n := range counts {
		total += int(n)
	}
	listed, err := q.store.List(q.ctx(), store.Filter{States: states, Limit: max(total, 1)})
	if err != nil {
		q.t.Fatal(err)
	}
	return listed
}

// Any is a payload for RequireEnqueued that every payload matches.
var Any any = anyPayload{}

type anyPayload struct{}

// RequireEnqueued ends the test unless exactly one task is ready that a call of Enqueue with these arguments would have
// stored, and returns that task. Payloads are compared as JSON. Only what the options say is compared besides: queue.In and
// queue.At compare the time for which the task was stored, within a second.
func (q *Queue) RequireEnqueued(taskType string, payload any, opts ...queue.TaskOption) holdfast.Task {
	q.t.Helper()
	found := q.matching(taskType, payload, opts)
	if len(found) != 1 {
		q.t.Fatalf("queuetest: %d ready tasks of type %s are as wanted, want 1; ready are:%s", len(found), taskType, q.ready())
	}
	return found[0]
}

// RequireNotEnqueued ends the test if a task is ready that RequireEnqueued would have found.
func (q *Queue) RequireNotEnqueued(taskType string, payload any, opts ...queue.TaskOption) {
	q.t.Helper()
	if found := q.matching(taskType, payload, opts); len(found) > 0 {
		q.t.Fatalf("queuetest: %d ready tasks of type %s are as described, want none; ready are:%s", len(found), taskType, q.ready())
	}
}

func (q *Queue) matching(taskType string, payload any, opts []queue.TaskOption) []holdfast.Task {
	q.t.Helper()
	if payload == Any {
		payload = nil
	} else if payload == nil {
		payload = json.RawMessage("null")
	}
	want, err := queue.NewTask{Type: taskType, Payload: payload, Options: opts}.Complete()
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	return slices.DeleteFunc(q.Tasks(holdfast.Ready), func(task holdfast.Task) bool { return !matches(task, want) })
}

// near is how far the time of a task may be from the wanted one.
const near = time.Second

func matches(task holdfast.Task, want holdfast.NewTask) bool {
	due := want.At
	if want.Delay > 0 {
		due = task.CreatedAt.Add(want.Delay)
	}
	return task.Type == want.Type &&
		(want.Payload == nil || sameJSON(task.Payload, want.Payload)) &&
		(want.Lane == "" || task.Lane == want.Lane) &&
		(want.Unique == "" || task.Unique == want.Unique) &&
		(want.MaxAttempts == 0 || task.MaxAttempts == want.MaxAttempts) &&
		(due.IsZero() || task.NextRunAt.Sub(due).Abs() <= near)
}

// sameJSON compares two payloads without regard to spaces and to the order of keys.
func sameJSON(a, b []byte) bool {
	normal := func(text []byte) []byte {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		var value any
		if decoder.Decode(&value) != nil {
			return text
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			return text
		}
		return encoded
	}
	return bytes.Equal(normal(a), normal(b))
}

// ready describes the ready tasks.
func (q *Queue) ready() string {
	text := ""
	for _, task := range q.Tasks(holdfast.Ready) {
		text += fmt.Sprintf("\n  task %s: type %s, queue %s, due %s, unique key %q, payload %s",
			task.ID, task.Type, task.Lane, task.NextRunAt.Format(time.RFC3339), task.Unique, task.Payload)
	}
	if text == "" {
		return " none"
	}
	return text
}

// RunOne runs one attempt of the ready task that is due first, and returns the task as it is afterwards. If no task is due,
// the clock moves forward to the time of the first one. RunOne ends the test if no task is ready, or if the type of the task
// has no handler.
func (q *Queue) RunOne() holdfast.Task {
	q.t.Helper()
	task, ok := q.first()
	if !ok {
		q.t.Fatal("queuetest: no task is ready")
	}
	return q.attempt(task)
}

// RunDue runs the tasks that are due, and those that become due at once meanwhile. It does not move the clock. It returns
// the tasks as they were after each attempt.
func (q *Queue) RunDue() []holdfast.Task {
	q.t.Helper()
	return q.runWhile(func(next holdfast.Task) bool { return !next.NextRunAt.After(q.Now()) })
}

// RunAll runs tasks until none is ready, retries included, and moves the clock to the time of each. It returns the tasks as
// they were after each attempt. It ends the test after 10,000 attempts.
func (q *Queue) RunAll() []holdfast.Task {
	q.t.Helper()
	return q.runWhile(func(holdfast.Task) bool { return true })
}

func (q *Queue) runWhile(wanted func(next holdfast.Task) bool) []holdfast.Task {
	q.t.Helper()
	var after []holdfast.Task
	for next, ok := q.first(); ok && wanted(next); next, ok = q.first() {
		if len(after) == maxRuns {
			q.t.Fatalf("queuetest: tasks are still ready after %d attempts:%s", maxRuns, q.ready())
		}
		after = append(after, q.attempt(next))
	}
	return after
}

// first returns the ready task that is due first.
func (q *Queue) first() (holdfast.Task, bool) {
	q.t.Helper()
	tasks := q.list(holdfast.Ready)
	if len(tasks) == 0 {
		return holdfast.Task{}, false
	}
	return slices.MinFunc(tasks, func(a, b holdfast.Task) int {
		return cmp.Or(a.NextRunAt.Compare(b.NextRunAt), cmp.Compare(a.ID, b.ID))
	}), true
}

// attempt claims a ready task, runs its handler and stores the result, as a worker does.
func (q *Queue) attempt(task holdfast.Task) holdfast.Task {
	q.t.Helper()
	q.Advance(max(0, task.NextRunAt.Sub(q.Now())))
	claims, err := q.store.Claim(q.ctx(), q.run, store.AnyOf(task.Type), []message.Ticket{{Task: task.ID, Attempt: task.Attempt}}, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		q.t.Fatalf("queuetest: claim task %s: verdict %d, %v", task.ID, claims[0].Verdict, err)
	}
	ctx, stop := context.WithCancel(q.t.Context())
	defer stop()
	move, err := q.Client.Execute(ctx, claims[0].Task.WithIncarnation("queuetest"), q.Now())
	if err == nil {
		_, err = q.store.Apply(q.ctx(), []holdfast.Transition{move}) // refused if the handler cancelled its own task
	}
	if err == nil {
		task, err = q.store.Task(q.ctx(), task.ID)
	}
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	return task
}

// memory is the store. Transactions of the caller are none of its own.
type memory struct{ *simstore.Client }

// InsertTx implements store.Inserter.
func (m memory) InsertTx(ctx context.Context, _ store.Tx, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	return m.Insert(ctx, tasks, grace)
}

// nowhere is a broker that confirms every message and keeps none.
type nowhere struct{ broker.Broker }

// Publish implements broker.Publisher.
func (nowhere) Publish(_ context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	return slices.Repeat([]broker.Outcome{broker.Stored}, len(messages)), nil
}
