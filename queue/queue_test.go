package queue_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

type welcome struct{ Email string }

var errBoom = errors.New("boom")

func TestATaskIsStoredAndRun(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		got := make(chan welcome, 1)
		w.must(queue.Handle(q, "welcome", func(_ context.Context, task holdfast.Task, p welcome) error {
			if task.Attempt != 1 {
				t.Errorf("attempt %d, want 1", task.Attempt)
			}
			got <- p
			return nil
		}))
		stop := w.run(q)
		id := w.enqueue(q, "welcome", welcome{"ada@example.com"})
		if task := w.wait(q, id); task.State != holdfast.Done {
			t.Errorf("the task is %s", task.State)
		}
		if p := <-got; p.Email != "ada@example.com" {
			t.Errorf("the payload is %+v", p)
		}
		stop()
		w.must(q.Close())
		if _, err := q.Enqueue(t.Context(), "welcome", nil); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if _, err := q.Task(t.Context(), id); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if err := q.Run(t.Context()); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// signed is raw JSON in a type of its own.
type signed struct{ json.RawMessage }

// Each byte of raw JSON reaches the handler, on every path into and out of the store. Other values are encoded without
// HTML escapes.
func TestAPayloadKeepsItsBytes(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		wanted := make(map[holdfast.TaskID]string)
		w.must(queue.Handle(q, "raw", func(_ context.Context, task holdfast.Task, _ json.RawMessage) error {
			if want := wanted[task.ID]; string(task.Payload) != want {
				t.Errorf("the handler gets %.200q, want %.200q", task.Payload, want)
			}
			return nil
		}))
		db := w.database()
		text := " { \"a\" : \"<b>&\u2028\\u003c\\/\", \"a\":1.0e2,\n\t\"c\": [ ] } "
		raw := json.RawMessage(text)
		pointer, inside := &raw, any(raw)
		for name, test := range map[string]struct {
			payload any
			want    string
		}{
			"raw":                   {raw, text},
			"pointer":               {pointer, text},
			"pointer to a pointer":  {&pointer, text},
			"pointer to an any":     {&inside, text},
			"type of its own":       {signed{raw}, text},
			"pointer to that":       {&signed{raw}, text},
			"long":                  {json.RawMessage(text + strings.Repeat("  ", 50_000)), text + strings.Repeat("  ", 50_000)},
			"nil raw":               {json.RawMessage(nil), "null"},
			"nil pointer":           {(*json.RawMessage)(nil), "null"},
			"string":                {"<a href=\"x&y\">", `"<a href=\"x&y\">"`},
			"struct":                {welcome{"<ada&bob>"}, `{"Email":"<ada&bob>"}`},
			"raw inside of a value": {map[string]any{"x": raw}, "{\"x\":{\"a\":\"<b>&\u2028\\u003c\\/\",\"a\":1.0e2,\"c\":[]}}"},
			"bytes":                 {[]byte("<"), `"PA=="`},
		} {
			task := queue.NewTask{Type: "raw", Payload: test.payload}
			one, err := q.Enqueue(w.Context(), task.Type, task.Payload)
			w.must(err)
			many, err := q.EnqueueMany(w.Context(), []queue.NewTask{task})
			w.must(err)
			tx, err := db.BeginTx(w.Context(), nil)
			w.must(err)
			committed, err := q.Tx(tx).Enqueue(w.Context(), task.Type, task.Payload)
			w.must(err)
			w.must(tx.Commit())
			for by, id := range map[string]holdfast.TaskID{"Enqueue": one.ID, "EnqueueMany": many[0].ID, "Tx": committed.ID} {
				wanted[id] = test.want
				if stored, err := q.Task(w.Context(), id); err != nil || string(stored.Payload) != test.want {
					w.Errorf("%s by %s: the payload is %.200q, want %.200q; %v", name, by, stored.Payload, test.want, err)
				}
			}
		}
		var cycle any
		cycle = &cycle
		for _, payload := range []any{json.RawMessage(`{"a":`), json.RawMessage("{} {}"), json.RawMessage{}, &signed{json.RawMessage("x")}, cycle, json.RawMessage("\"\xff\"")} {
			if _, err := q.Enqueue(w.Context(), "raw", payload); !errors.Is(err, holdfast.ErrInvalid) {
				w.Errorf("%T: %v", payload, err)
			}
		}
		w.run(q)
		for id := range wanted {
			w.wait(q, id)
		}
	})
}

