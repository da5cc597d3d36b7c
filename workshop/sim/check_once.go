package sim

import (
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/memory"
)

// isOnce reports whether the task runs at most once.
func isOnce(task *holdfast.Task) bool { return task.Type == "once" }

// startedBefore reports whether the counters prove that the only attempt of a task has started.
func startedBefore(task *holdfast.Task) bool {
	return isOnce(task) && task.Failures+task.Crashes+task.Deferrals > 0
}

// checkOnlyStart checks that no second attempt of a task starts before a person retries the task. A loss of commits may
// take the proof of the first attempt away, so only the attempts of one era count.
func (c *checker) checkOnlyStart(e *execution) {
	if !isOnce(&e.task) || e.era != c.world.state.fellBack {
		return
	}
	n := 1
	for _, other := range c.executions {
		if other.task.ID == e.task.ID && other.era == e.era {
			n++
		}
	}
	if most := 1 + c.requeued[e.task.ID]; n > most {
		c.fail("task %s runs at most once, and attempt %d is its start number %d after %d retries by a person", e.task.ID, e.task.Attempt, n, most-1)
	}
}

// checkOnce counts the retries of a task by a person. It also checks that no worker claims a task that runs at most once
// into its buffer, and that such a task becomes ready again only if its attempt has not started. Janitors that do not
// know the setting make it ready after a crash.
func (c *checker) checkOnce(change memory.Change) {
	before, after := change.Before, change.After
	if before == nil || after == nil {
		return
	}
	if isOnce(&after.Task) && after.Buffered && !before.Buffered {
		c.fail("task %s runs at most once, and worker %s has claimed it into its buffer", after.ID, after.Worker)
	}
	if after.State != holdfast.Ready {
		return
	}
	switch move := change.Move; {
	case before.State == holdfast.Dead || before.State == holdfast.Cancelled:
		c.requeued[after.ID]++
	case before.State != holdfast.Running || move == nil || !isOnce(&before.Task) || c.world.state.fellBack > 0:
	case move.Event == holdfast.EventInterrupt && !c.started[claimOf(&before.Task)]:
	case move.Event == holdfast.EventCrash && c.world.plan.Unaware:
	default:
		c.fail("task %s runs at most once, and is ready again after its attempt %d: %s", before.ID, before.Attempt, move.Event)
	}
}

// checkOnceOutcome checks that a task that runs at most once ended as its plan says. If its handler does not fail, only
// a fault makes it dead, or the end of a worker with too many abandoned handlers.
func (c *checker) checkOnceOutcome(task holdfast.Task, plan TaskPlan) {
	fails := plan.Always || plan.Poison || plan.Fails > 0 || plan.Defers > 0
	hangs := slices.ContainsFunc(c.world.plan.Tasks, func(t TaskPlan) bool { return t.Hangs > 0 })
	switch {
	case task.State == holdfast.Done && !fails:
	case task.State == holdfast.Dead && (fails || hangs || !c.world.plan.harmless()):
	default:
		c.fail("task %s (%s), which runs at most once, is %s: %s", task.ID, plan.Name, task.State, task.LastError)
	}
}
