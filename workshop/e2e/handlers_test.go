package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
)

// started counts the starts of each task.
type started struct {
	mu sync.Mutex
	n  map[holdfast.TaskID]int
}

// handler returns a handler that counts its calls.
func (s *started) handler() consumer.Handler {
	s.n = make(map[holdfast.TaskID]int)
	return consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n[task.ID]++
		return nil
	})
}

var idleHandler = consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil })

// parkForever makes a worker park tasks for longer than a test lasts, so that only a registration can end the wait.
func parkForever(o *consumer.Options) { o.ParkFor = store.LongestPark }

// Workers of one queue handle different types. Each task starts, although most tickets reach workers without its
// handler.
func TestTasksStartWhereverTheyCan(t *testing.T) { onBothBackends(t, tasksStartWhereverTheyCan) }

func tasksStartWhereverTheyCan(t *testing.T, w *world) {
	b := w.Backend
	w.runJanitor(t, b, nil)
	var letters, reports started
	for range 3 {
		w.runWorker(t, b, parkForever, map[string]consumer.Handler{"card": idleHandler})
	}
	w.runWorker(t, b, parkForever, map[string]consumer.Handler{"card": idleHandler, "letter": letters.handler()})
	w.runWorker(t, b, parkForever, map[string]consumer.Handler{"report": reports.handler()})
	urgent := holdfast.NewTask{Type: "report", Priority: holdfast.PriorityHigh, Payload: []byte("1")}
	n := int64(0)
	for range 20 {
		for _, task := range []holdfast.NewTask{{Type: "letter", Payload: []byte("1")}, {Type: "report", Payload: []byte("1")}, urgent, {Type: "card", Payload: []byte("1")}} {
			n += int64(len(w.enqueue(t, 3, task)))
		}
	}
	w.awaitCount(t, holdfast.Done, n)
	for _, s := range []*started{&letters, &reports} {
		for id, calls := range s.n {
			if calls != 1 || w.task(t, id).Attempt != 1 {
				t.Errorf("task %s was started %d times: %+v", id, calls, w.task(t, id))
			}
		}
	}
}

// Tasks of a type that no worker handles are parked. They start when a worker with the handler has registered.
func TestARegistrationEndsTheWaitForAHandler(t *testing.T) {
	onBothBackends(t, registrationEndsTheWait)
}

func registrationEndsTheWait(t *testing.T, w *world) {
	b := w.Backend
	w.runJanitor(t, b, nil)
	var letters started
	w.runWorker(t, b, parkForever, map[string]consumer.Handler{"card": idleHandler})
	ids := w.enqueue(t, 5, holdfast.NewTask{Type: "letter", Payload: []byte("1")})
	for _, id := range ids {
		w.awaitTask(t, id, "parked", func(task holdfast.Task) bool { return strings.Contains(task.Parked, "has no handler") })
	}
	w.runWorker(t, b, parkForever, map[string]consumer.Handler{"letter": letters.handler()})
	w.awaitCount(t, holdfast.Done, int64(len(ids)))
	if task := w.task(t, ids[0]); task.Attempt != 1 || task.Parked != "" {
		t.Errorf("the task is %+v", task)
	}
}

// The only program with a handler is killed while tickets wait for it in a type queue. The other worker parks the
// tasks, and the next start of the program runs them.
func TestAKilledProgramLeavesNoTicketBehind(t *testing.T) {
	w := newWorld(t)
	w.lease = shortLease()
	file := filepath.Join(t.TempDir(), "records")
	w.serve(t, nil)
	program := w.startChild(t, recorderVariable, file, "HOLDFAST_WORKER_CONCURRENCY=1") // so that the tasks take seconds
	const n = 3000
	w.enqueue(t, 1, holdfast.NewTask{Type: "ordered", Payload: []byte(`{}`)}) // waits for the type queue
	w.awaitCount(t, holdfast.Done, 1)
	ids := w.enqueue(t, n, holdfast.NewTask{Type: "ordered", Payload: []byte(`{}`)})
	w.awaitTask(t, ids[0], "done", in(holdfast.Done))
	program.kill()
	poll(t, func() string { return "no task is parked" }, func(ctx context.Context) bool {
		queues, err := w.Backend.Store.Queues(ctx)
		return err == nil && len(queues) > 0 && queues[0].Parked > 0
	})
	w.startChild(t, recorderVariable, file)
	w.awaitCount(t, holdfast.Done, n+1)
}
