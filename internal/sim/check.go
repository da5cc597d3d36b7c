package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/sim/simbroker"
	"github.com/holdfastq/holdfast/internal/sim/simstore"
	"github.com/holdfastq/holdfast/store"
)

// checker knows what must be true, and notes the first thing that is not. Its methods are called with the world's
// lock held.
type checker struct {
	world     *world
	violation string

	wanted     map[holdfast.TaskID]TaskPlan // accepted tasks
	executions []*execution
	byTicket   map[eraTicket]*execution
	active     map[holdfast.TaskID][]*execution
	claims     map[claimed]int                    // the newest era that knows of a claim
	started    map[claimed]bool                   // claims whose task a handler was called for
	known      map[claimed]bool                   // claims whose answer came to a worker that could start the task
	spared     map[holdfast.TaskID]int            // ends of workers that did not charge the task, since it last returned otherwise
	ended      map[holdfast.TaskID]holdfast.State // tasks that reached a final state
	over       map[holdfast.RunID]bool            // runs that are not live any more
	renewed    map[holdfast.RunID]renewal         // the last ones
	tokens     map[message.Ticket]bool            // what checkTokens has found, kept for its room

	unpublished map[message.Ticket]time.Time // tickets that a producer publishes at once, by when their tasks were stored

	early, excused int // runs fenced before their lease was over; of them, those of living processes that could not contradict

	lost int // tickets that looks reported as lost

	ticketsLost bool // a fault took tickets and manifests away: not every task has one from then on
}

// eraTicket is an attempt. A store that lost commits gives the same attempts out again.
type eraTicket struct {
	message.Ticket
	era int
}

// claimed is an attempt that a run has taken.
type claimed struct {
	message.Ticket
	run holdfast.RunID
}

// renewal is one by the store's clock, and when it was seen.
type renewal struct{ at, seen time.Time }

// execution is one run of a handler.
type execution struct {
	process *process
	ctx     context.Context
	task    holdfast.Task
	era     int // of its claim: that one was lost does not make two of one attempt
	began   time.Time
	ended   time.Time
	over    bool
}

// mostLate is how late a task starts at most where nothing is wrong but another lane: its queues are to be made, the other lane's
// silence to be noticed, and there are more tasks than places.
const mostLate = 3500 * time.Millisecond

// mostUnpublished is how long a ticket of a lane that confirms waits at most for its producer to publish it: a few steps. It is less
// than a producer waits for the confirms of a lane that is silent, and less than a janitor leaves an outbox entry to a producer.
const mostUnpublished = 500 * time.Millisecond

func newChecker(w *world) *checker {
	return &checker{
		world: w, wanted: make(map[holdfast.TaskID]TaskPlan), byTicket: make(map[eraTicket]*execution),
		active: make(map[holdfast.TaskID][]*execution), ended: make(map[holdfast.TaskID]holdfast.State),
		renewed: make(map[holdfast.RunID]renewal), claims: make(map[claimed]int), known: make(map[claimed]bool), started: make(map[claimed]bool), spared: make(map[holdfast.TaskID]int), over: make(map[holdfast.RunID]bool), tokens: make(map[message.Ticket]bool),
		unpublished: make(map[message.Ticket]time.Time),
	}
}

// fail notes a violation; the first one counts.
func (c *checker) fail(format string, args ...any) {
	if c.violation == "" {
		c.violation = fmt.Sprintf(format, args...)
		c.world.log.say(time.Since(c.world.began), "VIOLATION: %s", c.violation)
	}
}

// accepted notes that Enqueue returned nil: the task must reach a final state. era is that in which Enqueue was called:
// if the store has lost commits since, the task's may be among them, and its id another one's.
func (c *checker) accepted(id holdfast.TaskID, plan TaskPlan, era int) {
	task := c.world.store.Task(id)
	there := task != nil && nameOf(task) == plan.Name
	switch {
	case !there && era != c.world.state.fellBack:
		return
	case !there:
		c.fail("task %s was accepted and is not in the store", id)
	}
	c.wanted[id] = plan
	if there && task.State.Final() {
		c.judge(task.Task)
	}
}

// nameOf is the name of a task's plan.
func nameOf(t *simstore.Task) string { return strings.Trim(string(t.Payload), `"`) }

