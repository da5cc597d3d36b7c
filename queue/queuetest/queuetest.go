// Package queuetest provides a queue in memory with a manual clock, for tests of programs that use package queue.
//
//	q := queuetest.New(t)
//	registerHandlers(q.Client)                   // queue.Handle, as the program does
//	signUp(ctx, q.Client, "ada@example.com")     // the code under test enqueues
//	q.RequireEnqueued("welcome", Welcome{"ada@example.com"}, queue.In(time.Hour))
//	task := q.RunOne()                           // an hour passes at once
//
// A queue uses the code of a real queue to validate tasks, keep unique keys, settle attempts and compute delays. There
// is no worker: a task runs only inside [Queue.RunOne], [Queue.RunDue] and [Queue.RunAll], on the goroutine of the
// test. So a handler may call t.Fatal, and a test need not wait. A queue needs no server and no file, and New takes
// less than a millisecond.
//
// Schedules work as if a janitor ran: [Queue.Advance] and [Queue.FireSchedule] store the tasks of the moments that the
// clock passes. Nothing else in a test waits for a schedule.
//
//	declareSchedules(ctx, q.Client)              // queue.Client.Schedule, as the program does
//	task := q.FireSchedule("nightly")            // moves the clock to the next moment and returns the task of it
//	q.RunDue()                                   // runs the task
//
// Sources work in the same way, and [Queue.NextSlice] returns the task of the next slice:
//
//	declareSources(ctx, q.Client)                // queue.Client.SetSource, as the program does
//	task := q.NextSlice("shop-17")               // moves the clock if the source has stored no slice
//	q.RunOne()                                   // runs the task
//
// Handlers may store an output, next tasks, steps and checkpoints, as in a real queue:
//
//	task := q.RunOne()
//	q.RequireStep(task, "charge", &charge)       // queue.Once has stored the value
//	q.RequireEnqueued("ship", "o7")              // queue.Next has stored the task, because the attempt succeeded
//
// Ordered tasks start one after the other, and topics start their tasks in turn, as if a janitor ran. A task that waits
// behind a dead one of its key does not run.
//
// Batches and chains run inside [Queue.RunBatch]:
//
//	id := startReindex(ctx, q.Client)            // queue.Client.StartBatch, as the program does
//	status := q.RunBatch(id)                     // runs all stages
//
// Two things differ from a real queue. [queue.Tx] stores tasks and [queue.CompleteTx] stores a success at once, even if
// the transaction is rolled back. [queue.Client.Run] runs no task and returns when its context ends.
package queuetest

import (
	"bytes"
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
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/memory"
)

// maxAttempts is the limit of attempts in one call of RunAll. Without a limit, RunAll would never return if a task
// always defers itself.
const maxAttempts = 10_000

// Queue is a queue in memory. The code under test uses its Client, which is safe for concurrent use. Only the goroutine
// of the test may call the other methods.
type Queue struct {
	*queue.Client

	t       testing.TB
	store   *memory.Client
	rows    *memory.Store
	effects sync.Mutex // held during each effect of the store, and while the queue reads rows
	backend *app.Backend
	worker  holdfast.WorkerID // worker that claims the tasks

	mu  sync.Mutex
	now time.Time // of the store
}

// New returns an empty queue with default settings. Its clock starts at the beginning of the year 2000. The queue is
// closed when the test ends. New accepts the options of queue.Open that change no setting, such as queue.Use,
// queue.Logger and queue.Observer.
func New(t testing.TB, opts ...queue.Option) *Queue {
	t.Helper()
	return NewWith(t, configs.Default(), opts...)
}

