package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
)

// execute calls the handler of a job and settles the result. parent ends when the worker must stop.
func (s *session) execute(parent context.Context, j *job) {
	ctx, cancel := context.WithCancelCause(parent)
	settings := s.settingsFor(j)
	attempt, stop := bounded(ctx, settings.Timeout)
	var err error
	returned, started := false, false
	unstarted := holdfast.Cause{} // why the handler is not called
	target := ""
	defer func() {
		if !returned { // the handler panicked, or ended its goroutine with runtime.Goexit
			err = &holdfast.PanicError{Value: recover(), Stack: string(debug.Stack())}
		}
		err = holdfast.Returned(err).Err() // methods of the handler's error can panic, too
		if holdfast.IsWorkerFault(err) {
			s.noteFault(err)
		}
		s.targets.end(target, j.task.ID, j.probe, interrupted(attempt), err)
		effects := j.effects.End()
		cause := unstarted
		switch {
		case started && err == nil && j.effects.Completed():
			cause = uncommitted()
		case started:
			cause = causeOf(attempt, err)
		}
		s.finish(j, cause, effects)
		stop()
		cancel(nil)
	}()
	switch {
	case !s.jobs.bind(j, attempt, cancel):
		unstarted = holdfast.Returned(holdfast.ErrCancelled)
	case !s.lease.valid(): // the process may have been suspended after the claim
		unstarted = holdfast.Interrupted(holdfast.ErrLeaseLost)
	case j.task.Doomed:
		unstarted = holdfast.KeyDied()
	case settings.Policy.StartedBefore(*j.task): // the process that settled it may not know the setting
		unstarted = holdfast.StartedBefore()
	case settings.Policy.Expired(*j.task, j.storeTime()):
		unstarted = holdfast.Expired()
	default:
		started = true
		target = s.targets.begin(j.task, j.probe)
		handling := attempt
		if s.o.Tracer != nil {
			handling = s.trace(attempt, j)
		}
		handling = j.effects.Begin(handling, j)
		if err = s.o.Handlers.handlers[j.task.Type].Handle(handling, j.task.WithIncarnation(s.o.Topology.Incarnation)); err == nil {
			s.capacity.succeeded()
		}
	}
	returned = true
}

// trace begins the span of an attempt. It returns the context for the handler.
func (s *session) trace(attempt context.Context, j *job) context.Context {
	handling, span := s.o.Tracer.Attempt(attempt, j.task)
	if !s.jobs.trace(j, span) { // the worker ends, and has handed the task back
		span.End(&holdfast.Transition{Task: j.task.ID, Attempt: j.task.Attempt, Event: holdfast.EventInterrupt})
	}
	return handling
}

// endSpan ends the span of a settled attempt.
func (s *session) endSpan(j *job, move *holdfast.Transition) {
	outcome := *move
	if outcome.Report.Class == uncommittedClass && j.effects.Completed() { // almost always the transaction has committed, and the store refuses move
		outcome.Event, outcome.Report = holdfast.EventComplete, holdfast.Report{}
	}
	outcome.Effects = nil
	j.span.End(&outcome)
}

// logOf returns the logger for lines about an attempt.
func (s *session) logOf(j *job) logrus.FieldLogger {
	return s.traced(j).WithFields(logrus.Fields{"task": j.task.ID, "attempt": j.task.Attempt})
}

// traced returns the logger with the ids of the trace and of the span of an attempt, if it has a span.
func (s *session) traced(j *job) logrus.FieldLogger {
	span := s.jobs.spanOf(j)
	if span == nil {
		return s.log
	}
	traceID, spanID := holdfast.TraceIDs(span.Trace())
	if traceID == "" {
		return s.log
	}
	return s.log.WithFields(logrus.Fields{"trace_id": traceID, "span_id": spanID})
}

// bounded returns a context that ends with holdfast.ErrTimeout after the timeout. 0 means no timeout.
func bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w: it ran longer than %s", holdfast.ErrTimeout, timeout))
}

// Attempt calls a handler on the caller's goroutine as a worker does, and returns the cause to pass to holdfast.Settle.
// A timeout of 0 means no timeout. Attempt is for tests of handlers. Unlike a worker, it does not end the attempt if
// the task is cancelled or a lease is lost.
func Attempt(ctx context.Context, h Handler, task holdfast.Task, timeout time.Duration) (cause holdfast.Cause) {
	ctx, stop := bounded(ctx, timeout)
	defer stop()
	defer func() {
		if v := recover(); v != nil {
			cause = causeOf(ctx, &holdfast.PanicError{Value: v, Stack: string(debug.Stack())})
		}
	}()
	return causeOf(ctx, h.Handle(ctx, task))
}

