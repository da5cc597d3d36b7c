package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/sim/simbroker"
	"github.com/holdfastq/holdfast/internal/sim/simstore"
	"github.com/holdfastq/holdfast/store"
)

// checker checks the invariants and keeps the first violation. The caller of its methods holds the world's lock.
type checker struct {
	world     *world
	violation string

	wanted       map[holdfast.TaskID]TaskPlan // accepted tasks
	executions   []*execution
	byTicket     map[eraTicket]*execution
	active       map[holdfast.TaskID][]*execution
	claims       map[claimed]int                    // the newest era in which the store knew the claim
	results      map[claimed]holdfast.Event         // the result that the worker sent for a claim
	started      map[claimed]bool                   // claims whose tasks a handler was called for
	known        map[claimed]bool                   // claims whose answers came while the worker could start the tasks
	spared       map[holdfast.TaskID]int            // uncharged crashes since an attempt last ended in another way
	finalTasks   map[holdfast.TaskID]holdfast.State // tasks in a final state
	endedWorkers map[holdfast.WorkerID]bool         // workers that are no longer live
	renewed      map[holdfast.WorkerID]renewal      // the newest renewal of each worker
	named        map[message.Ticket]bool            // the result of checkTickets, reused to save memory

	unpublished map[message.Ticket]time.Time // tickets that must be published at once, and when their tasks were stored

	explanations *explanations

	early   int // workers fenced before their leases expired
	excused int // the part of early that is workers of live processes that could not report in time

	lost int // tickets that the janitor reported as lost

	checks int // results of the janitors' checks for tasks that break an invariant
	steps  int // of the run

	ticketsLost bool // a fault has removed tickets or manifests: from then on, not every task must have one
}

// eraTicket is an attempt in an era. Each loss of commits starts a new era, because the store then assigns the same
// attempts again.
type eraTicket struct {
	message.Ticket
	era int
}

// claimed is an attempt of a task under the worker that claimed it.
type claimed struct {
	message.Ticket
	worker holdfast.WorkerID
}

// renewal is the time of a renewal by the store's clock, and when the checker saw it.
type renewal struct{ at, seen time.Time }

// execution is one call of a handler.
type execution struct {
	process *process
	ctx     context.Context
	task    holdfast.Task
	era     int // the newest era that knows its claim: the same attempt may run again in another era
	began   time.Time
	endedAt time.Time
	done    bool
}

// maxLate is how late a task may start if nothing is wrong except that another queue confirms nothing. The time
// includes declaring the task's own queue, noticing that the other queue is silent, and waiting for a free executor.
const maxLate = 3500 * time.Millisecond

// maxUnpublished is how long the producer may take to publish a ticket to a queue that confirms. It is a few steps. It
// is shorter than a producer waits for confirms of a silent queue, and shorter than a janitor leaves an outbox entry to
// its producer.
const maxUnpublished = 500 * time.Millisecond

func newChecker(w *world) *checker {
	c := &checker{
		world: w, wanted: make(map[holdfast.TaskID]TaskPlan), byTicket: make(map[eraTicket]*execution),
		active: make(map[holdfast.TaskID][]*execution), finalTasks: make(map[holdfast.TaskID]holdfast.State),
		renewed: make(map[holdfast.WorkerID]renewal), claims: make(map[claimed]int), known: make(map[claimed]bool), results: make(map[claimed]holdfast.Event), started: make(map[claimed]bool), spared: make(map[holdfast.TaskID]int), endedWorkers: make(map[holdfast.WorkerID]bool), named: make(map[message.Ticket]bool),
		unpublished: make(map[message.Ticket]time.Time),
	}
	c.explanations = newExplanations(c)
	return c
}

// fail records a violation if it is the first one.
func (c *checker) fail(format string, args ...any) {
	if c.violation == "" {
		c.violation = fmt.Sprintf(format, args...)
		c.world.log.logf(time.Since(c.world.began), "VIOLATION: %s", c.violation)
	}
}

// accepted records that Enqueue returned nil: the task must reach a final state. era is the era in which Enqueue was
// called. If the store has lost commits since, the task may be lost and its id may belong to another task.
func (c *checker) accepted(id holdfast.TaskID, plan TaskPlan, era int) {
	task := c.world.store.Task(id)
	found := task != nil && nameOf(task) == plan.Name
	switch {
	case !found && era != c.world.state.fellBack:
		return
	case !found:
		c.fail("task %s was accepted but is not in the store", id)
	}
	c.wanted[id] = plan
	if found && task.State.Final() {
		c.checkOutcome(task.Task)
	}
}

// nameOf returns the name of the task in the plan.
func nameOf(t *simstore.Task) string { return strings.Trim(string(t.Payload), `"`) }

