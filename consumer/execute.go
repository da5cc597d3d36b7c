package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/holdfastq/holdfast"
)

// execute calls the handler of one job and judges what it returned. parent ends
// when the run may not go on.
func (s *session) execute(parent context.Context, j *job) {
	ctx, cancel := context.WithCancelCause(parent)
	settings := s.policies[j.task.Type]
	attempt, stop := bounded(ctx, settings.Timeout)
	err := errGoexit
	defer func() { // deferred, because a handler can end its goroutine with runtime.Goexit
		if v := recover(); v != nil {
			err = &holdfast.PanicError{Value: v, Stack: string(debug.Stack())}
		}
		s.finish(j, causeOf(attempt, err))
		stop()
		cancel(nil)
	}()
	switch {
	case !s.jobs.bind(j, cancel):
		err = holdfast.ErrCancelled
	case !s.lease.valid(): // the process may have been stopped since the claim
		cancel(holdfast.ErrLeaseLost)
		err = holdfast.ErrLeaseLost
	default:
		err = s.o.Handlers.handlers[j.task.Type].Handle(attempt, j.task.WithIncarnation(s.o.Topology.Incarnation))
		switch {
		case err == nil:
			s.room.succeeded()
		case holdfast.IsWorkerFault(err):
			s.noteFault(err)
		}
	}
}

// bounded returns a context that ends with holdfast.ErrTimeout after a timeout that is not 0.
func bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w: it ran longer than %s", holdfast.ErrTimeout, timeout))
}

// Attempt calls a handler on the caller's goroutine, as a worker does for each attempt, and returns the cause to judge the
// task by. A timeout of 0 means none. It is for tests of handlers: a worker also ends the attempts of tasks that were
// cancelled or that it has lost.
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

// noteFault makes the worker take fewer tasks for a while, because the worker itself is at fault.
func (s *session) noteFault(err error) {
	most, lowered := s.room.faulty(err)
	if lowered {
		s.log.WithError(err).WithField("tasks", most).Warn("this worker is at fault itself: it defers tasks uncounted and takes fewer for a while")
	}
}

var errGoexit = errors.New("the handler ended its goroutine without returning (runtime.Goexit)")

// causeOf returns what the error of a handler means, given why the context of its attempt ended, if it did. Success is
// success even if it came late, and so is a handler's explicit wish. Any other error of a handler that this process
// interrupted is the interruption, which costs the task nothing.
func causeOf(ctx context.Context, err error) holdfast.Cause {
	ended := context.Cause(ctx)
	switch {
	case err == nil, ended == nil, holdfast.HasOutcome(err):
		return holdfast.Returned(err)
	case errors.Is(ended, holdfast.ErrDraining), errors.Is(ended, holdfast.ErrLeaseLost), errors.Is(ended, errStopped):
		return holdfast.Interrupted(ended)
	case errors.Is(ended, holdfast.ErrCancelled):
		return holdfast.Returned(holdfast.Cancel(ended)) // the store has moved it already and will refuse this
	case errors.Is(ended, holdfast.ErrTimeout) && !errors.Is(err, holdfast.ErrTimeout):
		return holdfast.Returned(fmt.Errorf("%w: %w", ended, err))
	}
	return holdfast.Returned(err)
}

// finish judges a job once, gives its place free and hands its result on.
func (s *session) finish(j *job, cause holdfast.Cause) {
	if s.jobs.end(j) {
		s.judge(j, cause)
	}
}

func (s *session) judge(j *job, cause holdfast.Cause) {
	policy, err := s.policies[j.task.Type].PolicyOf(cause)
	if err != nil {
		s.log.WithError(err).WithField("task", j.task.ID).Error("policy function failed: using the policy of the task's type")
	}
	move, err := holdfast.Settle(j.task, cause, j.storeTime(), policy)
	if err != nil { // a claimed task is running, and every cause above fits that
		s.log.WithError(err).WithField("task", j.task.ID).Error("a result could not be judged; the task is handed back")
		move, _ = holdfast.Settle(j.task, holdfast.Interrupted(err), j.storeTime(), policy)
	}
	took := time.Duration(0)
	if !j.started.IsZero() {
		took = max(time.Since(j.started), 1)
	}
	s.room.judged(took, j.into)
	s.results.add(result{job: j, move: move, took: took})
}

// Waiting jobs are handed back after this long, so that no task waits behind a busy
// worker while another one is idle.
const (
	waitLimit = 500 * time.Millisecond
	waitCheck = 250 * time.Millisecond
)

// handBackWaiters hands back jobs that found no executor in time. While none waits it sleeps.
func (s *session) handBackWaiters(ctx context.Context) {
	tick := time.NewTicker(waitCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.jobs.waits:
		}
		for s.jobs.anyWaits() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.handBack(s.jobs.takeWaiting(time.Now().Add(-waitLimit)))
			}
		}
	}
}

// handBack returns jobs that have not begun.
func (s *session) handBack(jobs []*job) {
	for _, j := range jobs {
		s.judge(j, holdfast.Interrupted(nil))
	}
}