// When a worker registers, it stores the form of the payloads that its typed handlers accept. An edit must fit that
// form.
func TestAnEditedPayloadFitsTheHandler(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		first := w.open()
		ran := make(chan struct{}, 3)
		handled := func() { ran <- struct{}{} }
		w.must(queue.Handle(first, "welcome", func(context.Context, holdfast.Task, welcome) error { handled(); return nil }))
		w.must(queue.Handle(first, "raw", func(context.Context, holdfast.Task, json.RawMessage) error { handled(); return nil }))
		w.must(queue.Handle(first, "sealed", func(context.Context, holdfast.Task, welcome) error { handled(); return nil }, queue.AnyPayload()))
		stop := w.run(first)
		b := queue.Backend(first)
		edit := func(taskType, payload string) error {
			w.Helper()
			id := w.enqueue(first, taskType, welcome{"ada@example.com"}, queue.In(time.Hour))
			seen, err := b.Store.Task(w.Context(), id)
			w.must(err)
			to := change.DocumentOf(seen)
			to.Payload = json.RawMessage(payload)
			_, err = b.Edit(w.Context(), store.Actor{Name: "ada", Surface: store.Library}, seen, to, change.Validate)
			return err
		}
		for _, taskType := range []string{"welcome", "raw", "sealed"} { // when a handler runs, its worker has registered
			w.enqueue(first, taskType, welcome{})
			<-ran
		}
		if err := edit("welcome", `{"Email":5}`); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "/Email: expected string or null, got number") {
			w.Errorf("a payload that does not fit: %v", err)
		}
		for taskType, payload := range map[string]string{"welcome": `{"Email":"ben@example.com","new":1}`, "raw": `5`, "sealed": `5`, "unknown": `5`} {
			if err := edit(taskType, payload); err != nil {
				w.Errorf("type %s: %v", taskType, err)
			}
		}
		stop()

		// The next version of the program accepts another type, and the newest worker decides.
		second := w.open()
		w.must(queue.Handle(second, "welcome", func(context.Context, holdfast.Task, struct{ Email int }) error { handled(); return nil }))
		w.run(second)
		w.enqueue(second, "welcome", struct{ Email int }{5})
		<-ran
		if err := edit("welcome", `{"Email":5}`); err != nil {
			w.Errorf("after the next version registered: %v", err)
		}
	})
}

// The options of Enqueue reach the store.
func TestOptionsOfATask(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		w.must(queue.Handle(q, "mail", func(context.Context, holdfast.Task, json.RawMessage) error { return nil }, queue.Queue("post")))
		read := func(id holdfast.TaskID) holdfast.Task {
			task, err := q.Task(t.Context(), id)
			w.must(err)
			return task
		}
		later := read(w.enqueue(q, "mail", json.RawMessage(`{"a": 1}`), queue.In(time.Hour), queue.Unique("k"), queue.MaxAttempts(3), queue.Key("tenant 7"), queue.Tags("ada", "order:7")))
		if d := later.NextRunAt.Sub(later.CreatedAt); d != time.Hour || later.Unique != "k" || later.Key != "tenant 7" || later.MaxAttempts != 3 || later.Queue != "post" || !slices.Equal(later.Tags, []string{"ada", "order:7"}) {
			t.Errorf("delay %s: %+v", d, later)
		}
		due := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Millisecond)
		if at := read(w.enqueue(q, "other", nil, queue.At(due), queue.Queue("elsewhere"))); !at.NextRunAt.Equal(due) || at.Queue != "elsewhere" || string(at.Payload) != "null" {
			t.Errorf("%+v", at)
		}
		if plain := read(w.enqueue(q, "other", []int{1})); plain.Queue != "default" || plain.MaxAttempts != 0 || string(plain.Payload) != "[1]" {
			t.Errorf("%+v", plain)
		}
		second, err := q.Enqueue(t.Context(), "mail", nil, queue.Unique("k"))
		if err != nil || !second.Duplicate || second.ID != later.ID {
			t.Errorf("the second task with the key: %+v, %v", second, err)
		}
		if second.State != holdfast.Ready {
			t.Errorf("the state of the duplicate is %q, want ready", second.State)
		}
		_, err = q.Cancel(t.Context(), later.ID)
		w.must(err)
		if again, err := q.Enqueue(t.Context(), "mail", nil, queue.Unique("k", queue.For(time.Hour))); err != nil || !again.Duplicate || again.State != holdfast.Cancelled {
			t.Errorf("a task with the key of a cancelled one: %+v, %v", again, err)
		}
		if third, err := q.Enqueue(t.Context(), "mail", nil, queue.In(time.Hour), queue.Unique("k", queue.WhileOpen())); err != nil || third.Duplicate {
			t.Errorf("a task that is unique while it is open: %+v, %v", third, err)
		}
		for name, options := range map[string][]queue.TaskOption{
			"negative": {queue.In(-1)}, "two times": {queue.In(1), queue.At(due)}, "no time": {queue.Unique("k", queue.For(0))}, "open without key": {queue.Unique("", queue.WhileOpen())}, "empty key": {queue.Unique("")},
			"no attempt": {queue.MaxAttempts(0)}, "bad queue": {queue.Queue("Post")}, "empty queue": {queue.Queue("")},
		} {
			if _, err := q.Enqueue(t.Context(), "mail", nil, options...); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := q.Enqueue(t.Context(), "mail", make(chan int)); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a payload that has no JSON form: %v", err)
		}
	})
}

