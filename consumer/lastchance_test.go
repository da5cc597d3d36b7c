package consumer_test

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
)

// neighborCounter is a handler that counts how many tasks run beside each task.
type neighborCounter struct {
	mu           sync.Mutex
	runningNow   map[holdfast.TaskID]bool
	maxNeighbors map[holdfast.TaskID]int // maximum number of tasks that ran at the same time
	started      chan holdfast.TaskID
	release      chan struct{}
}

func newNeighborCounter() *neighborCounter {
	return &neighborCounter{
		runningNow: make(map[holdfast.TaskID]bool), maxNeighbors: make(map[holdfast.TaskID]int),
		started: make(chan holdfast.TaskID, 1000), release: make(chan struct{}),
	}
}

func (c *neighborCounter) handle(ctx context.Context, task holdfast.Task) error {
	c.mu.Lock()
	c.runningNow[task.ID] = true
	for id := range c.runningNow {
		c.maxNeighbors[id] = max(c.maxNeighbors[id], len(c.runningNow)-1)
	}
	c.mu.Unlock()
	c.started <- task.ID
	select {
	case <-c.release:
	case <-ctx.Done():
	}
	c.mu.Lock()
	delete(c.runningNow, task.ID)
	c.mu.Unlock()
	return ctx.Err()
}

// lastChances turns tasks into last-chance tasks.
func (w *world) lastChances(tickets ...message.Ticket) {
	w.Helper()
	for _, ticket := range tickets {
		w.sql("update holdfast.tasks set crashes = $1 where id = $2", holdfast.DefaultPolicy().MaxCrashes-1, int64(ticket.Task))
	}
}

// A last-chance task is not claimed while other tasks are in progress, even if its ticket arrived in their message.
// While it runs, the worker claims no other task.
func TestALastChanceTaskRunsExclusively(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets := w.ticketed(6, kind)
	lastChance, others, later := tickets[0], tickets[1:5], tickets[5]
	w.lastChances(lastChance)
	c := newNeighborCounter()
	w.work(c.handle, nil)
	w.send(w.main(), tickets[:5]...)
	for range others {
		if id := await(w, "the others start", c.started); id == lastChance.Task {
			t.Fatal("the last-chance task started beside others")
		}
	}
	if task := w.task(lastChance.Task); task.State != holdfast.Ready {
		t.Errorf("the last-chance task is %s: a crash of the worker would be charged to it", task.State)
	}
	for range others {
		c.release <- struct{}{}
	}
	if id := await(w, "the last-chance task starts", c.started); id != lastChance.Task {
		t.Errorf("task %s started, want the last-chance task", id)
	}
	for _, ticket := range others {
		if task := w.task(ticket.Task); task.State != holdfast.Done {
			t.Errorf("the last-chance task was claimed before a result was written: a task is %s", task.State)
		}
	}
	w.send(w.main(), later)
	w.awaitRequeued()
	if task := w.task(later.Task); task.State != holdfast.Ready {
		t.Errorf("a task beside the last-chance task is %s", task.State)
	}
	c.release <- struct{}{}
	await(w, "the other one starts", c.started)
	c.release <- struct{}{}
	w.awaitState(holdfast.Done, lastChance, later)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.maxNeighbors[lastChance.Task]; n != 0 {
		t.Errorf("%d tasks ran beside the last-chance task", n)
	}
}

// awaitRequeued waits until the worker has returned a ticket to the main queue.
func (w *world) awaitRequeued() {
	w.Helper()
	w.eventually("the ticket is back in the main queue", func() bool {
		depths, err := w.broker.Depths(w.Context(), []string{w.main()})
		return err == nil && depths[w.main()].Ready > 0
	})
}

// If a message has several last-chance tasks, they run one after another, each exclusively.
func TestLastChanceTasksTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets := w.ticketed(20, kind)
	w.lastChances(tickets[:3]...)
	c := newNeighborCounter()
	close(c.release)
	w.janitor() // publishes tickets of parked tasks
	w.work(c.handle, func(o *consumer.Options) { o.Concurrency = 50 })
	w.send(w.main(), tickets...)
	w.awaitState(holdfast.Done, tickets...)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ticket := range tickets {
		task := w.task(ticket.Task)
		if lastChance := task.Crashes > 0; lastChance && c.maxNeighbors[task.ID] > 0 || task.Attempt != 1 {
			t.Errorf("task %s, %d crashes, attempt %d: %d others beside it", task.ID, task.Crashes, task.Attempt, c.maxNeighbors[task.ID])
		}
	}
}

// A worker that stops while a last-chance task waits for its turn returns the ticket.
func TestADrainDoesNotWaitForALastChanceTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets := w.ticketed(2, kind)
	w.lastChances(tickets[0])
	c := newNeighborCounter()
	worker := w.work(c.handle, nil)
	w.send(w.main(), tickets...)
	await(w, "the other one starts", c.started)
	close(c.release)
	worker.stop()
	second := newNeighborCounter()
	close(second.release)
	w.work(second.handle, nil)
	w.awaitState(holdfast.Done, tickets...)
	if task := w.task(tickets[0].Task); task.Attempt != 1 || task.Failures != 0 {
		t.Errorf("the last-chance task is at attempt %d with %d failures", task.Attempt, task.Failures)
	}
}
