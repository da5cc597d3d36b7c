package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
)

// errCommitsLost is why tasks are handed back that this process has already finished.
var errCommitsLost = errors.New("the store lost commits, perhaps this task's result with them")

// errUnanswered is the reason with which the worker hands back tasks whose claim it got no answer to.
var errUnanswered = errors.New("the answer to this task's claim was lost; the worker never started the task")

// noteHistory sees to it that the tasks the store believes to be here are looked through when it may have
// lost commits. It compares with the last renewal that was answered, so the change is seen even if the answer that
// brought it first was lost. Only keepLease calls it.
func (s *session) noteHistory(history string) {
	first := !s.renewed // nothing was claimed before the first renewal
	s.renewed = true
	if history == "" || history == s.history {
		return
	}
	s.history = history
	if first {
		return
	}
	s.unsure = true
	select {
	case s.fellBack <- struct{}{}:
	default: // a look that has not begun will see this change too
	}
}

// reconcile hands back what the store believes this run to hold and this process does not have in hand, whenever the
// store may have lost commits: a task whose result was among them is running there for ever, for its run lives and
// its manifest is gone. It looks once more when every call that was under way has ended, for an answer of the old
// server may come after the first look and have a task forgotten that it saw in hand.
func (s *session) reconcile(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.fellBack:
			s.log.Warn("the store may have lost commits; looking for tasks that it believes to be here")
			again = time.After(max(applyTimeout, claimTimeout) + lookWithin)
			if backoff.Sleep(ctx, rand.N(lookWithin)) != nil {
				return
			}
		case <-again:
			again = nil
		}
		s.handBackForgotten(ctx, errCommitsLost, s.touched.list())
	}
}

const (
	// lookWithin is the longest wait before a look. All workers see a failover at the same time, so each waits for a
	// random time.
	lookWithin = time.Second
	// lookPause is the pause between two blocks of a look.
	lookPause = 20 * time.Millisecond
	// lastLook bounds the look at the end of a run. It leaves time for the renewal before it and the close after it.
	lastLook = closeTimeout / 2
)

// lookOnce hands back the tasks that the run may hold without knowing, before the run ends. Otherwise a janitor charges
// a crash to tasks that never started. The caller knows from a renewal that the run is its own.
func (s *session) lookOnce(ctx context.Context) {
	// At most half of the lease, so that the run is still live in the store.
	ctx, cancel := context.WithTimeout(ctx, min(lastLook, s.lease.length/2))
	defer cancel()
	s.handBackForgotten(ctx, errUnanswered, s.unanswered.list())
	if s.unsure {
		s.handBackForgotten(ctx, errCommitsLost, s.touched.list())
	}
}

// handBackForgotten looks once at the tasks that the run may hold in these blocks. It tries until the store answers or
// ctx is done. The attempts that it hands back have why as their error.
func (s *session) handBackForgotten(ctx context.Context, why error, blocks []int64) {
	for _, block := range blocks {
		if !s.handBackFrom(ctx, why, block) || backoff.Sleep(ctx, lookPause) != nil {
			return
		}
	}
}

// handBackFrom looks at one block. It returns false if the run has ended.
func (s *session) handBackFrom(ctx context.Context, why error, block int64) bool {
	after, through := ids(block)
	var held []holdfast.Task
	if !s.insist(ctx, "look for forgotten tasks", func() (err error) {
		held, err = s.o.Store.Held(ctx, s.run, after, through)
		return err
	}) {
		return false
	}
	tickets := make([]message.Ticket, len(held))
	for i, task := range held {
		tickets[i] = message.Ticket{Task: task.ID, Attempt: task.Attempt}
	}
	// Reserved until the store has answered, so that a ticket that comes meanwhile is not claimed and run beside the
	// attempt that begins with the hand-back.
	forgotten, _ := s.jobs.reserve(tickets)
	open := make(map[message.Ticket]bool, len(forgotten))
	for _, ticket := range forgotten {
		open[ticket] = true
	}
	var moves []holdfast.Transition
	for i, task := range held {
		if !open[tickets[i]] {
			continue
		}
		move, err := holdfast.Settle(task, holdfast.Interrupted(why), time.Now(), s.o.Settings.For(task.Type).Policy)
		if err != nil { // a held task is running, and may be interrupted
			s.log.WithError(err).WithField("task", task.ID).Error("a forgotten task could not be judged")
			continue
		}
		moves = append(moves, move)
	}
	for part := range slices.Chunk(moves, resultBatch) {
		if !s.giveBack(ctx, why, part) {
			return false // the run has ended; janitors find its tasks
		}
	}
	s.jobs.forget(forgotten...)
	return true
}

// giveBack applies the moves of forgotten tasks.
func (s *session) giveBack(ctx context.Context, why error, moves []holdfast.Transition) bool {
	var accepted []bool
	if !s.insist(ctx, "hand back forgotten tasks", func() (err error) {
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

// insist calls f until it returns nil; false if ctx ended first.
func (s *session) insist(ctx context.Context, what string, f func() error) bool {
	for pause := backoff.New(firstPause, longPause); ; {
		err := f()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.log.WithError(err).Warn("could not " + what + ", trying again")
		if pause.Wait(ctx) != nil {
			return false
		}
	}
}
