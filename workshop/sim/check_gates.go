package sim

import (
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

const (
	// openLimit is how long a task may stay blocked at an open gate while a janitor works. It is a few slow messages.
	openLimit = 10 * time.Second
	// openDelay is how long the tasks of an opened gate may take to start. They wait for the release, or for the next
	// renewal of a worker and its subscription.
	openDelay = 2 * time.Second
)

// gates checks the gates. It reads the rows of the store and their changes, not the knowledge of the workers.
type gates struct {
	check *checker
	// closed has the gates that the store has closed.
	closed map[store.ID]*closedGate
	// resumed has the subjects that a person has resumed at any time.
	resumed map[store.Subject]bool
	// open has, for each blocked task of an open gate, since when the checker has seen it so.
	open map[holdfast.TaskID]time.Time
	// late has the tickets of blocked tasks that no manifest has contained since the block. When the gate has opened, a
	// worker that repeats an unanswered claim may claim such a task, although another worker has acked its ticket.
	// Until the manifest is confirmed, only the sweep for tasks of ended workers would find the task. The same holds for
	// tasks that are claimed soon after the clock was set back: meanwhile they were not due, and another worker may have
	// acked their tickets as too early. It also holds for a claim that began before a pause and ends after it: meanwhile
	// the claim of another worker may have been refused, and that worker acks the ticket. And it holds for a task that
	// another worker parks or passes on meanwhile; see givenAway.
	late map[message.Ticket]bool
	// quiet is when a fault last kept the janitors from working.
	quiet time.Time
	// changed is when a gate was last closed or opened, in simulated time.
	changed time.Time

	pauses, blocked, released int // gates closed, tasks blocked and tasks released
	expired                   int // tasks that are dead because their deadline passed while they waited
}

// closedGate is a gate as the checker first saw it.
type closedGate struct {
	store.Gate
	answered bool // the call that closed it has returned
}

func newGates(c *checker) *gates {
	return &gates{
		check: c, closed: make(map[store.ID]*closedGate), resumed: make(map[store.Subject]bool), open: make(map[holdfast.TaskID]time.Time), late: make(map[message.Ticket]bool), quiet: c.world.began,
	}
}

// answered notes that a call of Pause has returned.
func (g *gates) answered(gate store.Gate) {
	// The gate may have opened meanwhile, and may be closed again.
	if now := g.closed[gate.ID]; now != nil && now.ClosedAt.Equal(gate.ClosedAt) {
		now.answered = true
	}
}

// resuming notes that a person is about to resume a subject.
func (g *gates) resuming(s store.Subject) { g.resumed[s] = true }

// confirmed notes that a manifest has the tickets. A message with only the ticket is not enough, because the worker
// that blocked the task acks it. A limit may meanwhile have let another worker claim the task.
func (g *gates) confirmed(tickets []message.Ticket) {
	for _, ticket := range tickets {
		if task := g.check.world.store.Task(ticket.Task); g.late[ticket] && task != nil && task.State == holdfast.Running {
			delete(g.late, ticket)
		}
	}
}

// fellBack forgets the gates, because the store has lost commits.
func (g *gates) fellBack() {
	clear(g.closed)
	clear(g.open)
}

// observe checks a change of a task.
func (g *gates) observe(change memory.Change) {
	before, after := change.Before, change.After
	if after == nil {
		return
	}
	g.checkRecord(after)
	switch {
	case change.Op == "Claim":
		if g.check.world.state.lastLeap < 0 && g.check.recent(g.check.world.state.leapt) {
			g.late[message.Ticket{Task: after.ID, Attempt: after.Attempt}] = true
		}
		for _, gate := range g.closed {
			if !gate.Selects(&after.Task) || !gate.Until.IsZero() && !after.StartedAt.Before(gate.Until) {
				continue
			}
			g.late[message.Ticket{Task: after.ID, Attempt: after.Attempt}] = true
			if gate.answered {
				g.check.fail("task %s was claimed after a person received the answer that the %s is paused", after.ID, gate.Subject)
			}
		}
	case change.Op == "Block":
		g.checkKept(before, after, "blocked")
		g.late[message.Ticket{Task: after.ID, Attempt: after.Attempt}] = true // the worker acks it, also if the gate has opened
		if after.Blocked() {
			if !before.Blocked() || before.Gate != after.Gate { // otherwise this is the block of another copy of the ticket
				g.blocked++
			}
			if !g.isClosed(after.Gate) {
				g.check.fail("task %s was blocked at gate %s, which is open", after.ID, after.Gate)
			}
		}
	case change.Op == "ReleaseBlocked":
		g.checkKept(before, after, "released")
		if after.Blocked() || g.check.limits.known[before.Gate] != nil || g.check.breakers.known[before.Gate] != nil {
			break // the task was moved to another gate, or has got a permit
		}
		g.released++
		if g.isClosed(before.Gate) {
			g.check.fail("task %s was released from gate %s, which is closed", after.ID, before.Gate)
		}
	}
	if before != nil && change.Move != nil && change.Move.Report.Class == "deadline" {
		g.expired++
		g.checkExpired(before)
	}
}

// isClosed reports whether the store has closed the gate now.
func (g *gates) isClosed(id store.ID) bool {
	if slices.ContainsFunc(g.check.world.store.Limits(), func(l store.Limit) bool { return l.ID == id }) {
		return true
	}
	closed := append(g.check.world.store.Pauses(), g.check.world.store.Breakers()...)
	return slices.ContainsFunc(closed, func(gate store.Gate) bool { return gate.ID == id })
}

// checkRecord checks that a ready task is in exactly one record. It has a ticket, is due, is blocked, waits for its
// turn among the ordered tasks of its key, or waits for a slot of its topic.
func (g *gates) checkRecord(t *memory.Task) {
	records := 0
	for _, in := range []bool{t.Ticketed(), !t.DueAt.IsZero() && !t.DueAt.Equal(store.BlockedUntil), t.Blocked(), t.Waits, g.check.world.store.AwaitsSlot(t)} {
		if in {
			records++
		}
	}
	want := 0
	if t.State == holdfast.Ready {
		want = 1
	}
	if records != want {
		g.check.fail("task %s is %s and in %d records, want %d: ticketed at %v, due at %v, at gate %s", t.ID, t.State, records, want, t.TicketedAt, t.DueAt, t.Gate)
	}
}

// checkKept checks that a block or a release leaves the task ready at its attempt, and changes none of its counts. It
// changes the time of the next run only if that was the end of a park.
func (g *gates) checkKept(before, after *memory.Task, what string) {
	keptTime := after.NextRunAt.Equal(before.NextRunAt) || before.Parked != "" && !after.NextRunAt.After(before.NextRunAt)
	kept := before.State == holdfast.Ready && after.State == holdfast.Ready && after.Attempt == before.Attempt && keptTime &&
		after.Failures == before.Failures && after.Crashes == before.Crashes && after.Deferrals == before.Deferrals && after.Parks == before.Parks
	if !kept {
		g.check.fail("task %s was %s, and that made %+v another task: %+v", before.ID, what, before.Task, after.Task)
	}
}

// checkExpired checks that the deadline of a task has passed, by the clock of the store.
func (g *gates) checkExpired(task *memory.Task) {
	if !g.mayExpire(&task.Task) {
		g.check.fail("task %s of type %s was given up before its deadline: it was created at %v", task.ID, task.Type, task.CreatedAt)
	}
}

// mayExpire reports whether the deadline of a task has passed, by any clock.
func (g *gates) mayExpire(task *holdfast.Task) bool {
	w := g.check.world
	return task.Type == "brief" && (!w.state.leapt.IsZero() || task.CreatedAt.Add(briefDeadline).Sub(w.clock.now()) < exact)
}

// checkDeadline checks that an attempt begins before the deadline of its task, unless the task was due later.
func (g *gates) checkDeadline(task holdfast.Task) {
	w := g.check.world
	deadline := task.CreatedAt.Add(briefDeadline)
	if late := w.clock.now().Sub(deadline); task.Type == "brief" && late > exact && !task.NextRunAt.After(deadline) && w.state.leapt.IsZero() {
		g.check.fail("attempt %d of task %s began %s after its deadline", task.Attempt, task.ID, late)
	}
}

// afterStep finds the gates that have closed or opened, and the tasks that stay blocked at open gates.
func (g *gates) afterStep() {
	w := g.check.world
	if w.faults > 0 || !slices.ContainsFunc(w.processes, (*process).canRelease) {
		g.quiet = time.Now()
	}
	if !w.plan.gated() {
		return
	}
	stored := w.store.Pauses()
	for i := range stored {
		gate := &stored[i]
		switch seen := g.closed[gate.ID]; {
		case seen == nil || !seen.ClosedAt.Equal(gate.ClosedAt):
			g.pauses++
			g.closed[gate.ID], g.changed = &closedGate{Gate: *gate}, time.Now()
		case !seen.Until.Equal(gate.Until):
			seen.Gate, g.changed = *gate, time.Now()
		}
	}
	now := w.clock.now()
	for id, seen := range g.closed {
		if slices.ContainsFunc(stored, func(gate store.Gate) bool { return gate.ID == id }) {
			continue
		}
		ended := !seen.Until.IsZero() && !seen.Until.After(now)
		if !ended && !g.resumed[seen.Subject] {
			g.check.fail("the %s is not paused any more, although no person has resumed it", seen.Subject)
		}
		delete(g.closed, id)
		g.changed = time.Now()
	}
	g.checkOpen()
}

// checkOpen checks that no task stays blocked at a gate that is open.
func (g *gates) checkOpen() {
	w := g.check.world
	tasks := w.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		if !t.Blocked() || g.isClosed(t.Gate) {
			delete(g.open, t.ID)
			continue
		}
		if g.open[t.ID].IsZero() {
			g.open[t.ID] = time.Now()
		}
		if time.Since(g.open[t.ID]) > openLimit && time.Since(g.quiet) > openLimit {
			g.check.fail("task %s has been blocked for %s at gate %s, which is open", t.ID, time.Since(g.open[t.ID]), t.Gate)
		}
	}
}