// If Enqueue got no limit, the limit of the worker's handler applies, even if another process has stored the task.
func TestTheHandlerLimitsAttempts(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		other, q := w.open(queue.Set("types.fails.max_attempts", "9")), w.open()
		w.must(queue.Handle(q, "fails", func(context.Context, holdfast.Task, any) error { return errBoom }, queue.MaxAttempts(2)))
		w.must(queue.Handle(q, "inherits", func(context.Context, holdfast.Task, any) error { return errBoom }))
		w.run(q)
		for name, c := range map[string]struct {
			id   holdfast.TaskID
			want int
		}{
			"limit of the handler":                {w.enqueue(q, "fails", nil), 2},
			"stored without handler":              {w.enqueue(other, "fails", nil), 2},
			"own limit":                           {w.enqueue(other, "fails", nil, queue.MaxAttempts(1)), 1},
			"limit of the configuration":          {w.enqueue(q, "inherits", nil), holdfast.DefaultMaxAttempts},
			"own limit above that of the handler": {w.enqueue(q, "fails", nil, queue.MaxAttempts(4)), 4},
		} {
			if task := w.wait(q, c.id); task.State != holdfast.Dead || task.Failures != c.want {
				t.Errorf("%s: %s after %d failures, want %d", name, task.State, task.Failures, c.want)
			}
		}
	})
}

// A policy can depend on the error. If the function panics, ends its goroutine or returns an invalid policy, the policy
// of the type applies. The records of the attempts have the stack.
func TestAPolicyDependsOnTheError(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		hopeless := errors.New("hopeless")
		fail := func(_ context.Context, _ holdfast.Task, text string) error {
			if text == "hopeless" {
				return fmt.Errorf("%w: always", hopeless)
			}
			return errBoom
		}
		w.must(queue.Handle(q, "by_class", fail, queue.MaxAttempts(3), queue.PolicyFunc(func(p holdfast.Policy, err error) holdfast.Policy {
			if errors.Is(err, hopeless) {
				p.MaxAttempts = 1
			}
			return p
		})))
		w.must(queue.Handle(q, "panics", fail, queue.MaxAttempts(2), queue.PolicyFunc(func(holdfast.Policy, error) holdfast.Policy { panic("no") })))
		w.must(queue.Handle(q, "exits", fail, queue.MaxAttempts(2), queue.PolicyFunc(func(holdfast.Policy, error) holdfast.Policy {
			runtime.Goexit()
			return holdfast.Policy{}
		})))
		w.must(queue.Handle(q, "wrong", fail, queue.MaxAttempts(2), queue.PolicyFunc(func(holdfast.Policy, error) holdfast.Policy { return holdfast.Policy{} })))
		w.run(q)
		for _, c := range []struct {
			kind, payload string
			want          int
		}{{"by_class", "hopeless", 1}, {"by_class", "other", 3}, {"panics", "", 2}, {"exits", "", 2}, {"wrong", "", 2}} {
			task := w.wait(q, w.enqueue(q, c.kind, c.payload))
			if task.State != holdfast.Dead || task.Failures != c.want {
				t.Errorf("%s %s: %s after %d failures, want %d", c.kind, c.payload, task.State, task.Failures, c.want)
			}
			attempts, err := q.Attempts(t.Context(), task.ID)
			w.must(err)
			if ended := c.kind == "panics" || c.kind == "exits"; len(attempts) != c.want || (attempts[0].Stack != "") != ended {
				t.Errorf("%s %s: attempts %+v", c.kind, c.payload, attempts)
			}
		}
	})
}

