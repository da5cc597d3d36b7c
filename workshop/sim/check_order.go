package sim

import (
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store/memory"
)

// order checks the ordered tasks. It computes the active task of each key from the changes of tasks.
type order struct {
	check *checker
	// active has, for each key, the task that started last, unless its turn has ended.
	active map[string]holdfast.TaskID
	// retried has the tasks that a person or an operation has retried.
	retried map[holdfast.TaskID]bool
	// asked has the tasks that the person has retried because they kept other tasks from starting.
	asked map[holdfast.TaskID]bool
	// stopped has, for each key whose tasks wait although no task holds the key, since when the checker has seen it so.
	stopped map[string]time.Time

	turns     int // tasks that started after they had waited
	doomed    int // tasks that were doomed
	unblocked int // dead tasks that the person has retried or archived
}

func newOrder(c *checker) *order {
	return &order{
		check: c, active: make(map[string]holdfast.TaskID), retried: make(map[holdfast.TaskID]bool), asked: make(map[holdfast.TaskID]bool),
		stopped: make(map[string]time.Time),
	}
}

// fellBack keeps only what the store still knows after it has lost commits.
func (o *order) fellBack() {
	clear(o.active)
	clear(o.stopped)
	clear(o.retried)
	tasks := o.check.world.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		if !t.Ordered {
			continue
		}
		o.retried[t.ID] = t.Waits
		if active := o.check.world.store.ActiveTask(t.Key); active == t.ID && o.holds(t) {
			o.active[t.Key] = t.ID
		}
	}
}

// isOpen reports whether the task takes part in the order and does not wait for its turn: it is due, has a ticket, is
// blocked or runs.
func isOpen(t *memory.Task) bool {
	return t.Ordered && t.Order != ordered.Doomed && (t.State == holdfast.Running || t.State == holdfast.Ready && !t.Waits)
}

// holds reports whether the task, which was the active one of its key, keeps the tasks behind it from starting.
func (o *order) holds(t *memory.Task) bool {
	return isOpen(t) || t.State == holdfast.Dead && t.Order != ordered.Doomed && o.check.world.plan.AfterDeath != holdfast.AfterDeathSkip
}

// byPerson reports whether the person has made the change, to let other tasks of the key start.
func (o *order) byPerson(change memory.Change) bool {
	return change.Operation == 0 && requested(change) && o.asked[taskOf(change).ID]
}

// requested reports whether only a person or an operation can cause a change.
func requested(change memory.Change) bool {
	return change.After == nil || change.Move != nil && (change.Move.Event == holdfast.EventRequeue || change.Move.Event == holdfast.EventArchive)
}

// observe checks a change of a task.
func (o *order) observe(change memory.Change) {
	before, after := change.Before, change.After
	if task := taskOf(change); !task.Ordered {
		return
	}
	if o.byPerson(change) {
		o.unblocked++
	}
	if after == nil {
		if o.active[before.Key] == before.ID {
			delete(o.active, before.Key)
		}
		return
	}
	if change.Move != nil && change.Move.Event == holdfast.EventRequeue {
		o.retried[after.ID] = true
	}
	isDoomed := func(t *memory.Task) bool { return t != nil && t.Order == ordered.Doomed }
	switch {
	case isDoomed(after) && !isDoomed(before):
		o.checkDoomed(after)
	case isOpen(after) && (before == nil || !isOpen(before)):
		if before != nil {
			o.turns++
		}
		o.checkStart(after)
		o.active[after.Key] = after.ID
	case o.active[after.Key] == after.ID && !o.holds(after):
		delete(o.active, after.Key)
	}
	if change.Op == "Claim" && !isDoomed(after) {
		o.checkClaim(after)
	}
	if isDoomed(before) && after.State == holdfast.Dead && change.Move != nil && (after.Failures > before.Failures || after.Deferrals > before.Deferrals) {
		o.check.fail("task %s is doomed and has died of its own failure: %s", after.ID, after.LastError)
	}
}

// checkStart checks a task that becomes the active one of its key. The turn of the task before it must have ended, and
// no task with a lower id may wait.
func (o *order) checkStart(t *memory.Task) {
	if id := o.active[t.Key]; id != 0 && id != t.ID {
		if active := o.check.world.store.Task(id); active != nil && o.holds(active) {
			o.check.fail("task %s of key %s starts, although the turn of task %s, which is %s, has not ended", t.ID, t.Key, id, active.State)
		}
	}
	for _, other := range o.lower(t) {
		o.check.fail("task %s of key %s starts before task %s, which is %s", t.ID, t.Key, other.ID, other.State)
	}
}