// executionStarted records an execution and checks that it may start. No handler may have run this attempt before. If
// another execution of the task is still in progress, its worker must have ended.
func (c *checker) executionStarted(p *process, ctx context.Context, task holdfast.Task) *execution {
	e := &execution{process: p, ctx: ctx, task: task, began: time.Now()}
	e.era = c.claims[e.claim()]
	c.world.log.logf(time.Since(c.world.began), "%s runs task %s attempt %d under worker %s", p.name, task.ID, task.Attempt, task.Worker)
	key := eraTicket{message.Ticket{Task: task.ID, Attempt: task.Attempt}, e.era}
	if before := c.byTicket[key]; before != nil {
		c.fail("attempt %d of task %s runs twice: in process %s and in process %s", task.Attempt, task.ID, before.process.name, p.name)
	}
	c.byTicket[key] = e
	c.started[e.claim()] = true
	// A leap of the clock may have fenced the worker, and the worker may not know it yet.
	late := c.endedWorkers[task.Worker] && c.recent(c.world.state.leapt)
	for _, other := range c.active[task.ID] {
		if other.era == e.era && !late && !other.process.dead && !c.endedWorkers[other.task.Worker] && other.ctx.Err() == nil {
			c.fail("task %s runs twice at the same time: attempt %d in process %s, whose worker %s is live, and attempt %d in process %s",
				task.ID, other.task.Attempt, other.process.name, other.task.Worker, task.Attempt, p.name)
		}
	}
	c.checkStart(task)
	c.checkExecutors(e)
	c.explanations.started(task.ID)
	c.executions = append(c.executions, e)
	c.active[task.ID] = append(c.active[task.ID], e)
	return e
}

// checkExecutors checks that a worker runs no more handlers than it has executors. A handler whose context has ended may
// have lost its executor.
func (c *checker) checkExecutors(e *execution) {
	n := 1
	for _, list := range c.active {
		for _, other := range list {
			if other.process == e.process && other.task.Worker == e.task.Worker && other.ctx.Err() == nil {
				n++
			}
		}
	}
	if n > concurrency {
		c.fail("worker %s runs %d handlers on %d executors", e.task.Worker, n, concurrency)
	}
}

// checkStart checks that a silent queue does not delay the first start of a task of another queue.
func (c *checker) checkStart(task holdfast.Task) {
	plan, planned := c.wanted[task.ID]
	silent, only := c.world.plan.onlySilence()
	if !planned || !only || task.Attempt > 1 || slices.Contains(silent, plan.Queue) {
		return
	}
	if late := time.Since(c.world.began) - plan.At - plan.Delay; late > maxLate {
		c.fail("task %s of queue %s started %s late, although only the queues %v confirmed nothing", task.ID, plan.Queue, late, silent)
	}
}

func (c *checker) executionEnded(e *execution, err error) {
	e.done, e.endedAt = true, time.Now()
	c.world.log.logf(time.Since(c.world.began), "%s ends task %s attempt %d: %v", e.process.name, e.task.ID, e.task.Attempt, err)
	c.active[e.task.ID] = slices.DeleteFunc(c.active[e.task.ID], func(other *execution) bool { return other == e })
}

func (e *execution) claim() claimed { return claimOf(&e.task) }

func claimOf(t *holdfast.Task) claimed {
	return claimed{message.Ticket{Task: t.ID, Attempt: t.Attempt}, t.Worker}
}

// changed checks one change of a task. It is the observer of the store.
func (c *checker) changed(change simstore.Change) {
	before, after := change.Before, change.After
	c.explanations.observe(change)
	switch {
	case before == nil:
		c.taskStored(after)
	case after == nil:
		c.fail("task %s was deleted", before.ID)
	case before.State.Final():
		c.fail("task %s was %s and is %s", before.ID, before.State, after.State)
	case after.Crashes > before.Crashes:
		c.checkCharge(&before.Task)
		c.finalize(after)
	case change.Op == "Claim":
		c.claims[claimOf(&after.Task)] = c.world.state.fellBack
	case change.Op == "UnticketLost":
		c.checkLostTicket(before)
	default:
		if change.Move != nil && before.State == holdfast.Running {
			c.checkSpared(before, change.Move)
		}
		c.finalize(after)
	}
}