// starts checks that a handler may run now: nobody has run this attempt, and whoever runs the task still had
// its run ended.
func (c *checker) starts(p *process, ctx context.Context, task holdfast.Task) *execution {
	e := &execution{process: p, ctx: ctx, task: task, began: time.Now()}
	e.era = c.claims[e.claim()]
	c.world.log.say(time.Since(c.world.began), "%s runs task %s attempt %d under run %s", p.name, task.ID, task.Attempt, task.Run)
	key := eraTicket{message.Ticket{Task: task.ID, Attempt: task.Attempt}, e.era}
	if before := c.byTicket[key]; before != nil {
		c.fail("attempt %d of task %s runs twice: by %s and by %s", task.Attempt, task.ID, before.process.name, p.name)
	}
	c.byTicket[key] = e
	c.started[e.claim()] = true
	late := c.over[task.Run] && c.recent(c.world.state.leapt) // fenced at once by a clock that leapt, and does not know it yet
	for _, other := range c.active[task.ID] {
		if other.era == e.era && !late && !other.process.dead && !c.over[other.task.Run] && other.ctx.Err() == nil {
			c.fail("task %s runs beside itself: attempt %d by %s, whose run %s is live, and attempt %d by %s",
				task.ID, other.task.Attempt, other.process.name, other.task.Run, task.Attempt, p.name)
		}
	}
	c.goesOn(task)
	c.executions = append(c.executions, e)
	c.active[task.ID] = append(c.active[task.ID], e)
	return e
}

// goesOn checks that a task's first start is not late because of a lane that confirms nothing, unless it is the task's own.
func (c *checker) goesOn(task holdfast.Task) {
	plan, planned := c.wanted[task.ID]
	silent, only := c.world.plan.onlySilence()
	if !planned || !only || task.Attempt > 1 || slices.Contains(silent, plan.Lane) {
		return
	}
	if late := time.Since(c.world.began) - plan.At - plan.Delay; late > mostLate {
		c.fail("task %s of lane %s started %s late, while only the lanes %v confirmed nothing", task.ID, plan.Lane, late, silent)
	}
}

func (c *checker) ends(e *execution, err error) {
	e.over, e.ended = true, time.Now()
	c.world.log.say(time.Since(c.world.began), "%s ends task %s attempt %d: %v", e.process.name, e.task.ID, e.task.Attempt, err)
	c.active[e.task.ID] = slices.DeleteFunc(c.active[e.task.ID], func(other *execution) bool { return other == e })
}

func (e *execution) claim() claimed { return claimOf(&e.task) }

func claimOf(t *holdfast.Task) claimed {
	return claimed{message.Ticket{Task: t.ID, Attempt: t.Attempt}, t.Run}
}

// changed is told of every change of a task.
func (c *checker) changed(change simstore.Change) {
	before, after := change.Before, change.After
	switch {
	case before == nil:
		c.stored(after)
	case after == nil:
		c.fail("task %s was deleted", before.ID)
	case before.State.Final():
		c.fail("task %s was %s and is %s", before.ID, before.State, after.State)
	case after.Crashes > before.Crashes:
		c.charged(&before.Task)
		c.finalize(after)
	case change.Op == "Claim":
		c.claims[claimOf(&after.Task)] = c.world.state.fellBack
	case change.Op == "UnticketLost":
		c.alarmed(before)
	default:
		if change.Move != nil && before.State == holdfast.Running {
			c.spare(before, change.Move)
		}
		c.finalize(after)
	}
}

// alarmed checks that a ticket which a look reports as lost is lost: no outbox entry and no message names it. A look that
// replaces a ticket of the requeue queue, or any while a worker is full, reports no loss.
func (c *checker) alarmed(task *simstore.Task) {
	if task.Again || c.world.store.Full() {
		return
	}
	c.lost++
	ticket := message.Ticket{Task: task.ID, Attempt: task.Attempt}
	receipts := c.world.store.Receipts()
	for i := range receipts {
		if slices.Contains(receipts[i].Tickets, ticket) {
			c.fail("the ticket of task %s at attempt %d was reported as lost, and an outbox entry names it", task.ID, task.Attempt)
		}
	}
	for m := range c.world.broker.Messages() {
		named := slices.Contains(m.Content.Tickets, ticket) || m.Content.Manifest != nil && slices.Contains(m.Content.Manifest.Tickets, ticket)
		if named {
			c.fail("the ticket of task %s at attempt %d was reported as lost, and there is %s", task.ID, task.Attempt, m)
		}
	}
}