// noteFault records an error for which the worker itself is at fault. The worker then takes fewer tasks for some time.
func (s *session) noteFault(err error) {
	most, lowered := s.capacity.faulty(err)
	if lowered {
		s.log.WithError(err).WithField("tasks", most).Warn("worker fault: tasks are deferred without using up attempts, and fewer are taken")
	}
}

// interrupted reports whether this process has ended an attempt for a reason other than its timeout.
func interrupted(attempt context.Context) bool {
	ended := context.Cause(attempt)
	return ended != nil && !errors.Is(ended, holdfast.ErrTimeout)
}

// causeOf returns why an attempt ended, given the handler's error and the context of the attempt. A success or an
// explicit outcome such as holdfast.Permanent is accepted even if ctx has ended. If this process has interrupted the
// handler, any other error is an interruption, which uses up no attempt unless the type runs at most once.
func causeOf(ctx context.Context, err error) holdfast.Cause {
	err = holdfast.Returned(err).Err() // the methods of a handler's error can panic
	ended := context.Cause(ctx)
	switch {
	case err == nil, ended == nil, holdfast.HasOutcome(err):
		return holdfast.Returned(err)
	case errors.Is(ended, holdfast.ErrDraining), errors.Is(ended, holdfast.ErrLeaseLost), errors.Is(ended, errStopped):
		return holdfast.Stopped(ended)
	case errors.Is(ended, holdfast.ErrCancelled):
		return holdfast.Returned(holdfast.Cancel(ended)) // the store refuses this, because the task is already cancelled
	case errors.Is(ended, holdfast.ErrTimeout) && !errors.Is(err, holdfast.ErrTimeout):
		return holdfast.Returned(fmt.Errorf("%w: %w", ended, err))
	}
	return holdfast.Returned(err)
}

// finish settles a job, unless it is already finished. effects are stored with a success.
func (s *session) finish(j *job, cause holdfast.Cause, effects *holdfast.Effects) {
	policy, cause := s.policyOf(j, cause) // called before the job is finished, because a policy function may take long
	if s.jobs.finish(j) {
		s.settle(j, cause, policy, effects)
	}
}

// settingsFor returns the settings for the task of a job.
func (s *session) settingsFor(j *job) *holdfast.TypeSettings {
	return plan.TaskSettings(s.o.Settings.For(j.task.Type), j.task)
}

// policyOf returns the policy and the cause with which to settle a job.
func (s *session) policyOf(j *job, cause holdfast.Cause) (holdfast.Policy, holdfast.Cause) {
	policy, cause, err := s.settingsFor(j).PolicyOf(cause)
	if err != nil {
		s.logOf(j).WithError(err).Error("policy function failed: using the policy of the task's type")
	}
	return policy, cause
}

// settle settles a job, frees its capacity, and adds its result to the results to write.
func (s *session) settle(j *job, cause holdfast.Cause, policy holdfast.Policy, effects *holdfast.Effects) {
	move, err := holdfast.Settle(*j.task, cause, j.storeTime(), policy)
	if err != nil { // impossible: a claimed task is running, and every cause passed here is legal for a running task
		s.logOf(j).WithError(err).Error("result not settled: the task is handed back")
		move, _ = holdfast.Settle(*j.task, holdfast.Interrupted(err), j.storeTime(), policy)
	}
	if !j.started.IsZero() {
		j.took = max(time.Since(j.started), 1)
		s.ended.note(j.task.Subqueue(), j.took)
	}
	s.capacity.settled(j.took, j.into)
	if move.Event == holdfast.EventComplete {
		move.Effects = effects
	}
	if j.span != nil { // trace no longer changes it, because the job is finished
		s.endSpan(j, &move)
	}
	s.results.add(j, &move)
}

// interrupt settles a finished job whose handler has not returned. why may be nil.
func (s *session) interrupt(j *job, why error) {
	cause := holdfast.Interrupted(why)
	if j.attempt != nil { // bind no longer changes it, because the job is finished
		cause = holdfast.Stopped(why)
	}
	s.settle(j, cause, s.o.Settings.For(j.task.Type).Policy, nil)
}

const (
	// waitLimit is how long a job may wait for an executor before the worker hands it back. So no task waits for a busy
	// worker while another worker is idle.
	waitLimit = 500 * time.Millisecond
	waitCheck = 250 * time.Millisecond
)

// handBackWaiters hands back jobs that have waited too long for an executor, until ctx is done.
func (s *session) handBackWaiters(ctx context.Context) {
	tick := time.NewTicker(waitCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.jobs.waitBegan:
		}
		for s.jobs.anyWaiting() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.handBack(s.jobs.takeWaiting(time.Now().Add(-waitLimit)))
			}
		}
	}
}

// handBack settles jobs that have not started. The store makes their tasks ready again.
func (s *session) handBack(jobs []*job) {
	for _, j := range jobs {
		s.interrupt(j, nil)
	}
}
