package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

// maxUnpublished is how long the producer may take to publish a ticket to a queue that confirms: a few steps. A
// producer waits longer for confirms of a silent queue, and a janitor leaves an outbox entry to its producer for
// longer.
const maxUnpublished = 500 * time.Millisecond

// verified checks the result of a janitor's check of the tasks. The result must be empty if nothing went wrong. It must
// not report a ticket as lost that an outbox entry or a message contains.
func (c *checker) verified(result store.VerifyResult) {
	c.checks++
	c.checkUnparked()
	for _, found := range result.Counts {
		c.world.log.logf(time.Since(c.world.began), "a check found %s in tasks %v", found.Code, found.Samples)
		if c.world.plan.harmless() {
			c.fail("a check found %s in tasks %v, although nothing went wrong", found.Code, found.Samples)
		}
		for _, id := range found.Samples {
			task := c.world.store.Task(id)
			if found.Code == store.LostTicket && task != nil && task.Ticketed() && c.world.clock.now().Sub(task.TicketedAt) > verifyLooks {
				c.checkLostTicket(task)
			}
		}
	}
}

// verifyLooks is longer than the time between the two scans of a check. A task that was ticketed after the first scan
// has another ticket than the one that the check reports.
const verifyLooks = 15 * time.Second

// correctEvery is how often a janitor looks whether the clock of the store was set back.
const correctEvery = 5 * time.Second

// checkLostTicket checks a ticket that the janitor reported as lost: no outbox entry and no message may contain it. A
// message in the quarantine is not delivered. It may be about a task that a failover has lost and whose id now belongs
// to another task. If the ticket was in the requeue queue or a worker is full, the store replaces the ticket but does
// not report it as lost. If the clock leaps twice before a janitor has corrected the times, a sentinel may seem to be
// newer than a ticket that followed it. The second ticket does no harm.
func (c *checker) checkLostTicket(task *memory.Task) {
	if task.Requeued || c.world.store.Full() || time.Since(c.world.state.leaptTwo) < correctEvery {
		return
	}
	c.lost++
	ticket := message.Ticket{Task: task.ID, Attempt: task.Attempt}
	entries := c.world.store.OutboxEntries()
	for i := range entries {
		if slices.Contains(entries[i].Tickets, ticket) {
			c.fail("the ticket of task %s at attempt %d was reported as lost, but an outbox entry contains it", task.ID, task.Attempt)
		}
	}
	for m := range c.world.broker.Messages() {
		contained := slices.Contains(m.Content.Tickets, ticket) || m.Content.Manifest != nil && slices.Contains(m.Content.Manifest.Tickets, ticket)
		if contained && m.Queue != c.world.topology.Quarantine() {
			c.fail("the ticket of task %s at attempt %d was reported as lost, but a message contains it: %s", task.ID, task.Attempt, m)
		}
	}
}

// taskStored notes a new task whose ticket must be published at once, although other queues confirm nothing.
func (c *checker) taskStored(task *memory.Task) {
	silent, only := c.world.plan.onlySilence()
	if only && task.Ticketed() && !slices.Contains(silent, task.Queue) && slices.Contains(c.world.broker.Queues(), c.world.topology.Main(task.Subqueue())) {
		c.unpublished[message.Ticket{Task: task.ID, Attempt: task.Attempt}] = time.Now()
	}
}

// messageEntered checks that the tickets noted by taskStored are published in time, and that no message of a newer
// version is quarantined. It also checks that a sentinel passes through the main queue that it names; any other
// sentinel would prove nothing.
func (c *checker) messageEntered(m *simbroker.Message) {
	if newer(m) && m.Queue == c.world.topology.Quarantine() {
		c.fail("a message of a newer version was quarantined: %s", m)
	}
	if s := m.Content.Sentinel; s != nil && m.Queue != c.world.topology.Main(s.Queue) && m.Queue != c.world.topology.Rescue() {
		c.fail("the sentinel of the subqueue %s is in %s", s.Queue, m.Queue)
	}
	c.checkTypeQueue(m)
	for _, ticket := range m.Content.Tickets {
		since, noted := c.unpublished[ticket]
		delete(c.unpublished, ticket)
		delete(c.tooEarly, ticket)
		if late := time.Since(since); noted && late > maxUnpublished {
			c.fail("the ticket of task %s was published %s after the task was stored, although only other queues confirmed nothing", ticket.Task, late)
		}
	}
}