// stored notes a new task whose ticket is published at once, whatever the lanes that confirm nothing do.
func (c *checker) stored(task *simstore.Task) {
	silent, only := c.world.plan.onlySilence()
	if only && task.Ticketed() && !slices.Contains(silent, task.Lane) && slices.Contains(c.world.broker.Queues(), c.world.topology.Main(task.Lane)) {
		c.unpublished[message.Ticket{Task: task.ID, Attempt: task.Attempt}] = time.Now()
	}
}

// published checks that tickets which were to be published at once are not late.
func (c *checker) published(m *simbroker.Message) {
	for _, ticket := range m.Content.Tickets {
		since, noted := c.unpublished[ticket]
		delete(c.unpublished, ticket)
		if late := time.Since(since); noted && late > mostUnpublished {
			c.fail("the ticket of task %s was published %s after its task was stored, while only other lanes confirmed nothing", ticket.Task, late)
		}
	}
}

func (c *checker) finalize(task *simstore.Task) {
	if task.State.Final() {
		c.ended[task.ID] = task.State
		c.judge(task.Task)
	}
}

// answered notes claims whose answer came to a worker that could start the tasks.
func (c *checker) answered(list []store.Claim) {
	for i := range list {
		if list[i].Verdict == store.Claimed {
			c.known[claimOf(&list[i].Task)] = true
		}
	}
}

// charged checks that an attempt which is charged a crash was started, or that its worker ended before it could do so.
func (c *checker) charged(task *holdfast.Task) {
	claim := claimOf(task)
	if c.known[claim] && !c.started[claim] {
		c.fail("attempt %d of task %s was charged a crash of run %s and never started", task.Attempt, task.ID, task.Run)
	}
}

// spare checks that a task is spared a crash at most once before something else ends an attempt: else a task that kills its
// worker would have no limit.
func (c *checker) spare(task *simstore.Task, move *holdfast.Transition) {
	switch {
	case move.Event == holdfast.EventInterrupt && move.Report.Class == "crash":
		if c.spared[task.ID]++; c.spared[task.ID] > 1 && c.world.state.fellBack == 0 {
			c.fail("task %s was spared a crash twice in a row", task.ID)
		}
	case move.Event != holdfast.EventInterrupt:
		c.spared[task.ID] = 0
	}
}

// judge checks that a task ended as its plan says.
func (c *checker) judge(task holdfast.Task) {
	plan, ok := c.wanted[task.ID]
	if !ok {
		return // its producer never learned that it was accepted, or has not yet
	}
	want := holdfast.Done
	if plan.Always || plan.Poison {
		want = holdfast.Dead
	}
	fails := plan.Fails
	if plan.Always {
		fails = maxAttempts
	}
	switch {
	case task.State != want:
		c.fail("task %s (%s) is %s, not %s: %s", task.ID, plan.Name, task.State, want, task.LastError)
	case !plan.Poison && task.Failures != fails:
		c.fail("task %s (%s) has %d failures, not %d", task.ID, plan.Name, task.Failures, fails)
	case plan.Poison && task.Crashes != poisonLimit:
		c.fail("task %s (%s) has %d crashes, not %d", task.ID, plan.Name, task.Crashes, poisonLimit)
	}
}

// observer is what the broker tells.
func (c *checker) observer() simbroker.Observer {
	return simbroker.Observer{
		Entered: c.published,
		Left: func(m *simbroker.Message, why simbroker.Reason) {
			if c.world.log.keep {
				c.world.log.say(time.Since(c.world.began), "gone, %s: %s", why, m)
			}
			if why == simbroker.Dropped {
				c.fail("the broker dropped a message: %s", m)
			}
		},
		Misused:   func(_ *simbroker.Client, what string) { c.fail("the broker was misused: %s", what) },
		Destroyed: func(_ *simbroker.Client, o broker.Object) { c.fail("somebody deleted %s", o.Name) },
	}
}

