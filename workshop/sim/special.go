package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

// special is the type of the tasks that only some workers of a plan handle.
const special = "special"

// parkFor is the first wait of a task that no live worker handles. It is longer than the faults of a plan last, so that
// only the registration of a worker with the handler can end the wait in time.
const parkFor = time.Minute

// specialize gives about half of the ordinary tasks a type that only some of at least two workers handle. Plans in which
// only queues are silent stay as they are, because their tasks must start in time.
func (p *Plan) specialize(r *rand.Rand) {
	if _, silence := p.onlySilence(); silence {
		return
	}
	workers := p.workers()
	if len(workers) == 1 {
		workers = append(workers, len(p.Roles))
		p.Roles = append(p.Roles, Worker)
	}
	r.Shuffle(len(workers), func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
	p.Specialists = workers[:1+r.IntN(len(workers)-1)]
	for i := range p.Tasks {
		t := &p.Tasks[i]
		t.Special = !t.Once && !t.Poison && t.Hangs == 0 && !t.Brief && t.Target == "" && r.IntN(2) == 0
	}
}

// workers returns the indexes of the processes with a worker.
func (p *Plan) workers() (indexes []int) {
	for i, role := range p.Roles {
		if role == Serve || role == Worker {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// handles reports whether the worker of a process handles the special type.
func (p *Plan) handles(index int) bool { return slices.Contains(p.Specialists, index) }

// registrationKnown is how long another worker may not know of a registration: a call that has read the workers before
// may take a few seconds, and its process may be stopped meanwhile.
const registrationKnown = 10*time.Second + longestFault

// specialist returns a live worker that has handled the type of a task for longer than registrationKnown.
func (c *checker) specialist(task *memory.Task) *memory.Worker {
	now := c.world.clock.now()
	workers := c.world.store.Workers()
	for i := range workers {
		w := &workers[i]
		if w.State == store.WorkerLive && !w.Draining && slices.Contains(w.Types, task.Type) && now.Sub(w.StartedAt) > registrationKnown {
			return w
		}
	}
	return nil
}

// unhandled reports whether a task is parked because no worker handles its type.
func unhandled(task *memory.Task) bool { return strings.Contains(task.Parked, "has no handler") }

// checkParked checks that no task is parked for want of a handler although a live worker has one. It also counts the
// waits that registrations have ended.
func (c *checker) checkParked(change memory.Change) {
	if change.Op == "Unpark" {
		c.unparked++
	}
	if change.Op != "Park" || !unhandled(change.After) || c.recent(c.world.state.leapt) || c.world.state.fellBack > 0 {
		return
	}
	if w := c.specialist(change.After); w != nil {
		c.fail("task %s is parked (%s), although worker %s handles its type", change.After.ID, change.After.Parked, w.ID)
	}
}

// checkUnparked checks, after all faults, that a registration has ended the waits for a handler.
func (c *checker) checkUnparked() {
	if time.Since(c.world.began) < faultTime+longestFault+registrationKnown || c.world.clock.leap != 0 || c.world.state.fellBack > 0 {
		return
	}
	now := c.world.clock.now()
	tasks := c.world.store.Tasks()
	for i := range tasks {
		if t := &tasks[i]; t.State == holdfast.Ready && unhandled(t) && t.DueAt.Sub(now) > 2*time.Second {
			if w := c.specialist(t); w != nil {
				c.fail("task %s waits for a handler until %v, although worker %s has registered", t.ID, t.DueAt, w.ID)
			}
		}
	}
}

// givenAway notes tickets that a worker gives away and then acks. A claim of another worker that began before may be
// committed meanwhile; then its manifest is the next record of the task.
func (c *checker) givenAway(tickets []message.Ticket) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	for _, ticket := range tickets {
		c.gates.late[ticket] = true
	}
}

// checkTypeQueue checks that a message in a type queue has only tickets of the queue and the type.
func (c *checker) checkTypeQueue(m *simbroker.Message) {
	if c.world.state.fellBack > 0 {
		return // an id may belong to another task now
	}
	edited := len(c.world.plan.Operations) > 0 // an operation may have moved a task to another queue
	for _, queue := range c.world.store.Queues() {
		subqueue, taskType := holdfast.SplitTypeQueue(queue.Name)
		if taskType == "" || !slices.Contains(c.world.topology.Queue(queue.Name), m.Queue) {
			continue
		}
		c.typed += len(m.Content.Tickets)
		for _, ticket := range m.Content.Tickets {
			if task := c.world.store.Task(ticket.Task); task != nil && (task.Type != taskType || task.Subqueue() != subqueue) && !edited {
				c.fail("the ticket of task %s with the type %s of %s is in %s", ticket.Task, task.Type, task.Subqueue(), m.Queue)
			}
		}
	}
}