// lower returns the ordered tasks of the key with lower ids that have not ended.
func (o *order) lower(t *memory.Task) (lower []*memory.Task) {
	tasks := o.check.world.store.Tasks()
	for i := range tasks {
		if u := &tasks[i]; u.ID < t.ID && u.Ordered && u.Key == t.Key && !u.State.Final() && u.Order != ordered.Doomed {
			lower = append(lower, u)
		}
	}
	return lower
}

// checkClaim checks that a task is not claimed before one with a lower id. A lower task that was retried and waits is
// an exception: the retry came after the claimed task had become the active one.
func (o *order) checkClaim(t *memory.Task) {
	for _, other := range o.lower(t) {
		if isOpen(other) || !o.retried[other.ID] {
			o.check.fail("task %s of key %s was claimed before task %s, which is %s", t.ID, t.Key, other.ID, other.State)
		}
	}
}

// checkDoomed checks that the active task of the key is dead and dooms the tasks behind it. The turn of the active task
// may have ended since. Then the store may not have checked the key yet, because another transaction had locked it.
func (o *order) checkDoomed(t *memory.Task) {
	o.doomed++
	w := o.check.world
	active := w.store.Task(w.store.ActiveTask(t.Key))
	dead := active != nil && active.State == holdfast.Dead || w.store.IsLeft(t.Key)
	if w.plan.AfterDeath != holdfast.AfterDeathDead || !dead {
		o.check.fail("task %s of key %s is doomed, although no task before it is dead", t.ID, t.Key)
	}
}

// diesWithKey reports whether the task died because an earlier task of its key is dead.
func diesWithKey(t *holdfast.Task) bool {
	return t.Ordered && t.State == holdfast.Dead && t.LastError == diedWithKey
}

// diedWithKey is the error of tasks that were doomed.
var diedWithKey = func() string {
	task := holdfast.Task{ID: 1, State: holdfast.Running, Attempt: 1}
	move, _ := holdfast.Settle(task, holdfast.KeyDied(), time.Time{}, holdfast.DefaultPolicy())
	return move.Report.Error
}()

// executionStarted checks that the handler of a doomed task is not called, and that no other ordered task of the key
// runs. It ignores executions whose workers have ended.
func (o *order) executionStarted(e *execution, late bool) {
	c := o.check
	if !e.task.Ordered {
		return
	}
	stored := c.world.store.Task(e.task.ID)
	if e.task.Doomed || stored != nil && e.era == c.world.state.fellBack && stored.State == holdfast.Running && stored.Order == ordered.Doomed {
		c.fail("task %s is doomed, and process %s runs it", e.task.ID, e.process.name)
	}
	for id, list := range c.active {
		for _, other := range list {
			alive := other.era == e.era && !late && !other.process.dead && !c.endedWorkers[other.task.Worker] && other.ctx.Err() == nil
			if id != e.task.ID && other.task.Ordered && other.task.Key == e.task.Key && alive && !c.effects.completed(other) {
				c.fail("the tasks %s and %s of key %s run at the same time: in process %s and in process %s", id, e.task.ID, e.task.Key, other.process.name, e.process.name)
			}
		}
	}
}

// afterStep checks that each key has at most one active task, and that no task waits for longer than it should.
func (o *order) afterStep() {
	w := o.check.world
	if !w.plan.ordered() {
		return
	}
	var open, waiting [2]*memory.Task // indexed like keys
	tasks := w.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		if !t.Ordered || t.Order == ordered.Doomed {
			continue
		}
		key := slices.Index(keys, t.Key)
		switch {
		case isOpen(t) && open[key] != nil:
			o.check.fail("the tasks %s and %s of key %s are active at the same time", open[key].ID, t.ID, t.Key)
		case isOpen(t):
			open[key] = t
		case !t.State.Final():
			waiting[key] = t
		}
	}
	for i, key := range keys {
		o.checkProgress(key, open[i], waiting[i])
	}
}

// checkProgress checks that a task of a key waits only while another one holds the key. A dead task that dooms the
// tasks behind it does not hold it.
func (o *order) checkProgress(key string, open, waiting *memory.Task) {
	w := o.check.world
	active := w.store.Task(w.store.ActiveTask(key))
	dead := active != nil && active.State == holdfast.Dead && w.plan.AfterDeath == holdfast.AfterDeathBlock
	if waiting == nil || dead || open != nil {
		delete(o.stopped, key)
		return
	}
	if o.stopped[key].IsZero() {
		o.stopped[key] = time.Now()
	}
	if time.Since(o.stopped[key]) > openLimit && time.Since(o.check.gates.quiet) > openLimit {
		o.check.fail("task %s of key %s has waited for %s, although no task holds the key", waiting.ID, key, time.Since(o.stopped[key]))
	}
}