// verified checks what a janitor's check of the tasks has found: nothing if nothing went wrong, and no ticket as lost
// that an outbox entry or a message contains.
func (c *checker) verified(result store.VerifyResult) {
	c.checks++
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

// verifyLooks is longer than the time between the two looks of a check. A task that was ticketed after the first look
// has another ticket than the one that the check found.
const verifyLooks = 15 * time.Second

// checkLostTicket checks a ticket that the janitor reported as lost: no outbox entry and no message may contain it. If
// the ticket was in the requeue queue or a worker is full, the store replaces the ticket but does not report it as
// lost.
func (c *checker) checkLostTicket(task *simstore.Task) {
	if task.Requeued || c.world.store.Full() {
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
		if contained {
			c.fail("the ticket of task %s at attempt %d was reported as lost, but a message contains it: %s", task.ID, task.Attempt, m)
		}
	}
}

// taskStored notes a new task whose ticket must be published at once, although other queues confirm nothing.
func (c *checker) taskStored(task *simstore.Task) {
	silent, only := c.world.plan.onlySilence()
	if only && task.Ticketed() && !slices.Contains(silent, task.Queue) && slices.Contains(c.world.broker.Queues(), c.world.topology.Main(task.Queue)) {
		c.unpublished[message.Ticket{Task: task.ID, Attempt: task.Attempt}] = time.Now()
	}
}

// messageEntered checks that the tickets noted by taskStored are published in time, and that no message of a newer
// version is quarantined.
func (c *checker) messageEntered(m *simbroker.Message) {
	if newer(m) && m.Queue == c.world.topology.Quarantine() {
		c.fail("a message of a newer version was quarantined: %s", m)
	}
	for _, ticket := range m.Content.Tickets {
		since, noted := c.unpublished[ticket]
		delete(c.unpublished, ticket)
		if late := time.Since(since); noted && late > maxUnpublished {
			c.fail("the ticket of task %s was published %s after the task was stored, although only other queues confirmed nothing", ticket.Task, late)
		}
	}
}

func (c *checker) finalize(task *simstore.Task) {
	if task.State.Final() {
		c.finalTasks[task.ID] = task.State
		c.checkOutcome(task.Task)
	}
}

// claimsAnswered records claims whose answers reached a worker that could still start the tasks.
func (c *checker) claimsAnswered(list []store.Claim) {
	for i := range list {
		if list[i].Verdict == store.Claimed {
			c.known[claimOf(&list[i].Task)] = true
		}
	}
}

// resultsSent checks that a worker sends only one result for each claim. It may send a result again if it got no answer.
// After a loss of commits, a worker hands the tasks of lost results back, and the store assigns ids again.
func (c *checker) resultsSent(moves []holdfast.Transition) {
	if c.world.state.fellBack > 0 {
		return
	}
	for i := range moves {
		move := &moves[i]
		claim := claimed{message.Ticket{Task: move.Task, Attempt: move.Attempt}, move.Worker}
		if before, sent := c.results[claim]; sent && before != move.Event {
			c.fail("worker %s sends the result %s of attempt %d of task %s after the result %s", move.Worker, move.Event, move.Attempt, move.Task, before)
		}
		c.results[claim] = move.Event
	}
}

// checkCharge checks an attempt that is charged a crash: if the worker could start the attempt, it did so.
func (c *checker) checkCharge(task *holdfast.Task) {
	claim := claimOf(task)
	if c.known[claim] && !c.started[claim] {
		c.fail("attempt %d of task %s was charged a crash of worker %s but never started", task.Attempt, task.ID, task.Worker)
	}
}

// checkSpared checks that a task is spared a crash at most once before an attempt ends in another way. Otherwise a task
// that kills its worker could be repeated without limit.
func (c *checker) checkSpared(task *simstore.Task, move *holdfast.Transition) {
	switch {
	case move.Event == holdfast.EventInterrupt && move.Report.Class == "crash":
		if c.spared[task.ID]++; c.spared[task.ID] > 1 && c.world.state.fellBack == 0 {
			c.fail("task %s was spared a crash twice in a row", task.ID)
		}
	case move.Event != holdfast.EventInterrupt:
		c.spared[task.ID] = 0
	}
}

// checkOutcome checks that a task ended as its plan says.
func (c *checker) checkOutcome(task holdfast.Task) {
	plan, ok := c.wanted[task.ID]
	if !ok {
		return // its producer does not know, or does not know yet, that the task was accepted
	}
	want := holdfast.Done
	if plan.Always || plan.Poison {
		want = holdfast.Dead
	}
	fails := plan.Fails + plan.Hangs
	if plan.Always {
		fails = maxAttempts
	}
	switch {
	case task.State != want:
		c.fail("task %s (%s) is %s, want %s: %s", task.ID, plan.Name, task.State, want, task.LastError)
	case !plan.Poison && task.Failures != fails:
		c.fail("task %s (%s) has %d failures, want %d", task.ID, plan.Name, task.Failures, fails)
	case plan.Poison && task.Crashes != poisonLimit:
		c.fail("task %s (%s) has %d crashes, want %d", task.ID, plan.Name, task.Crashes, poisonLimit)
	}
}

// observer returns the observer of the broker.
func (c *checker) observer() simbroker.Observer {
	return simbroker.Observer{
		Entered: c.messageEntered,
		Left: func(m *simbroker.Message, why simbroker.Reason) {
			if c.world.log.keep {
				c.world.log.logf(time.Since(c.world.began), "message left its queue, %s: %s", why, m)
			}
			if why == simbroker.Dropped {
				c.fail("the broker dropped a message: %s", m)
			}
		},
		Misused:   func(_ *simbroker.Client, what string) { c.fail("the broker was misused: %s", what) },
		Destroyed: func(_ *simbroker.Client, o broker.Object) { c.fail("a client deleted %s", o.Name) },
	}
}

// fellBack starts a new era after the store has lost commits. The checker keeps only what the store still knows.
func (c *checker) fellBack() {
	c.ticketsLost = true
	clear(c.finalTasks)
	clear(c.endedWorkers)
	for id := range c.wanted {
		delete(c.wanted, id)
	}
	tasks := c.world.store.Tasks()
	for i := range tasks {
		c.readoptTask(&tasks[i])
		c.readoptClaim(&tasks[i])
	}
	for _, r := range c.world.store.Workers() {
		if r.State != store.WorkerLive {
			c.endedWorkers[r.ID] = true
		}
	}
}

// readoptClaim moves a claim that the store still knows to the new era, together with its execution.
func (c *checker) readoptClaim(t *simstore.Task) {
	if t.State != holdfast.Running {
		return
	}
	era := c.world.state.fellBack
	c.claims[claimOf(&t.Task)] = era
	for _, e := range c.active[t.ID] {
		if e.claim() == claimOf(&t.Task) {
			e.era = era
			c.byTicket[eraTicket{e.claim().Ticket, era}] = e
		}
	}
}

// readoptTask expects the outcome of a task that the store still has.
func (c *checker) readoptTask(t *simstore.Task) {
	if plan := c.world.taskPlan(nameOf(t)); plan != nil {
		c.wanted[t.ID] = *plan
		if t.State.Final() {
			c.finalTasks[t.ID] = t.State
		}
	}
}

// afterStep checks the invariants that hold after every step.
func (c *checker) afterStep() {
	workers := c.world.store.Workers()
	for i := range workers {
		r := &workers[i]
		if !c.renewed[r.ID].at.Equal(r.RenewedAt) {
			c.renewed[r.ID] = renewal{r.RenewedAt, time.Now()}
		}
		switch ended := r.State != store.WorkerLive; {
		case ended && !c.endedWorkers[r.ID]:
			c.workerEnded(r)
		case !ended && c.endedWorkers[r.ID]:
			c.fail("worker %s had ended and is live again", r.ID)
		}
	}
	if !c.ticketsLost {
		c.checkTickets()
	}
	c.explanations.afterStep()
	if c.steps++; c.steps%countersEvery == 0 {
		c.checkCounters()
	}
}

// countersEvery is how many steps pass between two checks of the counters, because a check reads all tasks.
const countersEvery = 32

// checkCounters checks that the counters agree with the tasks.
func (c *checker) checkCounters() {
	if what := c.world.store.Miscounted(); what != "" {
		c.fail("%s", what)
	}
}

// checkTickets checks that no unfinished task can be forgotten: it is due, or an outbox entry, a ticket or a manifest
// contains its current attempt.
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
		}
	}
	tasks := c.world.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		if t.State.Final() || t.State == holdfast.Ready && !t.Ticketed() || c.named[message.Ticket{Task: t.ID, Attempt: t.Attempt}] {
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

// settled reports whether every accepted task is final and the AMQP queues contain nothing that should leave them.
func (c *checker) settled() bool {
	for id := range c.wanted {
		if _, ok := c.finalTasks[id]; !ok {
			return false
		}
	}
	return c.leftover() == ""
}

// newer reports whether a newer version than this build wrote the message.
func newer(m *simbroker.Message) bool { return errors.As(m.Err, new(*message.NewerError)) }

// leftover describes a message or task that prevents settled, or returns "".
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
			what = fmt.Sprintf("task %s, %s at attempt %d", t.ID, t.State, t.Attempt)
		}
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
	inQueue := slices.ContainsFunc(queues, func(queue string) bool {
		return m.Queue == w.topology.Main(queue) || m.Queue == w.topology.Requeue(queue)
	})
	return w.state.fellBack > 0 && inQueue && m.Content.Manifest == nil &&
		!slices.ContainsFunc(m.Content.Tickets, func(t message.Ticket) bool {
			task := w.store.Task(t.Task) // the id may now belong to a task of another queue
			return task != nil && slices.Contains(w.topology.Queue(task.Queue), m.Queue)
		})
}

func (c *checker) unfinished() string {
	var open []string
	for id, plan := range c.wanted {
		if _, ok := c.finalTasks[id]; !ok {
			open = append(open, plan.Name)
		}
	}
	slices.Sort(open)
	return fmt.Sprintf("accepted and not final: %v; left: %s", open, c.leftover())
}
