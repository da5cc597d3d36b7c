package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
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

	requeued map[holdfast.TaskID]int // in this era: how often a person has retried a task

	unpublished map[message.Ticket]time.Time // tickets that must be published at once, and when their tasks were stored
	tooEarly    map[message.Ticket]bool      // tickets that workers dropped because of a leap of the clock; see droppedEarly

	explanations *explanations
	operations   *operations
	gates        *gates
	limits       *limits
	rooms        *rooms
	breakers     *breakers
	trips        *trips
	order        *order
	topical      *topical
	effects      *effects

	early   int // workers fenced before their leases expired
	excused int // the part of early whose processes were live but could not report in time

	lost int // tickets that the janitor reported as lost

	typed, unparked int // see Result

	checks int // results of the janitors' checks for tasks that break an invariant
	steps  int // steps of this simulation

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

// renewal is when the store renewed a lease, by its clock, and when the checker saw that, in simulated time.
type renewal struct{ at, seen time.Time }

// execution is one call of a handler.
type execution struct {
	process *process
	ctx     context.Context
	task    holdfast.Task
	era     int // the newest era in which the store knew its claim: the same attempt may run again in another era
	began   time.Time
	endedAt time.Time
	done    bool
	probe   bool // it has a permit of a breaker
	stale   bool // the store did not know its claim any more when it started
}

// maxLate is how late a task may start if nothing is wrong except that another queue confirms nothing. The delay has
// three causes: the worker declares the task's queue, notices that the other queue is silent, and waits for a free
// executor.
const maxLate = 3500 * time.Millisecond

func newChecker(w *world) *checker {
	c := &checker{
		world: w, wanted: make(map[holdfast.TaskID]TaskPlan), byTicket: make(map[eraTicket]*execution),
		active: make(map[holdfast.TaskID][]*execution), finalTasks: make(map[holdfast.TaskID]holdfast.State),
		renewed: make(map[holdfast.WorkerID]renewal), claims: make(map[claimed]int), known: make(map[claimed]bool), results: make(map[claimed]holdfast.Event), started: make(map[claimed]bool), spared: make(map[holdfast.TaskID]int), endedWorkers: make(map[holdfast.WorkerID]bool), named: make(map[message.Ticket]bool),
		unpublished: make(map[message.Ticket]time.Time), tooEarly: make(map[message.Ticket]bool), requeued: make(map[holdfast.TaskID]int),
	}
	c.explanations = newExplanations(c)
	c.operations = newOperations(c)
	c.gates = newGates(c)
	c.limits, c.rooms = newLimits(c), newRooms(c)
	c.breakers = newBreakers(c)
	c.trips = newTrips(c)
	c.order = newOrder(c)
	c.topical = newTopical(c)
	c.effects = newEffects(c)
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
	case !found && c.finalTasks[id] == "": // otherwise an operation has deleted it
		c.fail("task %s was accepted but is not in the store", id)
	}
	c.wanted[id] = plan
	if found && task.State.Final() {
		c.checkOutcome(task.Task)
	}
}

// nameOf returns the name of the task in the plan.
func nameOf(t *memory.Task) string { return nameIn(t.Payload) }

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
	c.order.executionStarted(e, late)
	c.checkOnlyStart(e)
	c.effects.executionStarted(e)
	c.trips.executionStarted(e)
	c.checkStart(task)
	c.checkExecutors(e)
	c.gates.checkDeadline(task)
	c.explanations.started(task.ID)
	c.executions = append(c.executions, e)
	c.active[task.ID] = append(c.active[task.ID], e)
	return e
}

// checkExecutors checks that a worker runs no more handlers than it has executors. A handler whose context has ended
// may have lost its executor.
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
	if !planned || !only || task.Attempt > 1 || slices.Contains(silent, plan.Queue) || task.Ordered || task.Topic != "" || c.world.plan.pauses(task) || c.world.plan.limits(&task) {
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
	c.trips.executionEnded(e, err)
}

func (e *execution) claim() claimed { return claimOf(&e.task) }

func claimOf(t *holdfast.Task) claimed {
	return claimed{message.Ticket{Task: t.ID, Attempt: t.Attempt}, t.Worker}
}

