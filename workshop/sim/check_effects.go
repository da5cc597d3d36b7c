package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

// effects checks the outputs, the next tasks and the checkpoints of attempts. A success of a task and its effects are
// changes of one step, so the checker compares them after the step. A plan lists the next tasks of each task, so the
// checker does not depend on what the worker sends.
type effects struct {
	check  *checker
	active bool // the plan has effects
	// accepted has the attempts whose successes the store has accepted in this era, and done the one of each task.
	accepted map[claimed]bool
	done     map[holdfast.TaskID]claimed
	// succeeded has the successes of this step, and due the number of next tasks, by name, that they store.
	succeeded []success
	due       map[string]int
	// deleted has the names and the unique keys of the tasks that an operation or the person has deleted.
	deleted map[string]bool
	// checkpoints has the newest checkpoint of each task, and newest the number of the newest one that each attempt has
	// stored in this era.
	checkpoints map[holdfast.TaskID]store.Datum
	newest      map[claimed]int
	// unsure has the attempts of which a checkpoint got no answer. The store may carry out that call late, and then replace
	// a newer checkpoint of the same attempt.
	unsure map[claimed]bool
	// calls has the attempts that have called CompleteTx.
	calls map[claimed]commitCall
	// uncommitted counts, for each task, the failures of attempts whose call of CompleteTx got no answer or whose success
	// the store has lost.
	uncommitted map[holdfast.TaskID]int
	// overdue has the tasks whose plan has a failure for each attempt that ignores its timeout, but whose success CompleteTx
	// stored in such an attempt, before the worker could write that the attempt had timed out.
	overdue map[holdfast.TaskID]bool

	children int // next tasks that were stored
	saves    int // checkpoints that were stored
	refused  int // checkpoints, and successes of CompleteTx, that were refused
	commits  int // successes of CompleteTx that were accepted
}

// success is an accepted success.
type success struct {
	claim claimed
	plan  *TaskPlan
}

// commitCall is a call of CompleteTx.
type commitCall struct {
	era      int
	answered bool
}

func newEffects(c *checker) *effects {
	return &effects{
		check: c, active: c.world.plan.hasEffects(), accepted: make(map[claimed]bool), done: make(map[holdfast.TaskID]claimed), due: make(map[string]int),
		deleted: make(map[string]bool), checkpoints: make(map[holdfast.TaskID]store.Datum), newest: make(map[claimed]int), unsure: make(map[claimed]bool), calls: make(map[claimed]commitCall),
		uncommitted: make(map[holdfast.TaskID]int), overdue: make(map[holdfast.TaskID]bool),
	}
}

// fellBack keeps only what the store still knows after it has lost commits. A success and its next tasks must be lost
// together.
func (e *effects) fellBack() {
	clear(e.accepted)
	clear(e.done)
	clear(e.due)
	clear(e.checkpoints)
	clear(e.newest)
	e.succeeded = nil
	tasks := e.check.world.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		if datum, found := datumOf(t, store.CheckpointData); found {
			e.checkpoints[t.ID] = datum
		}
		if output, found := datumOf(t, store.OutputData); found {
			value := decode(output.Value)
			claim := claimOf(&t.Task)
			claim.Attempt, claim.worker = output.Attempt, value.Worker
			e.accepted[claim], e.done[t.ID] = true, claim
		}
	}
	e.compare("after a loss of commits")
}

// datumOf returns a value of the task.
func datumOf(t *memory.Task, name string) (store.Datum, bool) {
	for i := range t.Data {
		if t.Data[i].Name == name {
			return t.Data[i], true
		}
	}
	return store.Datum{}, false
}

func decode(value json.RawMessage) (c checkpoint) {
	_ = json.Unmarshal(value, &c) // a value that no handler has stored differs from every expected one
	return c
}

// observe checks a change of a task.
func (e *effects) observe(change memory.Change) {
	if !e.active {
		return
	}
	before, after := change.Before, change.After
	plan := e.check.world.taskPlan(nameOf(taskOf(change)))
	switch {
	case plan == nil:
	case before == nil:
		e.stored(after, plan)
	case after == nil:
		e.deleted[plan.Name] = true
		if plan.Unique != "" {
			e.deleted[plan.Unique] = true
		}
	case change.Op == "SaveData":
		e.checkSaved(before, after)
	case change.Move == nil:
	case change.Move.Event == holdfast.EventComplete:
		claim := claimOf(&before.Task)
		e.accepted[claim], e.done[after.ID] = true, claim
		_, called := e.calls[claim]
		e.overdue[after.ID] = called && before.Failures < plan.Hangs
		e.succeeded = append(e.succeeded, success{claim, plan})
		for i := range plan.Children {
			e.due[plan.Children[i].Name]++
		}
	case change.Move.Event == holdfast.EventRequeue:
		delete(e.uncommitted, after.ID)
	case after.Failures > before.Failures:
		e.failed(before)
	}
}

