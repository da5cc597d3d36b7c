package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Tasks are delivered to a flaky target. A task that fails at every attempt is dead. Its attempts are recorded, and an
// operator can retry it.
func TestMessagesReachAFlakyTarget(t *testing.T) { onBothBackends(t, messagesReachAFlakyTarget) }

func messagesReachAFlakyTarget(t *testing.T, w *world) {
	var repaired atomic.Bool
	failing := map[holdfast.TaskID]bool{}
	var mu sync.Mutex
	tg := newTarget(t, func(c call) int {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case failing[c.task] && !repaired.Load():
			return 500
		case c.task%3 == 0 && c.attempt == 1:
			return 503
		}
		return 204
	})
	mu.Lock()
	task := httpTask(tg)
	task.MaxAttempts = 3
	ids := w.enqueue(t, 300, task)
	for _, id := range ids[:10] {
		failing[id] = true
	}
	mu.Unlock()
	w.serve(t, nil)
	w.awaitCount(t, holdfast.Dead, 10)
	w.awaitCount(t, holdfast.Done, 290)

	calls, _ := tg.snapshot()
	for id, cs := range byTask(calls) {
		want := 1
		switch {
		case failing[id]:
			want = 3
		case id%3 == 0:
			want = 2
		}
		if len(cs) != want {
			attempts, err := w.Store.Attempts(t.Context(), id)
			unreached := 0 // on a busy machine an attempt may end before the target reads its request
			for _, attempt := range attempts {
				if attempt.Event == holdfast.EventRetry && !strings.HasPrefix(attempt.Class, "http_") {
					unreached++
				}
			}
			if task := w.task(t, id); unreached == 0 || len(cs) != task.Attempt-unreached {
				t.Errorf("task %s was delivered %d times, want %d; its attempts are %+v, %v", id, len(cs), want, attempts, err)
			}
		}
	}
	attempts, err := w.Store.Attempts(t.Context(), ids[0])
	if err != nil || len(attempts) != 3 || attempts[2].Event != holdfast.EventGiveUp || attempts[0].Class != "http_500" {
		t.Errorf("the attempts of a dead task are %+v, %v", attempts, err)
	}

	repaired.Store(true)
	if o := w.operate(t, operate.Request{Action: store.ActionRetry, Filter: store.Filter{States: []holdfast.State{holdfast.Dead}}}); o.Changed != 10 || o.Succeeded != 10 {
		t.Errorf("the retry is %+v", o)
	}
	w.awaitCount(t, holdfast.Done, 300)
}

func TestOutcomesOfAHandler(t *testing.T) { onAFileFirst(t, outcomesOfAHandler) }

func outcomesOfAHandler(t *testing.T, w *world) {
	w.runJanitor(t, w.Backend, nil)
	boom := errors.New("boom")
	results := map[string]error{
		"ok": nil, "permanent": holdfast.Permanent(boom), "cancel": holdfast.Cancel(boom), "fails": boom,
	}
	handlers := map[string]consumer.Handler{
		"panics": consumer.HandlerFunc(func(context.Context, holdfast.Task) error { panic("ouch") }),
		"deferred": consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error {
			if task.Deferrals < 5 {
				return holdfast.Defer(50*time.Millisecond, boom)
			}
			return nil
		}),
	}
	for kind, result := range results {
		handlers[kind] = consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return result })
	}
	w.runWorker(t, w.Backend, nil, handlers)
	for kind, want := range map[string]struct {
		state    holdfast.State
		failures int
	}{
		"ok": {holdfast.Done, 0}, "permanent": {holdfast.Dead, 1}, "cancel": {holdfast.Cancelled, 0},
		"fails": {holdfast.Dead, 2}, "panics": {holdfast.Dead, 2}, "deferred": {holdfast.Done, 0},
	} {
		id := w.enqueue(t, 1, holdfast.NewTask{Type: kind, MaxAttempts: 2})[0]
		task := w.awaitTask(t, id, string(want.state), in(want.state))
		if task.Failures != want.failures {
			t.Errorf("%s: %d failures, want %d", kind, task.Failures, want.failures)
		}
	}
}

func TestCancelReachesARunningHandlerElsewhere(t *testing.T) {
	onServersFirst(t, cancelReachesARunningHandlerElsewhere)
}

func cancelReachesARunningHandlerElsewhere(t *testing.T, w *world) {
	tg := newTarget(t, func(c call) int { <-c.ctx.Done(); return 503 })
	w.serve(t, nil)
	id := w.enqueue(t, 1, httpTask(tg))[0]
	tg.await(t, "the task is in flight", func(c []call) bool { return len(open(c)) == 1 })
	if _, err := w.Act(t.Context(), store.Actor{}, id, store.ActionCancel); err != nil {
		t.Fatal(err)
	}
	tg.await(t, "the handler's request was canceled", func(c []call) bool { return len(open(c)) == 0 && c[0].aborted })
	if task := w.task(t, id); task.State != holdfast.Cancelled || task.Attempt != 1 {
		t.Errorf("the task is %s at attempt %d", task.State, task.Attempt)
	}
}

func TestUnknownTypesWaitVisiblyAndRunWhenAHandlerComes(t *testing.T) {
	onAFileFirst(t, unknownTypesWaitVisiblyAndRunWhenAHandlerComes)
}