// The first middleware is the outermost one, and the middleware of the client wraps that of the type.
func TestMiddlewareWrapsHandlers(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		var mu sync.Mutex
		var calls []string
		record := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, text)
		}
		named := func(name string) queue.Middleware {
			return func(next queue.Handler) queue.Handler {
				return func(ctx context.Context, task holdfast.Task) error {
					record(name + " before")
					err := next(ctx, task)
					record(fmt.Sprintf("%s after %v", name, err))
					return err
				}
			}
		}
		ignoreError := func(next queue.Handler) queue.Handler {
			return func(ctx context.Context, task holdfast.Task) error {
				if err := next(ctx, task); !errors.Is(err, errBoom) {
					return err
				}
				return nil
			}
		}
		q := w.open(queue.Use(named("a"), ignoreError))
		w.must(queue.Handle(q, "x", func(context.Context, holdfast.Task, int) error { return errBoom }, queue.Use(named("b"), named("c"))))
		w.run(q)
		if task := w.wait(q, w.enqueue(q, "x", 1)); task.State != holdfast.Done {
			t.Errorf("the task is %s: %s", task.State, task.LastError)
		}
		if want := []string{"a before", "b before", "c before", "c after boom", "b after boom", "a after <nil>"}; !slices.Equal(calls, want) {
			t.Errorf("the calls are %q", calls)
		}
		if task := w.wait(q, w.enqueue(q, "x", "no number")); task.State != holdfast.Dead || !strings.Contains(task.LastError, "does not fit") {
			t.Errorf("a payload that does not fit: %+v", task)
		}
	})
}

func TestAnAttemptTimesOut(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		w.must(queue.Handle(q, "slow", func(ctx context.Context, _ holdfast.Task, _ any) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, queue.Timeout(time.Millisecond), queue.MaxAttempts(1)))
		w.run(q)
		id := w.enqueue(q, "slow", nil)
		if task := w.wait(q, id); task.State != holdfast.Dead {
			t.Errorf("the task is %s", task.State)
		}
		if attempts, err := q.Attempts(t.Context(), id); err != nil || len(attempts) != 1 || attempts[0].Class != "timeout" {
			t.Errorf("the attempts are %+v, %v", attempts, err)
		}
	})
}

func TestManyTasks(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		var sum atomic.Int64
		w.must(queue.Handle(q, "add", func(_ context.Context, _ holdfast.Task, n int64) error {
			sum.Add(n)
			return nil
		}))
		tasks := make([]queue.NewTask, 1500)
		for i := range tasks {
			tasks[i] = queue.NewTask{Type: "add", Payload: i}
		}
		tasks[1499].Options = []queue.TaskOption{queue.Unique("last")}
		results, err := q.EnqueueMany(t.Context(), tasks)
		w.must(err)
		w.run(q)
		for _, r := range results {
			w.wait(q, r.ID)
		}
		if sum.Load() != 1499*1500/2 {
			t.Errorf("the sum is %d", sum.Load())
		}
		tasks[7].Options = []queue.TaskOption{queue.MaxAttempts(-1)}
		_, err = q.EnqueueMany(t.Context(), tasks)
		invalid := new(queue.TaskError)
		if !errors.As(err, &invalid) || invalid.Index != 7 || !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("an invalid task: %v", err)
		}
	})
}

// If a transaction commits, its tasks exist. If it rolls back, they do not.
func TestTransactions(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		w.must(queue.Handle(q, "x", func(context.Context, holdfast.Task, any) error { return nil }))
		db := w.database()
		for _, commit := range []bool{false, true} {
			tx, err := db.BeginTx(t.Context(), nil)
			w.must(err)
			result, err := q.Tx(tx).Enqueue(t.Context(), "x", "hello", queue.Unique("u"))
			w.must(err)
			if commit {
				w.must(tx.Commit())
				w.run(q)
				if task := w.wait(q, result.ID); task.State != holdfast.Done {
					t.Errorf("the task is %s", task.State)
				}
				continue
			}
			w.must(tx.Rollback())
			if task, err := q.Task(t.Context(), result.ID); !errors.Is(err, holdfast.ErrNotFound) {
				t.Errorf("after the rollback: %+v, %v", task, err)
			}
		}
		if _, err := q.Tx(nil).Enqueue(t.Context(), "x", nil); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("no transaction: %v", err)
		}
		if _, err := q.Tx(db).Enqueue(t.Context(), "x", nil); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a pool: %v", err)
		}
	})
}