// fellBack takes note that the store lost commits: what it does not know any more cannot be asked of it.
func (c *checker) fellBack() {
	c.ticketsLost = true
	clear(c.ended)
	clear(c.over)
	for id := range c.wanted {
		delete(c.wanted, id)
	}
	tasks := c.world.store.Tasks()
	for i := range tasks {
		c.readopt(&tasks[i])
		c.recall(&tasks[i])
	}
	for _, r := range c.world.store.Runs() {
		if r.State != store.RunLive {
			c.over[r.ID] = true
		}
	}
}

// recall takes a claim that the store still knows, and who runs the task under it, over into the new era.
func (c *checker) recall(t *simstore.Task) {
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

// readopt wants what the store still has.
func (c *checker) readopt(t *simstore.Task) {
	if plan := c.world.taskPlan(nameOf(t)); plan != nil {
		c.wanted[t.ID] = *plan
		if t.State.Final() {
			c.ended[t.ID] = t.State
		}
	}
}

// afterStep checks what must be true after every step.
func (c *checker) afterStep() {
	runs := c.world.store.Runs()
	for i := range runs {
		r := &runs[i]
		if !c.renewed[r.ID].at.Equal(r.RenewedAt) {
			c.renewed[r.ID] = renewal{r.RenewedAt, time.Now()}
		}
		switch over := r.State != store.RunLive; {
		case over && !c.over[r.ID]:
			c.runEnded(r)
		case !over && c.over[r.ID]:
			c.fail("run %s was over and is live again", r.ID)
		}
	}
	if !c.ticketsLost {
		c.checkTokens()
	}
}

// checkTokens checks that every task that is not final has what will bring it back.
func (c *checker) checkTokens() {
	clear(c.tokens)
	receipts := c.world.store.Receipts()
	for i := range receipts {
		c.token(receipts[i].Tickets)
	}
	for m := range c.world.broker.Messages() {
		c.token(m.Content.Tickets)
		if m.Content.Manifest != nil {
			c.token(m.Content.Manifest.Tickets)
		}
	}
	tasks := c.world.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		if t.State.Final() || t.State == holdfast.Ready && !t.Ticketed() || c.tokens[message.Ticket{Task: t.ID, Attempt: t.Attempt}] {
			continue
		}
		c.fail("task %s has no token: it is %s at attempt %d under run %s, and there is no receipt, ticket or manifest",
			t.ID, t.State, t.Attempt, t.Run)
	}
}

func (c *checker) token(tickets []message.Ticket) {
	for _, t := range tickets {
		c.tokens[t] = true
	}
}

// settled reports whether every accepted task is final and nothing is left in the queues.
func (c *checker) settled() bool {
	for id := range c.wanted {
		if _, ok := c.ended[id]; !ok {
			return false
		}
	}
	return c.left() == ""
}

// left says what is in the queues that should not stay there.
func (c *checker) left() (what string) {
	for m := range c.world.broker.Messages() {
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

// orphan reports whether nobody can be expected to receive a message: the store has lost its lane and every task that it
// names. It waits until somebody uses the lane again.
func (c *checker) orphan(m *simbroker.Message) bool {
	w := c.world
	for _, lane := range w.store.Lanes() {
		if m.Queue == w.topology.Main(lane.Name) || m.Queue == w.topology.Again(lane.Name) {
			return false
		}
	}
	inLane := slices.ContainsFunc(lanes, func(lane string) bool { return m.Queue == w.topology.Main(lane) || m.Queue == w.topology.Again(lane) })
	return w.state.fellBack > 0 && inLane && m.Content.Manifest == nil &&
		!slices.ContainsFunc(m.Content.Tickets, func(t message.Ticket) bool {
			task := w.store.Task(t.Task) // or another one, of another lane, to which the id was given again
			return task != nil && slices.Contains(w.topology.Lane(task.Lane), m.Queue)
		})
}

func (c *checker) unfinished() string {
	var open []string
	for id, plan := range c.wanted {
		if _, ok := c.ended[id]; !ok {
			open = append(open, plan.Name)
		}
	}
	slices.Sort(open)
	return fmt.Sprintf("accepted and not final: %v; left: %s", open, c.left())
}