// changed checks one change of a task. It is the observer of the store.
func (c *checker) changed(change memory.Change) {
	before, after := change.Before, change.After
	c.explanations.observe(change)
	c.operations.observe(change)
	c.gates.observe(change)
	c.limits.observe(change)
	c.breakers.observe(change)
	c.order.observe(change)
	c.topical.observe(change)
	c.checkOnce(change)
	c.checkParked(change)
	c.checkMarked(change)
	c.effects.observe(change)
	switch {
	case c.order.byPerson(change):
		if after != nil {
			c.operations.put[after.ID] = after.State
		}
		c.operated(before, after)
	case change.Operation != 0:
		c.operated(before, after)
	case before == nil:
		c.taskStored(after)
	case after == nil:
		c.fail("task %s was deleted", before.ID)
	case before.State.Final():
		c.fail("task %s was %s and is %s", before.ID, before.State, after.State)
	case after.Crashes > before.Crashes:
		c.checkCharge(&before.Task, before.Order == ordered.Doomed)
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

// operated notes that an operation has changed a task. After that, a retried task may end like a new one.
func (c *checker) operated(before, after *memory.Task) {
	c.spared[before.ID] = 0
	switch {
	case after == nil:
		c.finalTasks[before.ID] = before.State
	case after.State.Final():
		c.finalize(after)
	default:
		delete(c.finalTasks, after.ID)
	}
}

func (c *checker) finalize(task *memory.Task) {
	if task.State.Final() {
		c.finalTasks[task.ID] = task.State
		c.checkOutcome(task.Task)
	}
}

// claimsAnswered records claims whose answers reached a worker that could still start the tasks.
func (c *checker) claimsAnswered(list []store.Claim) {
	for i := range list {
		if list[i].Verdict == store.Claimed {
			c.known[claimOf(list[i].Task)] = true
		}
	}
}

// resultsSent checks that a worker sends only one result for each claim. It may send a result again if it got no
// answer. After a loss of commits, a worker hands the tasks of lost results back, and the store assigns ids again.
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

// checkCharge fails if an attempt is charged a crash although its worker knew the claim and did not start it. There are
// three exceptions, because a worker starts no attempt of a doomed task, after the deadline, or after the only attempt.
// The worker may die before it writes that result.
func (c *checker) checkCharge(task *holdfast.Task, doomed bool) {
	claim := claimOf(task)
	if c.known[claim] && !c.started[claim] && !c.gates.mayExpire(task) && !doomed && !startedBefore(task) {
		c.fail("attempt %d of task %s was charged a crash of worker %s but never started", task.Attempt, task.ID, task.Worker)
	}
}

// checkSpared checks that a task is spared a crash at most once before an attempt ends in another way. Otherwise a task
// that kills its worker could be repeated without limit.
func (c *checker) checkSpared(task *memory.Task, move *holdfast.Transition) {
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
		return // the producer never learns that the task was accepted, or does not know it yet
	}
	if put := c.operations.put[task.ID]; put == task.State && (put == holdfast.Cancelled || put == holdfast.Archived) {
		return
	}
	if diesWithKey(&task) {
		return
	}
	if plan.Once {
		c.checkOnceOutcome(task, plan)
		return
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
	case task.State != want && !(plan.Brief && task.State == holdfast.Dead) && !c.effects.mayBeDead(&task): // the deadline of the task may pass
		c.fail("task %s (%s) is %s, want %s: %s", task.ID, plan.Name, task.State, want, task.LastError)
	case plan.Target != "": // its target decides how often it fails
	case !plan.Poison && !c.effects.fits(&task, fails):
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
	clear(c.requeued)
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
	c.operations.fellBack()
	c.gates.fellBack()
	c.limits.fellBack()
	c.breakers.fellBack()
	c.order.fellBack()
	c.topical.fellBack()
	c.effects.fellBack()
}

// readoptClaim moves a claim to the new era, together with its execution. The store must still know the claim.
func (c *checker) readoptClaim(t *memory.Task) {
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
func (c *checker) readoptTask(t *memory.Task) {
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
	c.operations.afterStep()
	c.gates.afterStep()
	c.limits.afterStep()
	c.rooms.afterStep()
	c.breakers.afterStep()
	c.trips.afterStep()
	c.order.afterStep()
	c.topical.afterStep()
	c.effects.afterStep()
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

// settled reports whether every accepted task is final, no operation is running, and no message is left that should
// leave its AMQP queue.
func (c *checker) settled() bool {
	for id := range c.wanted {
		if _, ok := c.finalTasks[id]; !ok {
			return false
		}
	}
	return c.leftover() == ""
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