// NewWith is like New, but uses the settings of cfg.
func NewWith(t testing.TB, cfg configs.Config, opts ...queue.Option) *Queue {
	t.Helper()
	cfg.Roles = nil // no worker and no janitor
	q := &Queue{t: t, now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
	q.rows = memory.New(q.Now)
	q.store = q.rows.Client(q.atOnce)
	var err error
	// With one executor, the topics start one task each in turn.
	if q.worker, err = q.store.RegisterWorker(q.ctx(), store.WorkerInfo{Name: "queuetest", Concurrency: 1}, time.Hour); err != nil {
		t.Fatal(err)
	}
	q.backend = &app.Backend{Config: cfg, Store: desk.Without(memoryStore{q.store}), Broker: discardBroker{}, Topology: broker.NewTopology("queuetest", 1, "queuetest")}
	if q.Client, err = queue.Over(q.backend, opts...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Client.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// atOnce is the gate of the store. Every effect takes place at once.
func (q *Queue) atOnce(_ context.Context, _ memory.Step, effect func()) error {
	q.effects.Lock()
	defer q.effects.Unlock()
	effect()
	return nil
}

// ctx returns the context for calls of the store in memory, which do not block.
func (q *Queue) ctx() context.Context { return context.Background() }

// Now returns the time of the queue's clock.
func (q *Queue) Now() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.now
}

// Advance moves the queue's clock forward. It runs no task. Schedules store the tasks of the moments that the clock
// passes, and sources store their slices. As long as the test does not run these tasks, they are open, and the
// schedules and sources treat them so: by default none stores a second task while the first one is open.
func (q *Queue) Advance(d time.Duration) {
	q.t.Helper()
	if d < 0 {
		q.t.Fatalf("queuetest: the clock cannot go back by %s", -d)
	}
	q.fireUntil(q.Now().Add(d))
}

// moveTo moves the clock forward to a time, and leaves it if the time has passed.
func (q *Queue) moveTo(t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.After(q.now) {
		q.now = t
	}
}

// Tasks returns the tasks in the given states with their payloads, oldest first. Without states it returns all tasks.
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

// list returns the tasks without their payloads, newest first.
func (q *Queue) list(states ...holdfast.State) []holdfast.Task {
	q.t.Helper()
	counts, err := q.store.Count(q.ctx(), store.Filter{States: states})
	if err != nil {
		q.t.Fatal(err)
	}
	total := 0
	for _, n := range counts.By {
		total += int(n)
	}
	listed, err := q.store.List(q.ctx(), store.Filter{States: states, Limit: max(total, 1)})
	if err != nil {
		q.t.Fatal(err)
	}
	return listed.Tasks
}

// Any is a payload for RequireEnqueued that matches every payload.
var Any any = anyPayload{}

type anyPayload struct{}

// RequireEnqueued fails the test unless exactly one ready task matches the arguments, and returns that task. The
// arguments are those of Enqueue. RequireEnqueued compares the type, the payload as JSON, and the properties that the
// options set. For queue.In and queue.At it compares the due time, with a tolerance of one second.
func (q *Queue) RequireEnqueued(taskType string, payload any, opts ...queue.TaskOption) holdfast.Task {
	q.t.Helper()
	found := q.matching(taskType, payload, opts)
	if len(found) != 1 {
		q.t.Fatalf("queuetest: %d ready tasks of type %s match, want 1; ready tasks:%s", len(found), taskType, q.describeReady())
	}
	return found[0]
}

// RequireNotEnqueued fails the test if at least one ready task matches the arguments. See [Queue.RequireEnqueued].
func (q *Queue) RequireNotEnqueued(taskType string, payload any, opts ...queue.TaskOption) {
	q.t.Helper()
	if found := q.matching(taskType, payload, opts); len(found) > 0 {
		q.t.Fatalf("queuetest: %d ready tasks of type %s match, want none; ready tasks:%s", len(found), taskType, q.describeReady())
	}
}

func (q *Queue) matching(taskType string, payload any, opts []queue.TaskOption) []holdfast.Task {
	q.t.Helper()
	if payload == Any {
		payload = nil
	} else if payload == nil {
		payload = json.RawMessage("null")
	}
	complete := func(opts ...queue.TaskOption) holdfast.NewTask {
		task, err := queue.NewTask{Type: taskType, Payload: payload, Options: opts}.Complete()
		if err != nil {
			q.t.Fatalf("queuetest: %v", err)
		}
		return task
	}
	want := wanted{NewTask: complete(opts...)}
	// An option that sets the value that is the default anyway overrides another value before it.
	other := complete(append([]queue.TaskOption{queue.Priority(holdfast.PriorityLow), queue.In(otherDelay)}, opts...)...)
	want.setsPriority = other.Priority == want.Priority
	want.setsDue = !want.At.IsZero() || other.Delay == want.Delay
	return slices.DeleteFunc(q.Tasks(holdfast.Ready), func(task holdfast.Task) bool { return !want.matches(task) })
}

// wanted is a task as the arguments of RequireEnqueued describe it.
type wanted struct {
	holdfast.NewTask
	setsPriority, setsDue bool // an option sets the property
}

// otherDelay is a delay that no test sets.
const otherDelay = -1

// dueTolerance is the maximum difference between the due time of a task and the wanted one.
const dueTolerance = time.Second

func (want wanted) matches(task holdfast.Task) bool {
	due := want.At
	if due.IsZero() {
		due = task.CreatedAt.Add(want.Delay)
	}
	return task.Type == want.Type &&
		(want.Payload == nil || sameJSON(task.Payload, want.Payload)) &&
		(want.Queue == "" || task.Queue == want.Queue) &&
		(!want.setsPriority || task.Priority == want.Priority) &&
		(want.Unique == "" || task.Unique == want.Unique) &&
		(want.Key == "" || task.Key == want.Key) &&
		(!want.Ordered || task.Ordered) &&
		(want.Topic == "" || task.Topic == want.Topic) &&
		!slices.ContainsFunc(want.Tags, func(tag string) bool { return !slices.Contains(task.Tags, tag) }) &&
		(want.MaxAttempts == 0 || task.MaxAttempts == want.MaxAttempts) &&
		(!want.setsDue || task.NextRunAt.Sub(due).Abs() <= dueTolerance)
}

// sameJSON compares two payloads. It ignores spaces and the order of keys.
func sameJSON(a, b []byte) bool {
	normalize := func(text []byte) []byte {
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
	return bytes.Equal(normalize(a), normalize(b))
}

// describeReady describes the ready tasks for a failure message.
func (q *Queue) describeReady() string {
	text := ""
	for _, task := range q.Tasks(holdfast.Ready) {
		text += fmt.Sprintf("\n  task %s: type %s, queue %s, due %s, unique key %q, payload %s",
			task.ID, task.Type, task.Queue, task.NextRunAt.Format(time.RFC3339), task.Unique, task.Payload)
		if task.Priority != holdfast.PriorityNormal {
			text += fmt.Sprintf(", priority %s", task.Priority)
		}
		if task.Key != "" {
			text += fmt.Sprintf(", key %q", task.Key)
		}
		if task.Topic != "" {
			text += fmt.Sprintf(", topic %q", task.Topic)
		}
		text += q.describeWait(task)
	}
	if text == "" {
		return " none"
	}
	return text
}

// describeWait says behind which task an ordered task waits. It returns "" for all other tasks.
func (q *Queue) describeWait(task holdfast.Task) string {
	if !task.Ordered {
		return ""
	}
	place, err := q.store.OrderOf(q.ctx(), task.ID)
	if err != nil || place.Active == 0 || place.Active == task.ID {
		return ""
	}
	return fmt.Sprintf(", waits behind task %s of its key, which is %s", place.Active, place.State)
}

// RunOne runs one attempt of the ready task with the earliest due time, and returns the task after the attempt. If that
// time is in the future, RunOne first moves the clock to it. RunOne fails the test if no task is ready, if all ready
// tasks wait behind dead ones of their keys, or if the type of the task has no handler.
func (q *Queue) RunOne() holdfast.Task {
	q.t.Helper()
	task, ok := q.next()
	switch {
	case ok:
		return q.attempt(task)
	case len(q.list(holdfast.Ready)) > 0:
		q.t.Fatalf("queuetest: no ready task can start:%s", q.describeReady())
	}
	q.t.Fatal("queuetest: no task is ready")
	panic("unreachable")
}

// RunDue runs tasks until none is due, including tasks that become due meanwhile, tasks of schedules whose moment is
// due, and due slices of sources. It does not move the clock. A source whose slices fill it stores the next ones when
// the clock moves. For each attempt it returns the task after the attempt.
func (q *Queue) RunDue() []holdfast.Task {
	q.t.Helper()
	return q.runWhile(func() (holdfast.Task, bool) {
		q.fireUntil(q.Now())
		next, ok := q.nextDue()
		return next, ok && !next.NextRunAt.After(q.Now())
	})
}

// RunAll runs tasks until none can start, including retries, and moves the clock to the due time of each. For each
// attempt it returns the task after the attempt. Ordered tasks that wait behind a dead task of their key stay ready.
// RunAll fails the test if it has not ended after 10,000 attempts.
//
// Because a schedule has no last moment, schedules and sources store no tasks during RunAll and RunOne, even if the
// clock passes their moments. The next call of Advance, FireSchedule, NextSlice or RunDue treats these moments like
// those of an outage; see [queue.Missed].
func (q *Queue) RunAll() []holdfast.Task {
	q.t.Helper()
	return q.runWhile(q.next)
}

// runWhile runs the tasks that next returns, until it returns false.
func (q *Queue) runWhile(next func() (holdfast.Task, bool)) []holdfast.Task {
	q.t.Helper()
	var after []holdfast.Task
	for task, ok := next(); ok; task, ok = next() {
		if len(after) == maxAttempts {
			q.t.Fatalf("queuetest: tasks are still ready after %d attempts:%s", maxAttempts, q.describeReady())
		}
		after = append(after, q.attempt(task))
	}
	return after
}

// next moves the clock to the due time of the next task, and returns the task. It returns false if no task can start.
func (q *Queue) next() (holdfast.Task, bool) {
	q.t.Helper()
	task, ok := q.nextDue()
	if ok && task.NextRunAt.After(q.Now()) {
		q.moveTo(task.NextRunAt)
		task, ok = q.nextDue() // several topics may have tasks that are due now
	}
	return task, ok
}

// nextDue returns the task with the earliest due time among the ready tasks that do not wait for another task or for a
// slot. It returns false if there is none.
func (q *Queue) nextDue() (holdfast.Task, bool) {
	q.t.Helper()
	q.dispatch()
	q.effects.Lock()
	defer q.effects.Unlock()
	var next *memory.Task
	for i, tasks := 0, q.rows.Tasks(); i < len(tasks); i++ {
		if task := &tasks[i]; task.State == holdfast.Ready && !task.DueAt.Equal(store.BlockedUntil) &&
			(next == nil || task.NextRunAt.Before(next.NextRunAt)) {
			next = task
		}
	}
	if next == nil {
		return holdfast.Task{}, false
	}
	return next.Task, true
}

// dispatch does what a janitor does for the tasks that are due: it gives slots to topics, and ends pauses whose times
// have passed.
func (q *Queue) dispatch() {
	q.t.Helper()
	publish := func(_ context.Context, due []store.Due) []bool { return slices.Repeat([]bool{true}, len(due)) }
	for {
		dispatched, err := q.store.DispatchDue(q.ctx(), store.Queues{}, maxAttempts, publish)
		if err != nil {
			q.t.Fatalf("queuetest: %v", err)
		}
		released, err := q.store.ReleaseBlocked(q.ctx(), maxAttempts)
		if err != nil {
			q.t.Fatalf("queuetest: %v", err)
		}
		if dispatched.Marked+dispatched.Queued+released.Tasks == 0 {
			return
		}
	}
}

// attempt moves the clock to the due time of a ready task, claims the task, runs its handler and stores the result.
func (q *Queue) attempt(task holdfast.Task) holdfast.Task {
	q.t.Helper()
	q.moveTo(task.NextRunAt)
	claims, err := q.store.Claim(q.ctx(), q.worker, store.AnyOf(task.Type), []message.Ticket{{Task: task.ID, Attempt: task.Attempt}}, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		q.t.Fatalf("queuetest: claim task %s: verdict %d, %v", task.ID, claims[0].Verdict, err)
	}
	ctx, stop := context.WithCancel(q.t.Context())
	defer stop()
	move, err := q.Client.Execute(ctx, claims[0].Task.WithIncarnation("queuetest"), q.Now())
	if err == nil {
		_, err = q.store.Apply(q.ctx(), []holdfast.Transition{move}) // refused if the handler has cancelled its own task
	}
	if err == nil {
		task, err = q.store.Task(q.ctx(), task.ID)
	}
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	return task
}

// memoryStore is the store. It ignores the caller's transactions.
type memoryStore struct{ *memory.Client }

// InsertTx implements store.Inserter.
func (m memoryStore) InsertTx(ctx context.Context, _ store.Tx, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	return m.Insert(ctx, tasks, grace)
}

// ApplyTx implements store.Work.
func (m memoryStore) ApplyTx(ctx context.Context, _ store.Tx, move holdfast.Transition) (bool, error) {
	return m.Client.ApplyTx(ctx, memory.Committed{}, move)
}

// discardBroker is a broker that confirms every message and keeps none.
type discardBroker struct{ broker.Broker }

// Publish implements broker.Publisher.
func (discardBroker) Publish(_ context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	return slices.Repeat([]broker.Outcome{broker.Stored}, len(messages)), nil
}