// stored checks that a next task is stored in the step of a success, and that no other task has its unique key.
func (e *effects) stored(t *memory.Task, plan *TaskPlan) {
	if plan.Parent == "" {
		return
	}
	if e.due[plan.Name]--; e.due[plan.Name] < 0 {
		e.check.fail("the next task %s (%s) was stored, but no success of %s was accepted with it", t.ID, plan.Name, plan.Parent)
	}
	if plan.Unique != "" {
		if n := e.withKey(plan.Unique); n != 1 {
			e.check.fail("%d tasks have the unique key %q of the next task %s", n, plan.Unique, t.ID)
		}
	}
	e.children++
	e.check.wanted[t.ID] = *plan
}

// withKey returns the number of tasks that have a unique key.
func (e *effects) withKey(unique string) (n int) {
	tasks := e.check.world.store.Tasks()
	for i := range tasks {
		if tasks[i].Unique == unique {
			n++
		}
	}
	return n
}

// checkSaved checks a checkpoint that was stored: its attempt runs, and it is newer than the one before, unless a call
// got no answer.
func (e *effects) checkSaved(before, after *memory.Task) {
	claim := claimOf(&before.Task)
	datum, _ := datumOf(after, store.CheckpointData)
	value := decode(datum.Value)
	switch {
	case before.State != holdfast.Running:
		e.check.fail("attempt %d stored a checkpoint of task %s, which is %s", value.Attempt, after.ID, before.State)
	case datum.Attempt != before.Attempt || value.Attempt != before.Attempt || value.Worker != before.Worker:
		e.check.fail("attempt %d of worker %s stored a checkpoint of task %s, whose attempt %d runs under worker %s", value.Attempt, value.Worker, after.ID, before.Attempt, before.Worker)
	}
	if old, found := e.checkpoints[after.ID]; found && old.Attempt > datum.Attempt || e.newest[claim] >= value.N && !e.unsure[claim] {
		e.check.fail("the checkpoint %s of task %s was replaced by the older one %s", old.Value, after.ID, datum.Value)
	}
	e.checkpoints[after.ID], e.newest[claim] = datum, value.N
	e.saves++
}

// runs reports whether the store records that the attempt runs.
func (e *effects) runs(claim claimed) bool {
	t := e.check.world.store.Task(claim.Task)
	return t != nil && t.State == holdfast.Running && claimOf(&t.Task) == claim
}

