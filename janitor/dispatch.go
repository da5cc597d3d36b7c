package janitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

const (
	// dispatchCap is the maximum wait between two dispatches. If another process makes a task due earlier than
	// expected, its ticket is late by up to this time.
	dispatchCap = 200 * time.Millisecond
	// dispatchStep is the minimum wait. In it, a steady stream of due tasks gathers into batches.
	dispatchStep  = 5 * time.Millisecond
	dispatchBatch = 1000
)

// dispatch publishes tickets of due tasks until ctx is done. Between two batches it waits until the next task is due,
// at most for dispatchCap. Nudge can shorten the wait.
func (j *Janitor) dispatch(ctx context.Context) {
	pause := backoff.New(firstPause, longPause)
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case wait := <-j.nudge:
			if at := time.Now().Add(wait); at.Before(next) {
				next = at
				timer.Reset(wait)
			}
			continue
		case <-timer.C:
		}
		var wait time.Duration
		err := contain.Call(func() (err error) {
			wait, err = j.dispatchReady(ctx)
			return err
		})
		if err == nil {
			pause.Reset()
			j.succeeded(ctx, "dispatch")
		} else if ctx.Err() == nil {
			wait = pause.Next()
			j.failed(ctx, "dispatch", err, wait)
		}
		next = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// dispatchReady publishes the tickets of outbox entries, if there may be any, and then those of one batch of due tasks.
// It returns how long to wait before the next batch.
func (j *Janitor) dispatchReady(ctx context.Context) (time.Duration, error) {
	if j.entries.Swap(false) {
		if err := j.outbox(ctx); err != nil {
			return 0, err
		}
	}
	return j.dispatchDue(ctx)
}

// dispatchDue publishes the tickets of one batch of due tasks. It returns how long to wait before the next batch.
func (j *Janitor) dispatchDue(ctx context.Context) (time.Duration, error) {
	var publishErr error
	began, queues := time.Now(), j.isolated.shared()
	dispatched, err := j.dispatchTasks(ctx, queues, dispatchBatch, func(tickets byQueue) map[message.Ticket]bool {
		var published map[message.Ticket]bool
		published, publishErr = j.publishShared(ctx, tickets)
		return published
	})
	if err != nil {
		return 0, err
	}
	if dispatched.Queued > 0 {
		j.Blocked()
	}
	if dispatched.Marked > 0 {
		j.o.Observer.Observe(holdfast.Observation{Kind: holdfast.ObservedPublished, Count: dispatched.Marked, Took: time.Since(began)})
	}
	if len(j.isolated.shared().Except) > len(queues.Except) { // the batch may have omitted due tasks of other queues
		return dispatchStep, nil
	}
	if publishErr != nil && dispatched.Marked == 0 {
		return 0, publishErr
	}
	if dispatched.Next >= dispatchCap {
		return j.beat(dispatchCap), nil
	}
	return max(dispatched.Next, dispatchStep), nil
}

// dispatchTasks calls publish with the tickets of at most limit due tasks. It marks the tasks as ticketed whose tickets
// publish returns.
func (j *Janitor) dispatchTasks(
	ctx context.Context, queues store.Queues, limit int, publish func(byQueue) map[message.Ticket]bool,
) (store.Dispatched, error) {
	return j.o.Store.DispatchDue(ctx, queues, limit, func(_ context.Context, due []store.Due) []bool {
		return j.publishDueTasks(due, publish)
	})
}

// publishDueTasks calls publish with the tickets of due tasks. It reports for each task whether publish returned its
// ticket.
func (j *Janitor) publishDueTasks(due []store.Due, publish func(byQueue) map[message.Ticket]bool) []bool {
	tickets := make(byQueue)
	for _, d := range due {
		amqpQueue := j.o.Topology.Main(d.Queue)
		if d.Requeued {
			amqpQueue = j.o.Topology.Requeue(d.Queue)
		}
		tickets.add(d.Queue, amqpQueue, d.Ticket)
	}
	published := publish(tickets)
	stored := make([]bool, len(due))
	for i, d := range due {
		stored[i] = published[d.Ticket]
	}
	return stored
}

// publishTickets publishes the tickets of each AMQP queue and returns the confirmed tickets. If some are not confirmed,
// it also returns the broker's error.
func (j *Janitor) publishTickets(ctx context.Context, byQueue map[string][]message.Ticket) (map[message.Ticket]bool, error) {
	var messages []broker.Message
	var contents [][]message.Ticket
	for amqpQueue, tickets := range byQueue {
		for part := range slices.Chunk(tickets, message.PerMessage(len(tickets), 1)) {
			messages = append(messages, broker.Message{Queue: amqpQueue, Body: message.Message{Tickets: part}.Encode()})
			contents = append(contents, part)
		}
	}
	outcomes, err := j.o.Broker.Publish(ctx, messages)
	if slices.Contains(outcomes, broker.Returned) {
		outcomes, err = j.republish(ctx, messages, outcomes)
	}
	confirmed := make(map[message.Ticket]bool)
	for i, outcome := range outcomes {
		if outcome == broker.Stored {
			for _, ticket := range contents[i] {
				confirmed[ticket] = true
			}
		}
	}
	return confirmed, err
}

// rebuildTimeout limits a rebuild for returned tickets, because tickets of other queues wait for it. If a rebuild needs
// more time, the rebuild duty does it.
const rebuildTimeout = 500 * time.Millisecond

// errRebuilding means that another rebuild is in progress, which may still declare the missing AMQP queue.
var errRebuilding = errors.New("a rebuild is in progress")

// republish declares the missing AMQP queues, most likely those of a new queue, and publishes the returned messages
// again. Otherwise their tasks would wait for the rebuild duty, and then for seconds more. It returns the outcomes of
// all messages, and an error if a message is not confirmed.
func (j *Janitor) republish(ctx context.Context, messages []broker.Message, outcomes []broker.Outcome) ([]broker.Outcome, error) {
	limited, cancel := context.WithTimeout(ctx, j.limits.rebuild)
	defer cancel()
	select {
	case j.rebuilding <- struct{}{}:
	case <-limited.Done():
		return outcomes, fmt.Errorf("%w: %w", broker.ErrNoQueue, errRebuilding)
	}
	err := j.rebuildLocked(limited)
	<-j.rebuilding
	if err != nil {
		return outcomes, fmt.Errorf("%w: %w", broker.ErrNoQueue, err)
	}
	var returned []broker.Message
	for i, outcome := range outcomes {
		if outcome == broker.Returned {
			returned = append(returned, messages[i])
		}
	}
	retried, err := j.o.Broker.Publish(ctx, returned)
	for i, outcome := range outcomes {
		if outcome == broker.Returned {
			outcomes[i], retried = retried[0], retried[1:]
		}
	}
	if err == nil && slices.Contains(outcomes, broker.Unknown) {
		err = errors.New("some tickets were not confirmed")
	}
	return outcomes, err
}
