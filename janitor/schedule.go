package janitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

const (
	// scheduleCap is how long the scheduler sleeps at most: a task that another process
	// makes due sooner is seen this late.
	scheduleCap = 200 * time.Millisecond
	// scheduleStep keeps a steady stream of due tasks in batches.
	scheduleStep  = 5 * time.Millisecond
	scheduleBatch = 1000
)

// schedule publishes tickets for tasks that have become due. It sleeps until the
// next one is, or somebody nudges it.
func (j *Janitor) schedule(ctx context.Context) {
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
		wait, err := j.dispatchDue(ctx)
		if err == nil {
			pause.Reset()
		} else if ctx.Err() == nil {
			j.o.Log.WithError(err).WithField("duty", "schedule").Warn("a duty failed, trying again")
			wait = pause.Next()
		}
		next = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// dispatchDue publishes one batch and returns how long to sleep.
func (j *Janitor) dispatchDue(ctx context.Context) (time.Duration, error) {
	var publishErr error
	began, lanes := time.Now(), j.isolated.shared()
	dispatched, err := j.dispatchTasks(ctx, lanes, scheduleBatch, func(tickets byLane) map[message.Ticket]bool {
		var published map[message.Ticket]bool
		published, publishErr = j.publishShared(ctx, tickets)
		return published
	})
	if err != nil {
		return 0, err
	}
	if dispatched.Marked > 0 {
		j.o.Observer.Observe(holdfast.Observation{Kind: holdfast.ObservedPublished, Count: dispatched.Marked, Took: time.Since(began)})
	}
	if len(j.isolated.shared().Except) > len(lanes.Except) { // perhaps the call did not reach due tasks of other lanes
		return scheduleStep, nil
	}
	if publishErr != nil && dispatched.Marked == 0 {
		return 0, publishErr
	}
	if dispatched.Next >= scheduleCap {
		return j.beat(scheduleCap), nil
	}
	return max(dispatched.Next, scheduleStep), nil
}

// dispatchTasks publishes tickets of due tasks and marks those tasks whose tickets are confirmed.
func (j *Janitor) dispatchTasks(ctx context.Context, lanes store.Lanes, limit int, publish func(byLane) map[message.Ticket]bool) (store.Dispatched, error) {
	return j.o.Store.DispatchDue(ctx, lanes, limit, func(_ context.Context, due []store.Due) []bool {
		tickets := make(byLane)
		for _, d := range due {
			queue := j.o.Topology.Main(d.Lane)
			if d.Again {
				queue = j.o.Topology.Again(d.Lane)
			}
			tickets.add(d.Lane, queue, d.Ticket)
		}
		published := publish(tickets)
		stored := make([]bool, len(due))
		for i, d := range due {
			stored[i] = published[d.Ticket]
		}
		return stored
	})
}

// publishTickets publishes tickets by queue and returns which are confirmed. The
// error is the broker's, if not all are.
func (j *Janitor) publishTickets(ctx context.Context, byQueue map[string][]message.Ticket) (map[message.Ticket]bool, error) {
	var messages []broker.Message
	var contents [][]message.Ticket
	for queue, tickets := range byQueue {
		for part := range slices.Chunk(tickets, message.PerMessage(len(tickets), 1)) {
			messages = append(messages, broker.Message{Queue: queue, Body: message.Message{Tickets: part}.Encode()})
			contents = append(contents, part)
		}
	}
	outcomes, err := j.o.Broker.Publish(ctx, messages)
	if slices.Contains(outcomes, broker.Returned) {
		outcomes, err = j.publishAgain(ctx, messages, outcomes)
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

// rebuildPatience bounds a rebuild for the sake of tickets in hand: the tickets of other lanes wait for it. What
// takes longer is left to the duty itself.
const rebuildPatience = 500 * time.Millisecond

// errRebuilding says that a rebuild is in progress, which may still declare the queue.
var errRebuilding = errors.New("a rebuild is in progress")

// publishAgain makes the queues that were missing, most likely of a new lane, and publishes what
// was returned once more. Else it would wait for the next look at the topology, and then be put off.
func (j *Janitor) publishAgain(ctx context.Context, messages []broker.Message, outcomes []broker.Outcome) ([]broker.Outcome, error) {
	limited, cancel := context.WithTimeout(ctx, rebuildPatience)
	defer cancel()
	select {
	case j.rebuilding <- struct{}{}:
	case <-limited.Done():
		return outcomes, fmt.Errorf("%w: %w", broker.ErrNoQueue, errRebuilding)
	}
	err := j.rebuildAlone(limited)
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
	again, err := j.o.Broker.Publish(ctx, returned)
	for i, outcome := range outcomes {
		if outcome == broker.Returned {
			outcomes[i], again = again[0], again[1:]
		}
	}
	if err == nil && slices.Contains(outcomes, broker.Unknown) {
		err = errors.New("some tickets were not confirmed")
	}
	return outcomes, err
}