// noAnswer reports whether the store may or may not have carried out a call that returned err.
func noAnswer(err error) bool {
	return unavailable(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// read checks the checkpoint that an attempt has read before it has stored one. era is the era in which the call began.
func (e *effects) read(task *holdfast.Task, era int, value json.RawMessage, err error) {
	claim := claimOf(task)
	switch {
	case err != nil && !noAnswer(err):
		e.check.fail("attempt %d of task %s cannot read its checkpoint: %v", task.Attempt, task.ID, err)
	case err != nil, era != e.check.world.state.fellBack, !e.runs(claim):
	case !bytes.Equal(value, e.checkpoints[task.ID].Value):
		e.check.fail("attempt %d of task %s reads the checkpoint %s, and the newest one is %s", task.Attempt, task.ID, value, e.checkpoints[task.ID].Value)
	}
}

// saved checks the answer to an attempt that stores its n-th checkpoint.
func (e *effects) saved(task *holdfast.Task, n, era int, err error) {
	claim, sameEra := claimOf(task), era == e.check.world.state.fellBack
	switch {
	case err == nil:
		if sameEra && e.newest[claim] < n {
			e.check.fail("attempt %d of task %s got the answer that checkpoint %d is stored, but it is not", task.Attempt, task.ID, n)
		}
	case errors.Is(err, holdfast.ErrLeaseLost):
		e.refused++
		if sameEra && e.runs(claim) {
			e.check.fail("a checkpoint of attempt %d of task %s was refused, although the attempt runs: %v", task.Attempt, task.ID, err)
		}
	case noAnswer(err):
		e.unsure[claim] = true
	default:
		e.check.fail("attempt %d of task %s cannot store a checkpoint: %v", task.Attempt, task.ID, err)
	}
}

// committing notes that an attempt is about to call CompleteTx.
func (e *effects) committing(task *holdfast.Task, era int) {
	e.calls[claimOf(task)] = commitCall{era: era}
}

// committed checks the answer of CompleteTx.
func (e *effects) committed(task *holdfast.Task, era int, err error) {
	claim, sameEra := claimOf(task), era == e.check.world.state.fellBack
	e.calls[claim] = commitCall{era, err == nil || errors.Is(err, holdfast.ErrLeaseLost)}
	switch {
	case err == nil:
		e.commits++
		if sameEra && !e.accepted[claim] {
			e.check.fail("CompleteTx of attempt %d of task %s returned no error, but the store has accepted no success", task.Attempt, task.ID)
		}
	case errors.Is(err, holdfast.ErrLeaseLost):
		e.refused++
		if sameEra && (e.accepted[claim] || e.runs(claim)) {
			e.check.fail("CompleteTx of attempt %d of task %s was refused, although the attempt ran: %v", task.Attempt, task.ID, err)
		}
	case !noAnswer(err):
		e.check.fail("CompleteTx of attempt %d of task %s: %v", task.Attempt, task.ID, err)
	}
}

// failed checks that no failure is counted of an attempt whose CompleteTx was answered.
func (e *effects) failed(before *memory.Task) {
	call, called := e.calls[claimOf(&before.Task)]
	switch {
	case !called:
	case call.answered && call.era == e.check.world.state.fellBack:
		e.check.fail("a failure of attempt %d of task %s was counted after the answer of its CompleteTx", before.Attempt, before.ID)
	default:
		e.uncommitted[before.ID]++
	}
}

// fits reports whether a task may have failed so often. fails is the number of planned failures.
func (e *effects) fits(task *holdfast.Task, fails int) bool {
	if e.overdue[task.ID] {
		return task.Failures < fails
	}
	return fails <= task.Failures && task.Failures <= fails+e.uncommitted[task.ID]
}

// mayBeDead reports whether a task may be dead although its plan has fewer failures.
func (e *effects) mayBeDead(task *holdfast.Task) bool {
	return task.State == holdfast.Dead && e.uncommitted[task.ID] > 0 && task.Failures >= maxAttempts
}

// executionStarted forgets what an earlier run of the same attempt has called. If the store has lost the claim or the
// result of an attempt, the worker may claim and run the attempt again.
func (e *effects) executionStarted(x *execution) { delete(e.calls, x.claim()) }

// completed reports whether the success of an execution is stored. Its handler may still run after CompleteTx.
func (e *effects) completed(x *execution) bool {
	return x.era == e.check.world.state.fellBack && e.accepted[x.claim()]
}

// lingering returns the number of handlers that still run although their tasks are done.
func (e *effects) lingering() (n int) {
	for _, list := range e.check.active {
		for _, x := range list {
			if e.completed(x) {
				n++
			}
		}
	}
	return n
}

// afterStep checks that the successes of the step have stored their effects, and that no other result has.
func (e *effects) afterStep() {
	if !e.active {
		return
	}
	for _, s := range e.succeeded {
		e.checkSuccess(s)
	}
	e.succeeded = e.succeeded[:0]
	clear(e.due)
	tasks := e.check.world.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		output, found := datumOf(t, store.OutputData)
		if claim := e.done[t.ID]; found && (t.State != holdfast.Done || !bytes.Equal(output.Value, outputOf(claim)) || output.Attempt != claim.Attempt) {
			e.check.fail("task %s is %s and has the output %s of attempt %d; the accepted success is of attempt %d of worker %s",
				t.ID, t.State, output.Value, output.Attempt, claim.Attempt, claim.worker)
		}
	}
}

// outputOf returns the output that an attempt stores.
func outputOf(c claimed) json.RawMessage { return checkpoint{c.Attempt, c.worker, 0}.encode() }

// checkSuccess checks the effects of a success of this step. A next task with a unique key that several tasks use may
// exist already.
func (e *effects) checkSuccess(s success) {
	t := e.check.world.store.Task(s.claim.Task)
	if !s.plan.hasEffects() || t == nil { // an operation may delete the task in the same step
		return
	}
	if _, found := datumOf(t, store.OutputData); !found {
		e.check.fail("task %s (%s) is %s and has no output", t.ID, s.plan.Name, t.State)
	}
	for i := range s.plan.Children {
		child := &s.plan.Children[i]
		switch {
		case child.Shared && e.withKey(child.Unique) != 1:
			e.check.fail("the success of task %s (%s) was accepted, and %d tasks have the unique key %q of its next task", t.ID, s.plan.Name, e.withKey(child.Unique), child.Unique)
		case !child.Shared && e.due[child.Name] != 0:
			e.check.fail("the success of task %s (%s) was accepted without its next task %s", t.ID, s.plan.Name, child.Name)
		}
	}
}

// compare checks that each next task exists exactly once if its parent is done, and not at all otherwise. Tasks that
// were deleted are exceptions.
func (e *effects) compare(when string) {
	if !e.active {
		return
	}
	stored, done := make(map[string]int), make(map[string]int)
	tasks := e.check.world.store.Tasks()
	for i := range tasks {
		name := nameOf(&tasks[i])
		if stored[name]++; tasks[i].State == holdfast.Done {
			done[name]++
		}
	}
	for i := range e.check.world.plan.Tasks {
		parent := &e.check.world.plan.Tasks[i]
		for j := range parent.Children {
			child := &parent.Children[j]
			switch have, want := stored[child.Name], done[parent.Name]; {
			case have > want && !e.deleted[parent.Name]:
				e.check.fail("%s, the next task %s exists %d times, and %d tasks %s are done", when, child.Name, have, want, parent.Name)
			case child.Shared && want > 0 && e.withKey(child.Unique) != 1 && !e.deleted[child.Unique]:
				e.check.fail("%s, %d tasks have the unique key %q of a next task of the done task %s", when, e.withKey(child.Unique), child.Unique, parent.Name)
			case !child.Shared && have < want && !e.deleted[child.Name]:
				e.check.fail("%s, the next task %s exists %d times, and %d tasks %s are done", when, child.Name, have, want, parent.Name)
			}
		}
	}
}