// database opens the database of the fixture, as a program with its own tables in that database does.
func (w *fixture) database() *sql.DB {
	w.Helper()
	url, _ := strings.CutPrefix(w.environment[0], "DATABASE_URL=")
	driver := "postgres"
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		driver, url = "sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(20000)"
	}
	db, err := sql.Open(driver, url)
	w.must(err)
	w.Cleanup(func() { _ = db.Close() })
	return db
}

func TestCancelAndRetry(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		started := make(chan struct{})
		w.must(queue.Handle(q, "blocks", func(ctx context.Context, _ holdfast.Task, _ any) error {
			close(started)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), holdfast.ErrCancelled) {
				t.Errorf("the handler ended with %v", context.Cause(ctx))
			}
			return context.Cause(ctx)
		}))
		var repaired atomic.Bool
		w.must(queue.Handle(q, "fails", func(context.Context, holdfast.Task, any) error {
			if repaired.Load() {
				return nil
			}
			return holdfast.Permanent(errBoom)
		}))
		w.run(q)
		blocked := w.enqueue(q, "blocks", nil)
		<-started
		if task, err := q.Cancel(t.Context(), blocked); err != nil || task.State != holdfast.Cancelled {
			t.Errorf("cancel: %+v, %v", task, err)
		}
		if _, err := q.Cancel(t.Context(), blocked); !errors.Is(err, holdfast.ErrConflict) {
			t.Errorf("second cancel: %v", err)
		}
		failed := w.enqueue(q, "fails", nil)
		if task := w.wait(q, failed); task.State != holdfast.Dead {
			t.Errorf("the task is %s", task.State)
		}
		repaired.Store(true)
		_, err := q.Retry(t.Context(), failed)
		w.must(err)
		if task := w.wait(q, failed); task.State != holdfast.Done {
			t.Errorf("after the retry the task is %s", task.State)
		}
		if _, err := q.Retry(t.Context(), 1<<40); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("no task: %v", err)
		}
	})
}

// A task of a type that runs at most once is dead after its first failure. A person can start it again.
func TestAtMostOnce(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		var calls atomic.Int64
		w.must(queue.Handle(q, "charge", func(_ context.Context, task holdfast.Task, _ any) error {
			if calls.Add(1) > 1 {
				return nil
			}
			return holdfast.RetryAfter(0, errBoom)
		}, queue.AtMostOnce()))
		w.run(q)
		id := w.enqueue(q, "charge", nil)
		const text = "no other attempt starts, because its type runs at most once: boom"
		if task := w.wait(q, id); task.State != holdfast.Dead || task.Failures != 1 || task.LastError != text || calls.Load() != 1 {
			t.Errorf("after %d calls, the task is %+v", calls.Load(), task)
		}
		_, err := q.Retry(t.Context(), id)
		w.must(err)
		if task := w.wait(q, id); task.State != holdfast.Done || calls.Load() != 2 {
			t.Errorf("after %d calls and a retry by a person, the task is %+v", calls.Load(), task)
		}
	})
}

// When Close returns, the broker has confirmed the tickets of all stored tasks.
func TestCloseFlushesTheProducer(t *testing.T) {
	t.Parallel()
	w := onServers(t)
	var published atomic.Int64
	q := w.open(queue.Observer(observer(func(o holdfast.Observation) {
		if o.Kind == holdfast.ObservedPublished {
			published.Add(int64(o.Count))
		}
	})))
	b := queue.Backend(q)
	w.enqueue(q, "first", nil, queue.In(time.Hour)) // creates the queue in the store
	w.must(b.Ping(t.Context(), slow.Patience()))
	_, err := b.Rebuild(t.Context())
	w.must(err)
	const n = 500
	for range n {
		w.enqueue(q, "x", nil)
	}
	w.must(q.Close())
	if published.Load() != n {
		t.Errorf("%d of %d tickets were published", published.Load(), n)
	}
}

type observer func(holdfast.Observation)

func (o observer) Observe(seen holdfast.Observation) { o(seen) }