// droppedEarly notes the tickets that a worker drops although their tasks are ready. The clock of the store was set back
// after a janitor chose the task, so the task was not due for the claim. If the clock is right again before the janitor
// marks the task, the task is marked as ticketed without a ticket. The search for lost tickets must find it before the
// simulation ends.
func (c *checker) droppedEarly(tickets []message.Ticket, answers []store.Claim) {
	if c.world.state.leapt.IsZero() {
		return
	}
	for i := range answers {
		task := c.world.store.Task(tickets[i].Task)
		if answers[i].Verdict == store.Stale && task != nil && task.State == holdfast.Ready && task.Attempt == tickets[i].Attempt {
			c.tooEarly[tickets[i]] = true
		}
	}
}

// checkMarked checks that a janitor marks a task as ticketed only while it is due. Otherwise a worker may have dropped the
// ticket as too early, and every setback of the clock would lose tickets.
func (c *checker) checkMarked(change memory.Change) {
	before, now := change.Before, c.world.clock.now()
	if change.Op == "DispatchDue end" && change.After.Ticketed() && before.DueAt.After(now) && before.NextRunAt.After(now) {
		c.fail("task %s was marked as ticketed, although it is due only at %v", before.ID, before.NextRunAt)
	}
}

// checkTickets checks that no unfinished task can be forgotten: it is due or blocked, or an outbox entry, a ticket or a
// manifest contains its current attempt. Type gates checks due and blocked tasks.
func (c *checker) checkTickets() {
	clear(c.named)
	entries := c.world.store.OutboxEntries()
	for i := range entries {
		c.addNamed(entries[i].Tickets)
	}
	for m := range c.world.broker.Messages() {
		c.addNamed(m.Content.Tickets)
		if m.Content.Manifest != nil {
			c.addNamed(m.Content.Manifest.Tickets)
			c.gates.confirmed(m.Content.Manifest.Tickets)
		}
	}
	tasks := c.world.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		ticket := message.Ticket{Task: t.ID, Attempt: t.Attempt}
		if t.State.Final() || t.State == holdfast.Ready && (!t.Ticketed() || c.tooEarly[ticket]) || c.named[ticket] || t.State == holdfast.Running && c.gates.late[ticket] {
			continue
		}
		c.fail("task %s is forgotten: it is %s at attempt %d under worker %s, and no outbox entry, ticket or manifest contains it",
			t.ID, t.State, t.Attempt, t.Worker)
	}
}

func (c *checker) addNamed(tickets []message.Ticket) {
	for _, t := range tickets {
		c.named[t] = true
	}
}

// newer reports whether a newer version than this build wrote the message.
func newer(m *simbroker.Message) bool { return errors.As(m.Err, new(*message.NewerError)) }

// leftover describes a message, task or operation that prevents settled, or returns "".
func (c *checker) leftover() (what string) {
	for m := range c.world.broker.Messages() {
		if newer(m) && m.Queue == c.world.topology.Unread() {
			continue
		}
		if m.Content.Sentinel == nil && m.Queue != c.world.topology.Quarantine() && !c.orphan(m) {
			what = m.String()
		}
	}
	for _, t := range c.world.store.Tasks() {
		if !t.State.Final() {
			what = fmt.Sprintf("task %s, %s at attempt %d, due at %v", t.ID, t.State, t.Attempt, t.DueAt)
		}
	}
	if o := c.operations.running(); o != nil {
		what = fmt.Sprintf("operation %s, which is running: %+v", o.ID, o.Operation)
	}
	return what
}

// orphan reports whether no process will receive a message, because the store has lost the queue and all tasks of the
// message. Such a message waits until a task of the queue is stored.
func (c *checker) orphan(m *simbroker.Message) bool {
	w := c.world
	for _, queue := range w.store.Queues() {
		if m.Queue == w.topology.Main(queue.Name) || m.Queue == w.topology.Requeue(queue.Name) {
			return false
		}
	}
	inQueue := slices.ContainsFunc(w.plan.subqueues(), func(queue string) bool {
		return slices.Contains(append(w.topology.Queue(queue), w.topology.Queue(holdfast.TypeQueue(queue, special))...), m.Queue)
	})
	return w.state.fellBack > 0 && inQueue && m.Content.Manifest == nil &&
		!slices.ContainsFunc(m.Content.Tickets, func(t message.Ticket) bool {
			task := w.store.Task(t.Task) // the id may now belong to a task of another queue
			return task != nil && slices.Contains(w.topology.Queue(task.Subqueue()), m.Queue)
		})
}
