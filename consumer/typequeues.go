package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// The workers of a queue may handle different types. If a worker claims a task without a handler for its type, and
// another live worker has one, it passes the ticket on to the type queue of the type; see holdfast.TypeQueue. Only
// workers with a handler consume a type queue, so a ticket gets there at most once for each ticket in another queue. If
// no live worker has a handler, the worker parks the task. A worker with the handler that registers later ends the wait.

const (
	// handlersAge is how long a worker uses what it has read about the handlers of other workers. It always reads again
	// before it parks a task.
	handlersAge = time.Second
	// undeclaredPark is the first wait of a task whose type queue has just been added. A janitor declares the AMQP queue
	// and the workers with a handler subscribe to it meanwhile.
	undeclaredPark = time.Second
	// maxAMQPName is the maximum length of the name of an AMQP queue in bytes.
	maxAMQPName = 255
)

// introduceAfter is how long a new worker first takes tickets that wait, before it reads about other workers.
const introduceAfter = 200 * time.Millisecond

// unparkAfter are the times after introduceAfter at which a worker ends the waits of parked tasks. The later times are
// for tasks that another worker parked meanwhile, because it had read the handlers before the registration.
var unparkAfter = []time.Duration{0, time.Second, claimTimeout + time.Second}

// handlers is what a worker knows about the handlers of other workers. The zero value knows nothing. It is safe for
// concurrent use.
type handlers struct {
	mu     sync.Mutex
	known  []store.Handler
	read   time.Time
	queues []string // the queues that the store knows
}

// handledElsewhere reports whether a live worker that takes the queue handles the type. It tries until the store answers
// or ctx is done.
func (s *session) handledElsewhere(ctx context.Context, queue, taskType string) (bool, error) {
	takes := func(h store.Handler) bool { return h.Takes(queue, taskType) }
	h := &s.handlers
	h.mu.Lock()
	fresh, found := time.Since(h.read) < handlersAge, slices.ContainsFunc(h.known, takes)
	h.mu.Unlock()
	if fresh && found {
		return true, nil
	}
	var known []store.Handler
	var began time.Time
	err := s.untilAnswered(ctx, "handlers of other workers not read", func(ctx context.Context) (err error) {
		began = time.Now()
		known, err = s.o.Store.Handlers(ctx)
		return err
	})
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	h.known, h.read = known, began
	h.mu.Unlock()
	return slices.ContainsFunc(known, takes), nil
}

// addTypeQueue adds a type queue to the queues that the store knows. It reports whether the worker has known the type
// queue before, so that a janitor has probably declared it. It tries until the store answers or ctx is done.
func (s *session) addTypeQueue(ctx context.Context, name string) (known bool, err error) {
	h := &s.handlers
	h.mu.Lock()
	known = slices.Contains(h.queues, name)
	h.mu.Unlock()
	if known {
		return true, nil
	}
	err = s.untilAnswered(ctx, "type queue not added", func(ctx context.Context) error { return s.o.Store.AddQueues(ctx, []string{name}) })
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	h.queues = append(slices.Clone(h.queues), name)
	h.mu.Unlock()
	return false, nil
}

// noteQueues records which queues the store knows. A store that has lost commits may have forgotten a type queue.
func (s *session) noteQueues(names []string) {
	s.handlers.mu.Lock()
	defer s.handlers.mu.Unlock()
	s.handlers.queues = names
}

// maxPrepared is the maximum number of type queues that a worker adds in advance.
const maxPrepared = 100

// prepareTypeQueues adds the type queues that the differences between this worker and the other live workers require, so
// that their first tickets need not wait for a declaration. known are the queues that the store knows. If there are very
// many, or if the call fails, each type queue is added when the first ticket needs it.
func (s *session) prepareTypeQueues(ctx context.Context, known []string) {
	workers, err := s.o.Store.Workers(ctx, false)
	if err != nil {
		s.log.WithError(err).Debug("other workers not read: adding type queues when they are needed")
		return
	}
	var missing []string
	for i := range workers {
		other := &workers[i]
		if other.ID == s.worker || other.Draining || other.Types == nil {
			continue
		}
		types := differing(s.types, other.Types)
		for _, name := range s.subqueues(known) {
			subqueue, typeOfQueue := holdfast.SplitTypeQueue(name)
			queue, _ := holdfast.SplitSubqueue(subqueue)
			if typeOfQueue != "" || len(other.Queues) > 0 && !slices.Contains(other.Queues, queue) {
				continue
			}
			for _, taskType := range types {
				if name := holdfast.TypeQueue(subqueue, taskType); !slices.Contains(known, name) && !slices.Contains(missing, name) {
					missing = append(missing, name)
				}
			}
		}
	}
	if len(missing) > maxPrepared {
		return
	}
	if err := s.o.Store.AddQueues(ctx, missing); err != nil {
		s.log.WithError(err).Debug("type queues not added: adding them when they are needed")
	}
}