// Close stops Run, which hands running tasks back.
func TestCloseEndsRun(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open(queue.Set("worker.drain_timeout", "10ms"))
		started := make(chan struct{}, 1)
		w.must(queue.Handle(q, "x", func(ctx context.Context, _ holdfast.Task, _ any) error {
			started <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}))
		ended := make(chan error, 1)
		go func() { ended <- q.Run(context.Background()) }()
		id := w.enqueue(q, "x", nil)
		<-started
		w.must(q.Close())
		w.must(<-ended)
		w.must(q.Close())
		task, err := w.open().Task(t.Context(), id)
		if err != nil || task.State != holdfast.Ready || task.Failures != 0 {
			t.Errorf("after Close: %+v, %v", task, err)
		}
	})
}

func TestOpenReportsErrors(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	for name, option := range map[string]queue.Option{
		"unknown setting": queue.Set("worker.leese", "1s"),
		"bad setting":     queue.Set("worker.lease", "yes"),
		"no concurrency":  queue.Concurrency(0),
		"bad queue":       queue.Queues("Mail"),
		"no path":         queue.File(""),
		"bad database":    queue.Servers("mysql://x", "amqp://localhost"),
		"nil middleware":  queue.Use(nil),
		"no broker":       queue.Environment([]string{"DATABASE_URL=postgres://localhost/x"}),
	} {
		q, err := queue.Open(t.Context(), queue.Environment(w.environment), option)
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = q.Close()
		}
	}
}

func TestHandleReportsErrors(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	good := func(context.Context, holdfast.Task, any) error { return nil }
	for name, register := range map[string]func(*queue.Client) error{
		"nil":         func(q *queue.Client) error { return queue.Handle[any](q, "x", nil) },
		"bad type":    func(q *queue.Client) error { return queue.Handle(q, "a type", good) },
		"no attempts": func(q *queue.Client) error { return queue.Handle(q, "x", good, queue.MaxAttempts(0)) },
		"timeout":     func(q *queue.Client) error { return queue.Handle(q, "x", good, queue.Timeout(-1)) },
		"backoff":     func(q *queue.Client) error { return queue.Handle(q, "x", good, queue.Backoff(0, time.Second)) },
		"shrinking":   func(q *queue.Client) error { return queue.Handle(q, "x", good, queue.Backoff(2, 1)) },
		"no delays":   func(q *queue.Client) error { return queue.Handle(q, "x", good, queue.Delays()) },
		"no policy": func(q *queue.Client) error {
			return queue.Handle(q, "x", good, queue.Policy(holdfast.Policy{Strategy: "?"}))
		},
		"middleware": func(q *queue.Client) error {
			return queue.Handle(q, "x", good, queue.Use(func(queue.Handler) queue.Handler { return nil }))
		},
		"twice": func(q *queue.Client) error {
			return errors.Join(queue.Handle(q, "x", good), queue.Handle(q, "x", good))
		},
	} {
		q := w.open()
		if err := register(q); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if err := q.Run(t.Context()); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: Run returns %v", name, err)
		}
	}
	if err := w.open().Run(t.Context()); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("without a handler: %v", err)
	}
}

// Only one process may run the tasks of a file. Other processes may store tasks in it.
func TestOneProcessRunsAFile(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	handled := make(chan int, 1)
	handle := func(q *queue.Client) {
		w.must(queue.Handle(q, "x", func(_ context.Context, _ holdfast.Task, n int) error {
			handled <- n
			return nil
		}))
	}
	first, second := w.open(), w.open()
	handle(first)
	handle(second)
	w.run(first)
	w.enqueue(first, "x", 1)
	<-handled
	if err := second.Run(t.Context()); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("the second process: %v", err)
	}
	w.enqueue(second, "x", 2)
	if n := <-handled; n != 2 {
		t.Errorf("the payload is %d", n)
	}
	if err := queue.Handle(first, "y", func(context.Context, holdfast.Task, int) error { return nil }); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("Handle after Run: %v", err)
	}
}

// Over needs a complete backend and refuses options that change settings.
func TestOverABackend(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	b := queue.Backend(w.open())
	for name, err := range map[string]error{
		"none":    second(queue.Over(nil)),
		"store":   second(queue.Over(&app.Backend{Store: b.Store})),
		"setting": second(queue.Over(b, queue.Set("worker.lease", "9s"))),
		"change":  second(queue.Over(b, queue.Concurrency(3))),
	} {
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	q, err := queue.Over(b)
	w.must(err)
	w.enqueue(q, "x", nil)
	w.must(q.Close())
	if _, err := b.Store.Now(t.Context()); err != nil {
		t.Errorf("Close closed the caller's store: %v", err)
	}
}

func second(_ *queue.Client, err error) error { return err }
