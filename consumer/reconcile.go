package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/message"
)

// errCommitsLost is the reason for handing back tasks whose results the store has lost.
var errCommitsLost = errors.New("the store lost commits, perhaps this task's result with them")

// errUnanswered is the reason for handing back tasks whose claims got no answer.
var errUnanswered = errors.New("the answer to this task's claim was lost; the worker never started the task")

// noteHistory compares the store's history with that of the last answered renewal. If it has changed, the store may
// have lost commits, and noteHistory makes reconcile search for forgotten tasks. If an answer is lost, the next answer
// shows the same change. Calls must not be concurrent.
func (s *session) noteHistory(history string) {
	first := !s.renewedOnce // the worker claims nothing before the first renewal
	s.renewedOnce = true
	if history == "" || history == s.history {
		return
	}
	s.history = history
	if first {
		return
	}
	s.commitsMayBeLost, s.settings = true, nil
	select {
	case s.historyChanged <- struct{}{}:
	default: // reconcile has not received the last token, and will see this change, too
	}
}

// reconcile hands back forgotten tasks whenever the store may have lost commits, until ctx is done. A forgotten task
// runs under this worker in the store, but is not in progress in this process. If the store has lost the task's result,
// no other component ends the task: its worker is live and its manifest is gone.
//
// reconcile searches again when all calls that were in progress have ended. A task may be in progress during the first
// search, and end only when an answer of the old server arrives.
func (s *session) reconcile(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.historyChanged:
			s.log.Warn("the store may have lost commits: looking for forgotten tasks")
			again = time.After(max(applyTimeout, claimTimeout) + maxReconcileDelay)
			if backoff.Sleep(ctx, rand.N(maxReconcileDelay)) != nil {
				return
			}
		case <-again:
			again = nil
		}
		s.handBackForgotten(ctx, errCommitsLost, s.claimedIDs.list())
	}
}

const (
	// maxReconcileDelay is the maximum wait before a search. All workers see a failover at the same time, so each waits
	// for a random time.
	maxReconcileDelay = time.Second
	// rangePause is the pause between two id ranges of a search.
	rangePause = 20 * time.Millisecond
	// finalReconcileLimit bounds the search at the end of a worker. It leaves time for the renewal before it and for
	// DeregisterWorker after it.
	finalReconcileLimit = closeTimeout / 2
)

// reconcileAtEnd hands back tasks that the worker may own without knowing them, before the worker ends. Otherwise a
// janitor charges a crash to tasks that never started. The caller must know from a renewal that the worker belongs to
// this process.
func (s *session) reconcileAtEnd(ctx context.Context) {
	// At most half of the lease is used, so that the worker is still live in the store afterwards.
	ctx, cancel := context.WithTimeout(ctx, min(finalReconcileLimit, s.lease.length/2))
	defer cancel()
	s.handBackForgotten(ctx, errUnanswered, s.unansweredIDs.list())
	if s.commitsMayBeLost {
		s.handBackForgotten(ctx, errCommitsLost, s.claimedIDs.list())
	}
}

// handBackForgotten searches the id ranges once for forgotten tasks, and hands them back. why is recorded as the error
// of their attempts. It tries until the store answers or ctx is done.
func (s *session) handBackForgotten(ctx context.Context, why error, ranges []int64) {
	for _, idRange := range ranges {
		if !s.handBackRange(ctx, why, idRange) || backoff.Sleep(ctx, rangePause) != nil {
			return
		}
	}
}

// handBackRange hands back the forgotten tasks of one id range. It returns false if ctx is done.
func (s *session) handBackRange(ctx context.Context, why error, idRange int64) bool {
	after, through := rangeBounds(idRange)
	var held []holdfast.Task
	if !s.retry(ctx, "look for forgotten tasks", func() (err error) {
		held, err = s.o.Store.Held(ctx, s.worker, after, through)
		return err
	}) {
		return false
	}
	tickets := make([]message.Ticket, len(held))
	for i, task := range held {
		tickets[i] = message.Ticket{Task: task.ID, Attempt: task.Attempt}
	}
	// The tickets are reserved until the store has answered. Otherwise the worker could claim a ticket of these tasks
	// that arrives now, and that attempt would run beside the one that the hand-back starts.
	forgotten, _ := s.jobs.reserve(tickets)
	open := make(map[message.Ticket]bool, len(forgotten))
	for _, ticket := range forgotten {
		open[ticket] = true
	}
	cause := holdfast.Interrupted(why)
	if errors.Is(why, errCommitsLost) { // the handlers may have been called
		cause = holdfast.Stopped(why)
	}
	var moves []holdfast.Transition
	for i, task := range held {
		if !open[tickets[i]] {
			continue
		}
		move, err := holdfast.Settle(task, cause, time.Now(), s.o.Settings.For(task.Type).Policy)
		if err != nil { // impossible: a running task can be interrupted
			s.log.WithError(err).WithField("task", task.ID).Error("forgotten task not settled")
			continue
		}
		moves = append(moves, move)
	}
	for part := range slices.Chunk(moves, maxGroupResults) {
		if !s.applyHandBack(ctx, why, part) {
			return false // the worker has ended, and janitors find its tasks
		}
	}
	s.jobs.forget(forgotten...)
	return true
}

// applyHandBack applies the moves of forgotten tasks. It returns false if ctx is done.
func (s *session) applyHandBack(ctx context.Context, why error, moves []holdfast.Transition) bool {
	var accepted []bool
	if !s.retry(ctx, "hand back forgotten tasks", func() (err error) {
		attempt, cancel := context.WithTimeout(ctx, applyTimeout)
		defer cancel()
		accepted, err = s.o.Store.Apply(attempt, moves)
		return err
	}) {
		return false
	}
	n := 0
	for _, yes := range accepted {
		if yes {
			n++
			s.o.OnReady(0)
		}
	}
	s.log.WithError(why).WithField("tasks", n).Warn("forgotten tasks handed back")
	return true
}

// retry calls f until it returns nil. It returns false if ctx ends first.
func (s *session) retry(ctx context.Context, what string, f func() error) bool {
	for pause := backoff.New(firstPause, longPause); ; {
		err := f()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.log.WithError(err).Warn(what + " failed, trying again")
		if pause.Wait(ctx) != nil {
			return false
		}
	}
}
