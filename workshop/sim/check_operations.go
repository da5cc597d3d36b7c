package sim

import (
	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

// operations checks the operations. It notes every change of a task, and compares the counts of the operations with
// these changes. The version of an operation shows that a step was committed.
type operations struct {
	check *checker
	known map[store.ID]*operation
	// halted has the operations whose pause or cancellation the store has confirmed to a person.
	halted map[store.ID]store.OperationState
	// put has the state into which an operation has last put a task.
	put map[holdfast.TaskID]holdfast.State

	changes     int // changes of tasks by operations
	interrupted int // kills of processes that make the steps, while an operation was running
}

// operation is an operation as its newest step has left it.
type operation struct {
	store.Operation
	changed map[holdfast.TaskID]bool        // the tasks that it has changed
	step    map[holdfast.TaskID]bool        // the part of changed that belongs to a step that the checker has not yet seen
	others  map[holdfast.TaskID]bool        // tasks that anything else has changed or stored since the newest step
	first   map[holdfast.TaskID]firstResult // first results of retried tasks
}

// firstResult is the result of the first attempt of a retried task.
type firstResult uint8

const (
	notEnded  firstResult = iota
	uncertain             // another operation has changed the task, or the store has lost commits
	succeeded
	failed
)

func newOperations(c *checker) *operations {
	return &operations{
		check: c, known: make(map[store.ID]*operation), halted: make(map[store.ID]store.OperationState), put: make(map[holdfast.TaskID]holdfast.State),
	}
}

func newOperation(o store.Operation) *operation {
	return &operation{
		Operation: o, changed: make(map[holdfast.TaskID]bool), step: make(map[holdfast.TaskID]bool), others: make(map[holdfast.TaskID]bool),
		first: make(map[holdfast.TaskID]firstResult),
	}
}

// observe notes a change of a task. If an operation makes the change, observe checks that the change is allowed.
func (ops *operations) observe(change memory.Change) {
	before, after := change.Before, change.After
	id := taskOf(change).ID
	for _, o := range ops.known {
		if o.ID == change.Operation {
			continue
		}
		if before == nil || after == nil || before.State != after.State || before.Attempt != after.Attempt {
			o.others[id] = true
		}
		o.noteResult(id, change)
	}
	if change.Operation != 0 {
		ops.changed(change)
	}
}

// taskOf returns the task of a change.
func taskOf(change memory.Change) *memory.Task {
	if change.After != nil {
		return change.After
	}
	return change.Before
}

// noteResult notes the first result of a retried task. An attempt that is deferred or handed back does not count.
func (o *operation) noteResult(id holdfast.TaskID, change memory.Change) {
	result, watched := o.first[id]
	switch {
	case !watched:
	case change.Operation != 0, requested(change):
		o.first[id] = uncertain
	case result != notEnded || change.Move == nil:
	case change.Move.Event == holdfast.EventComplete:
		o.first[id] = succeeded
	case change.Move.Event != holdfast.EventDefer && change.Move.Event != holdfast.EventInterrupt:
		o.first[id] = failed
	}
}

// changed checks a change of a task by an operation: the operation runs, its filter selects the task, it has not
// changed the task before, and the change fits the action.
func (ops *operations) changed(change memory.Change) {
	c, before := ops.check, change.Before
	o := ops.known[change.Operation]
	if o == nil {
		c.fail("operation %s has changed a task in the step that created it", change.Operation)
		return
	}
	if state, ok := ops.halted[o.ID]; ok {
		c.fail("operation %s has changed task %s after a person received the answer that it is %s", o.ID, before.ID, state)
	}
	switch {
	case o.State != store.OperationRunning:
		c.fail("operation %s has changed task %s, but is %s", o.ID, before.ID, o.State)
	case o.changed[before.ID]:
		c.fail("operation %s has changed task %s twice", o.ID, before.ID)
	case !c.world.store.Selects(o.selection(), before):
		c.fail("operation %s has changed task %s, which its filter does not select", o.ID, before.ID)
	case !madeBy(o.Action, before, change.After):
		c.fail("operation %s, which is to %s, has made %s task %s another task: %+v", o.ID, o.Action, before.State, before.ID, change.After)
	}
	ops.changes++
	o.changed[before.ID], o.step[before.ID] = true, true
	if o.Action == store.ActionRetry {
		o.first[before.ID] = notEnded
	}
	if change.After != nil {
		ops.put[before.ID] = change.After.State
	}
}

// selection returns the filter of the operation. Every operation excludes tasks from after its creation.
func (o *operation) selection() store.Filter {
	f := o.Filter
	if f.Until.IsZero() || o.CreatedAt.Before(f.Until) {
		f.Until = o.CreatedAt
	}
	return f
}

// madeBy reports whether an action changes the task before into the task after. after is nil if the task was deleted.
func madeBy(action store.Action, before, after *memory.Task) bool {
	if action == store.ActionPurge {
		return after == nil && before.State.Final()
	}
	if after == nil {
		return false
	}
	kept := after.Attempt == before.Attempt && after.Failures == before.Failures && after.Crashes == before.Crashes && after.Deferrals == before.Deferrals
	switch action {
	case store.ActionRetry:
		return (before.State == holdfast.Dead || before.State == holdfast.Cancelled) && after.State == holdfast.Ready && !after.DueAt.IsZero() &&
			after.Attempt == before.Attempt+1 && after.Failures+after.Crashes+after.Deferrals == 0
	case store.ActionCancel:
		return before.State == holdfast.Ready && after.State == holdfast.Cancelled && kept
	case store.ActionArchive:
		return before.State == holdfast.Dead && after.State == holdfast.Archived && kept
	case store.ActionRestore:
		return before.State == holdfast.Archived && after.State == holdfast.Dead && kept
	}
	return false
}

// afterStep finds new operations and new versions of operations.
func (ops *operations) afterStep() {
	stored := ops.check.world.store.Operations()
	for i := range stored {
		now := &stored[i].Operation
		o := ops.known[now.ID]
		switch {
		case o == nil:
			ops.known[now.ID] = newOperation(*now)
		case now.Version != o.Version:
			ops.stepped(o, now)
			o.Operation = *now
			clear(o.step)
			clear(o.others)
		case len(o.step) > 0:
			ops.check.fail("operation %s has changed tasks but not its version", o.ID)
		}
	}
}

// stepped checks a step: its counts agree with its changes, and it skipped no task.
func (ops *operations) stepped(o *operation, to *store.Operation) {
	c := ops.check
	from := &o.Operation
	if from.State.Final() || to.Version != from.Version+1 {
		c.fail("operation %s was %s at version %d, and is %s at version %d", o.ID, from.State, from.Version, to.State, to.Version)
	}
	if counted := to.Changed - from.Changed; counted != int64(len(o.step)) {
		c.fail("operation %s counts %d changed tasks in a step that has changed %d", o.ID, counted, len(o.step))
	}
	if recorded := ops.recorded(o.ID); len(recorded) != int(to.Changed) {
		c.fail("operation %s has changed %d tasks, and the audit log has %d", o.ID, to.Changed, len(recorded))
	}
	if from.Cursor != 0 && !passed(to, from.Cursor) {
		c.fail("operation %s has gone back from task %s to task %s", o.ID, from.Cursor, to.Cursor)
	}
	ops.checkRange(o, to)
	ops.checkFirst(o, to)
}

// recorded returns the tasks that an operation has changed according to the audit log.
func (ops *operations) recorded(id store.ID) (tasks []holdfast.TaskID) {
	for _, entry := range ops.check.world.store.AuditEntries() {
		if entry.Operation == id && entry.Task != 0 {
			tasks = append(tasks, entry.Task)
		}
	}
	return tasks
}

// passed reports whether the cursor of an operation has passed a task.
func passed(o *store.Operation, id holdfast.TaskID) bool {
	if o.Cursor == 0 {
		return o.Scanned
	}
	return id >= o.Cursor
}

// checkRange checks the tasks that a step has passed: it has changed all tasks that the filter selects, except those
// that something else has changed since the previous step. The step may have read these tasks before that change, and
// may count them as skipped.
func (ops *operations) checkRange(o *operation, to *store.Operation) {
	c, from, f := ops.check, &o.Operation, o.selection()
	inRange := func(id holdfast.TaskID) bool { return passed(to, id) && !passed(from, id) }
	for id := range o.step {
		if !inRange(id) {
			c.fail("operation %s has changed task %s, which is not between its cursors %s and %s", o.ID, id, from.Cursor, to.Cursor)
		}
	}
	tasks := c.world.store.Tasks()
	for i := range tasks {
		if t := &tasks[i]; inRange(t.ID) && !o.step[t.ID] && !o.others[t.ID] && c.world.store.Selects(f, t) {
			c.fail("operation %s has passed task %s, which its filter selects, and has not changed it", o.ID, t.ID)
		}
	}
	most := int64(0)
	for id := range o.others {
		if inRange(id) {
			most++
		}
	}
	if skipped := to.Skipped - from.Skipped; skipped < 0 || skipped > most || to.Refused > 0 {
		c.fail("operation %s counts %d skipped and %d refused tasks in a step, but only %d have changed meanwhile", o.ID, skipped, to.Refused, most)
	}
	if to.Limit > 0 && to.Visited() > to.Limit {
		c.fail("operation %s has passed %d tasks, but its limit is %d", o.ID, to.Visited(), to.Limit)
	}
	if to.State == store.OperationDone && !(to.Scanned && (to.Cursor == 0 || to.Limit > 0 && to.Visited() == to.Limit)) {
		c.fail("operation %s is done, but has not passed the tasks below task %s", o.ID, to.Cursor)
	}
}

// checkFirst checks how many first attempts a retry counts.
func (ops *operations) checkFirst(o *operation, to *store.Operation) {
	n := make(map[firstResult]int64)
	for _, result := range o.first {
		n[result]++
	}
	tooMany := to.Succeeded > n[succeeded]+n[uncertain] || to.Failed > n[failed]+n[uncertain] || to.Judged > to.Changed
	tooFew := to.Judged == to.Changed && (to.Succeeded < n[succeeded] || to.Failed < n[failed])
	if tooMany || tooFew {
		ops.check.fail("operation %s counts %d first attempts of %d tasks: %d succeeded and %d failed; really %d succeeded, %d failed, and %d are uncertain",
			o.ID, to.Judged, to.Changed, to.Succeeded, to.Failed, n[succeeded], n[failed], n[uncertain])
	}
}

// requested notes that a person is about to change the state of an operation. answered notes that the store has
// confirmed the new state.
func (ops *operations) requested(id store.ID) { delete(ops.halted, id) }
func (ops *operations) answered(id store.ID, state store.OperationState) {
	if state != store.OperationRunning {
		ops.halted[id] = state
	}
}

// running returns an operation that is running, or nil.
func (ops *operations) running() *memory.Operation {
	stored := ops.check.world.store.Operations()
	for i := range stored {
		if stored[i].State == store.OperationRunning {
			return &stored[i]
		}
	}
	return nil
}

// killed counts a process that is killed during an operation.
func (ops *operations) killed(p *process) {
	if (p.role == Serve || p.role == Janitor) && ops.running() != nil {
		ops.interrupted++
	}
}

// fellBack keeps only what the store still knows after it has lost commits.
func (ops *operations) fellBack() {
	clear(ops.known)
	clear(ops.halted)
	clear(ops.put)
	w := ops.check.world
	for _, stored := range w.store.Operations() {
		o := newOperation(stored.Operation)
		for _, id := range ops.recorded(o.ID) {
			o.changed[id] = true
			if o.Action == store.ActionRetry {
				o.first[id] = uncertain
			}
		}
		if len(o.changed) != int(o.Changed) {
			ops.check.fail("after a loss of commits, operation %s has changed %d tasks, and the audit log has %d", o.ID, o.Changed, len(o.changed))
		}
		ops.known[o.ID] = o
	}
	for _, task := range w.store.Tasks() {
		if task.State == holdfast.Cancelled || task.State == holdfast.Archived {
			ops.put[task.ID] = task.State
		}
	}
}
