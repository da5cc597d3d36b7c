package consumer_test

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
)

// company notes what ran beside what.
type company struct {
	mu      sync.Mutex
	now     map[holdfast.TaskID]bool
	most    map[holdfast.TaskID]int // others that ran at the same time
	started chan holdfast.TaskID
	release chan struct{}
}

func newCompany() *company {
	return &company{
		now: make(map[holdfast.TaskID]bool), most: make(map[holdfast.TaskID]int),
		started: make(chan holdfast.TaskID, 1000), release: make(chan struct{}),
	}
}

func (c *company) handle(ctx context.Context, task holdfast.Task) error {
	c.mu.Lock()
	c.now[task.ID] = true
	for id := range c.now {
		c.most[id] = max(c.most[id], len(c.now)-1)
	}
	c.mu.Unlock()
	c.started <- task.ID
	select {
	case <-c.release:
	case <-ctx.Done():
	}
	c.mu.Lock()
	delete(c.now, task.ID)
	c.mu.Unlock()
	return ctx.Err()
}

// suspects makes tasks suspects: one more crash, and they are dead.
func (w *world) suspects(tickets ...message.Ticket) {
	w.Helper()
	for _, ticket := range tickets {
		w.sql("update holdfast.tasks set crashes = $1 where id = $2", holdfast.DefaultPolicy().MaxCrashes-1, int64(ticket.Task))
	}
}

// A task whose next crash would be its last is not even claimed while something else is in hand, although its
// ticket came in the same message; and while it runs nothing else is taken.
func TestASuspectRunsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets := w.ticketed(6, kind)
	suspect, beside, later := tickets[0], tickets[1:5], tickets[5]
	w.suspects(suspect)
	c := newCompany()
	w.work(c.handle, nil)
	w.send(w.main(), tickets[:5]...)
	for range beside {
		if id := await(w, "the others start", c.started); id == suspect.Task {
			t.Fatal("the suspect started beside others")
		}
	}
	if task := w.task(suspect.Task); task.State != holdfast.Ready {
		t.Errorf("the suspect is %s: if the worker died now it would be charged", task.State)
	}
	for range beside {
		c.release <- struct{}{}
	}
	if id := await(w, "the suspect starts", c.started); id != suspect.Task {
		t.Errorf("task %s started, want the suspect", id)
	}
	for _, ticket := range beside {
		if task := w.task(ticket.Task); task.State != holdfast.Done {
			t.Errorf("the suspect was claimed while a result waited: a task is %s", task.State)
		}
	}
	w.send(w.main(), later)
	w.givenBack()
	if task := w.task(later.Task); task.State != holdfast.Ready {
		t.Errorf("a task beside the suspect is %s", task.State)
	}
	c.release <- struct{}{}
	await(w, "the other one starts", c.started)
	c.release <- struct{}{}
	w.awaitState(holdfast.Done, suspect, later)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.most[suspect.Task]; n != 0 {
		t.Errorf("%d tasks ran beside the suspect", n)
	}
}

// givenBack waits until the worker has been offered what is in its queue and has given it back.
func (w *world) givenBack() {
	w.Helper()
	w.eventually("the ticket is back in its queue", func() bool {
		depths, err := w.broker.Depths(w.Context(), []string{w.main()})
		return err == nil && depths[w.main()].Ready > 0
	})
}

// Several suspects in one message run one after the other, and each beside nothing.
func TestSuspectsTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets := w.ticketed(20, kind)
	w.suspects(tickets[:3]...)
	c := newCompany()
	close(c.release)
	w.janitor() // to offer again what waits for its turn
	w.work(c.handle, func(o *consumer.Options) { o.Concurrency = 50 })
	w.send(w.main(), tickets...)
	w.awaitState(holdfast.Done, tickets...)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ticket := range tickets {
		task := w.task(ticket.Task)
		if suspect := task.Crashes > 0; suspect && c.most[task.ID] > 0 || task.Attempt != 1 {
			t.Errorf("task %s, %d crashes, attempt %d: %d others beside it", task.ID, task.Crashes, task.Attempt, c.most[task.ID])
		}
	}
}

// A worker that stops while it waits for a suspect's turn gives the ticket back.
func TestADrainDoesNotWaitForASuspect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets := w.ticketed(2, kind)
	w.suspects(tickets[0])
	c := newCompany()
	worker := w.work(c.handle, nil)
	w.send(w.main(), tickets...)
	await(w, "the other one starts", c.started)
	close(c.release)
	worker.stop()
	second := newCompany()
	close(second.release)
	w.work(second.handle, nil)
	w.awaitState(holdfast.Done, tickets...)
	if task := w.task(tickets[0].Task); task.Attempt != 1 || task.Failures != 0 {
		t.Errorf("the suspect is at attempt %d with %d failures", task.Attempt, task.Failures)
	}
}