// canRelease reports whether the process has a janitor that can work.
func (p *process) canRelease() bool {
	return (p.role == Serve || p.role == Janitor) && !p.dead && p.ctx.Err() == nil && p.resumed == nil && time.Now().After(p.troubledUntil)
}

// settled reports whether no gate has closed or opened recently, so that tasks that no gate concerns can start.
func (g *gates) settled() bool { return time.Since(g.changed) > openDelay }

// checkExplained checks that an explanation names each gate that concerns a ready task, and predicts a start after the
// last of them has opened.
func (g *gates) checkExplained(task *memory.Task, found explain.Explanation) {
	if task.State != holdfast.Ready {
		return
	}
	endless, last, named := false, g.check.world.clock.now(), 0
	if !task.Ticketed() { // after a setback of the clock, a task with a ticket may start before its time
		last = latest(last, task.NextRunAt)
	}
	for _, gate := range g.check.world.store.Pauses() {
		if !gate.Selects(&task.Task) {
			continue
		}
		named++
		endless = endless || gate.Until.IsZero()
		last = latest(last, gate.Until)
		if !slices.ContainsFunc(found.Causes, func(c explain.Cause) bool { return c.Code == explain.Paused && c.Until.Equal(gate.Until) }) {
			g.check.fail("the %s is paused until %v, and the explanation of task %s does not name that: %+v", gate.Subject, gate.Until, task.ID, found.Causes)
		}
	}
	switch {
	case named == 0 && has(found, explain.Paused):
		g.check.fail("the explanation of task %s names a pause, but its subjects are open: %+v", task.ID, found.Causes)
	case named == 0, g.check.world.plan.limits(&task.Task), has(found, explain.Broken), g.check.world.store.AwaitsSlot(task):
	case endless != found.NextStart.IsZero(), !endless && found.NextStart.Sub(last).Abs() > time.Millisecond:
		g.check.fail("task %s can start at %v, and its explanation says %v", task.ID, last, found.NextStart)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
