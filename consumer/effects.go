package consumer

import (
	"errors"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/effect"
)

// Task implements effect.Host.
func (j *job) Task() *holdfast.Task { return j.task }

// Store implements effect.Host.
func (j *job) Store() effect.Store { return j.session.o.Store }

// MaxPayload implements effect.Host.
func (j *job) MaxPayload() int { return j.session.o.MaxPayload }

// Leased implements effect.Host.
func (j *job) Leased() bool { return j.session.lease.valid() }

// Complete implements effect.Host.
func (j *job) Complete(task holdfast.NewTask) (holdfast.NewTask, error) {
	o := &j.session.o
	if task.Trace == "" && j.span != nil { // the span is set before the handler is called
		task.Trace = j.span.Trace()
	}
	err := task.Complete(o.Settings.For(task.Type), o.MaxPayload, o.Check[task.Type])
	return task, err
}

// Success implements effect.Host.
func (j *job) Success() (holdfast.Transition, error) {
	policy := j.session.o.Settings.For(j.task.Type).Policy
	return holdfast.Settle(*j.task, holdfast.Returned(nil), j.storeTime(), policy)
}

// uncommittedClass is the class of errUncommitted.
const uncommittedClass = "uncommitted"

var errUncommitted = errors.New("the handler returned no error, but the transaction of CompleteTx has not committed")

// uncommitted is the cause of an attempt whose handler has called CompleteTx and returned no error. If the transaction
// has committed, the task is done, and the store refuses the result. So the worker need not find out.
func uncommitted() holdfast.Cause {
	return holdfast.Returned(holdfast.Detailed(errUncommitted, uncommittedClass, nil))
}

// alone reports whether a result must not delay others. From the call of CompleteTx, the transaction of a handler may
// lock the row of the task. An insert of tasks with unique keys may have to wait for other transactions.
func (j *job) alone(move *holdfast.Transition) bool {
	return j.effects.Locks() || move.Effects.HasUnique()
}