// differing returns the types that are in one of the lists only.
func differing(a, b []string) []string {
	var types []string
	for _, list := range [][2][]string{{a, b}, {b, a}} {
		for _, taskType := range list[0] {
			if !slices.Contains(list[1], taskType) {
				types = append(types, taskType)
			}
		}
	}
	return types
}

// giveAway passes tickets without a handler here on to their type queues. It parks the tasks that no live worker
// handles. If it returns nil, the caller may ack the tickets once its outgoing messages are confirmed. It returns an
// error if ctx ends before the store has answered.
func (p *page) giveAway(ctx context.Context, byTypeQueue map[string][]message.Ticket) error {
	s := p.s
	for name, tickets := range byTypeQueue {
		subqueue, taskType := holdfast.SplitTypeQueue(name)
		queue, _ := holdfast.SplitSubqueue(subqueue)
		elsewhere, err := s.handledElsewhere(ctx, queue, taskType)
		if err != nil {
			return err
		}
		if !elsewhere || len(s.o.Topology.Requeue(name)) > maxAMQPName {
			p.park(ctx, taskType, tickets)
			continue
		}
		if err := p.passToTypeQueue(ctx, name, tickets); err != nil {
			return err
		}
	}
	return nil
}

// park parks tasks that no live worker handles. People can see the reason in the store. A worker with a handler that
// registers later ends the wait.
func (p *page) park(ctx context.Context, taskType string, tickets []message.Ticket) {
	parked := p.parkOrRescue(ctx, tickets, p.s.o.ParkFor, fmt.Sprintf("worker %s has no handler for its type, nor has another live worker", p.s.o.Name))
	if parked == 0 {
		return
	}
	p.s.observe(holdfast.ObservedParked, parked)
	if _, logged := p.s.unhandled.LoadOrStore(taskType, true); !logged { // log each type once
		p.s.log.WithField("type", taskType).Warn("no live worker has a handler for this type: its tasks are parked")
	}
}

// passToTypeQueue publishes tickets to a type queue. It parks the tasks for a short time if the broker does not confirm
// all of them, most likely because the type queue is new.
func (p *page) passToTypeQueue(ctx context.Context, name string, tickets []message.Ticket) error {
	s := p.s
	known, err := s.addTypeQueue(ctx, name)
	if err != nil {
		return err
	}
	left := tickets
	if known {
		if err := p.recordPassed(ctx, tickets); err != nil {
			return err
		}
		amqpQueue := s.o.Topology.Main(name)
		if p.requeued { // keep the precedence, so that no worker puts such a task into its buffer
			amqpQueue = s.o.Topology.Requeue(name)
		}
		left, err = p.publishTickets(ctx, amqpQueue, tickets)
	}
	s.observe(holdfast.ObservedPassedOn, len(tickets)-len(left))
	if len(left) == 0 {
		return nil
	}
	if err != nil {
		s.log.WithError(err).WithField("queue", name).Info("tickets not confirmed by their type queue: parking the tasks")
	}
	p.parkOrRescue(ctx, left, undeclaredPark, "its tickets wait for the declaration of the type queue "+name)
	return nil
}

// publishTickets publishes tickets to an AMQP queue once, and returns those that the broker has not confirmed.
func (p *page) publishTickets(ctx context.Context, amqpQueue string, tickets []message.Ticket) (left []message.Ticket, err error) {
	var messages []broker.Message
	parts := slices.Collect(slices.Chunk(tickets, message.PerMessage(len(tickets), 1)))
	for _, part := range parts {
		messages = append(messages, broker.Message{Queue: amqpQueue, Body: message.Message{Tickets: part}.Encode()})
	}
	outcomes, err := p.s.o.Broker.Publish(context.WithoutCancel(ctx), messages)
	for i, part := range parts {
		if i >= len(outcomes) || outcomes[i] != broker.Stored {
			left = append(left, part...)
		}
	}
	return left, err
}

// introduce prepares the type queues that this worker and the others need, and then ends the waits of parked tasks.
func (s *session) introduce(ctx context.Context) {
	if backoff.Sleep(ctx, introduceAfter) != nil {
		return
	}
	select {
	case known := <-s.firstQueues:
		s.prepareTypeQueues(ctx, known)
		s.unpark(ctx)
	case <-ctx.Done():
	}
}

// unpark ends the waits of parked tasks that this worker handles, at the times of unparkAfter, until ctx is done.
func (s *session) unpark(ctx context.Context) {
	began := time.Now()
	for _, after := range unparkAfter {
		if backoff.Sleep(ctx, time.Until(began.Add(after))) != nil {
			return
		}
		for pause := backoff.New(firstPause, longPause); ; {
			n, err := s.o.Store.Unpark(ctx, s.types, s.o.Queues)
			if n > 0 {
				s.log.WithField("tasks", n).Info("parked tasks are due, because this worker handles their types")
				s.o.OnReady(0)
			}
			if err == nil {
				break
			}
			if ctx.Err() == nil {
				s.log.WithError(err).Info("parked tasks not made due, trying again")
			}
			if pause.Wait(ctx) != nil {
				return
			}
		}
	}
}