func unknownTypesWaitVisiblyAndRunWhenAHandlerComes(t *testing.T, w *world) {
	w.runJanitor(t, w.Backend, nil)
	parkBriefly := func(o *consumer.Options) { o.ParkFor = 300 * time.Millisecond }
	w.runWorker(t, w.Backend, parkBriefly, map[string]consumer.Handler{"other": consumer.HandlerFunc(nothing)})
	id := w.enqueue(t, 1, holdfast.NewTask{Type: "mystery"})[0]
	parked := w.awaitTask(t, id, "parked", func(task holdfast.Task) bool { return task.Parked != "" })
	if parked.State != holdfast.Ready || parked.Failures != 0 || parked.Attempt != 1 {
		t.Errorf("a parked task is %s at attempt %d with %d failures", parked.State, parked.Attempt, parked.Failures)
	}
	w.runWorker(t, w.Backend, parkBriefly, map[string]consumer.Handler{"mystery": consumer.HandlerFunc(nothing)})
	w.awaitTask(t, id, "done", in(holdfast.Done))
}

func nothing(context.Context, holdfast.Task) error { return nil }

func TestMalformedMessagesAreQuarantined(t *testing.T) {
	onServersFirst(t, malformedMessagesAreQuarantined)
}

func malformedMessagesAreQuarantined(t *testing.T, w *world) {
	w.runJanitor(t, w.Backend, nil)
	w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{"work": consumer.HandlerFunc(nothing)})
	w.enqueue(t, 1, holdfast.NewTask{Type: "work"})
	w.awaitCount(t, holdfast.Done, 1) // now the janitor and the worker are running
	bad := []string{"", "hello", `{"v":1}`, `{"v":1,"t":[[-1,1]]}`, `{"v":1,"t":[[1,1]]} {}`, `{"v":1,"worker":1,"page":1,"t":[[1,1]]}`}
	queues := append(w.Topology.HoldingQueueNames(), w.Topology.Main("default"), w.Topology.Rescue())
	var messages []broker.Message
	want := 0
	for _, queue := range queues {
		for _, body := range bad {
			isManifest := body == bad[len(bad)-1]
			if isManifest && queue != w.Topology.Main("default") {
				continue // a manifest is valid in the holding queues and in the rescue queue
			}
			messages = append(messages, broker.Message{Queue: queue, Body: []byte(body)})
			want++
		}
	}
	for _, queue := range queues {
		messages = append(messages, broker.Message{Queue: queue, Body: []byte(`{"v":99,"t":"of a newer version"}`)})
	}
	if _, err := w.Broker.Publish(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
	w.enqueue(t, 20, holdfast.NewTask{Type: "work"})
	w.awaitCount(t, holdfast.Done, 21)
	for queue, want := range map[string]int{w.Topology.Quarantine(): want, w.Topology.Unread(): len(queues)} {
		sub, err := w.Broker.Subscribe(t.Context(), queue, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for n := range want {
			select {
			case <-sub.Deliveries():
			case <-time.After(slow.Patience()):
				t.Fatalf("only %d of %d messages are in %s", n, want, queue)
			}
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestUniqueKeysAreReportedWithTheExistingTask(t *testing.T) {
	onAFileFirst(t, uniqueKeysAreReportedWithTheExistingTask)
}

func uniqueKeysAreReportedWithTheExistingTask(t *testing.T, w *world) {
	p := w.Producer(nil)
	defer p.Close()
	var wg sync.WaitGroup
	ids := make([]holdfast.TaskID, 50)
	fresh := atomic.Int32{}
	for i := range ids {
		wg.Go(func() {
			r, err := p.Enqueue(t.Context(), holdfast.NewTask{Type: "x", Unique: fmt.Sprintf("key-%d", i%5)})
			if err != nil {
				t.Error(err)
			}
			ids[i] = r.ID
			if !r.Duplicate {
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	for i := range ids {
		if ids[i] != ids[i%5] || ids[i] == 0 {
			t.Errorf("key-%d has the tasks %s and %s", i%5, ids[i], ids[i%5])
		}
	}
	if fresh.Load() != 5 {
		t.Errorf("%d tasks were stored for 5 keys, want 5", fresh.Load())
	}
}

// A saturated worker keeps its executors busy, although it hands back tasks that it cannot run. Each executor that
// becomes free gets another task while all others are still busy. `make recovery` measures how long that takes.
func TestSaturatedWorkersStayBusy(t *testing.T) { onServersFirst(t, saturatedWorkersStayBusy) }

func saturatedWorkersStayBusy(t *testing.T, w *world) {
	w.runJanitor(t, w.Backend, nil)
	const executors, tasks = 10, 150
	started, finish := make(chan holdfast.TaskID, tasks), make(chan struct{})
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency = executors }, map[string]consumer.Handler{
		"work": consumer.HandlerFunc(func(ctx context.Context, task holdfast.Task) error {
			started <- task.ID
			select {
			case <-finish:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}),
	})
	w.enqueue(t, tasks, holdfast.NewTask{Type: "work"})
	seen := map[holdfast.TaskID]bool{}
	late := time.After(slow.Patience())
	for n := range tasks {
		if n >= executors {
			finish <- struct{}{} // exactly one executor becomes free
		}
		select {
		case id := <-started:
			if seen[id] {
				t.Errorf("task %s ran twice", id)
			}
			seen[id] = true
		case <-late:
			t.Fatalf("after %d tasks, a free executor gets no further task", n)
		}
	}
	close(finish)
	w.awaitCount(t, holdfast.Done, tasks)
}

// A worker process that consumes no queue is not ready. Its readiness endpoint returns the reason.
func TestReadinessMeansConsuming(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.spawn(t, nil, "--roles", "worker")
	body := ""
	poll(t, func() string { return "readiness does not report the reason: " + body }, func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ready, nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		body = string(text)
		return err == nil && response.StatusCode == http.StatusServiceUnavailable && strings.Contains(body, "does not exist yet; a janitor declares it")
	})

	w.runJanitor(t, w.Backend, nil) // declares the queues
	p.awaitReady()
}
