package holdfast_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
)

// drawPolicy draws a valid policy.
func drawPolicy(t *rapid.T) holdfast.Policy {
	duration := func(name string, low time.Duration) time.Duration {
		high := rapid.SampledFrom([]time.Duration{time.Second, time.Hour, holdfast.MaxDuration}).Draw(t, name+" range")
		return time.Duration(rapid.Int64Range(int64(low), int64(high)).Draw(t, name))
	}
	p := holdfast.Policy{
		Strategy:     rapid.SampledFrom([]holdfast.Strategy{holdfast.Exponential, holdfast.Linear, holdfast.Fixed, holdfast.List}).Draw(t, "strategy"),
		Base:         duration("base", 1),
		Factor:       rapid.Float64Range(1, 1e6).Draw(t, "factor"),
		Max:          duration("max", 0),
		Jitter:       rapid.Float64Range(0, 1).Draw(t, "jitter"),
		MaxAttempts:  rapid.IntRange(1, 12).Draw(t, "max attempts"),
		MaxCrashes:   rapid.IntRange(1, 6).Draw(t, "max crashes"),
		MaxDeferrals: rapid.IntRange(0, 6).Draw(t, "max deferrals"),
	}
	p.AtMostOnce = rapid.Bool().Draw(t, "at most once")
	if rapid.Bool().Draw(t, "has a deadline") {
		p.Deadline = duration("deadline", 1)
	}
	for range rapid.IntRange(1, 4).Draw(t, "delays") {
		p.Delays = append(p.Delays, duration("delay", 0))
	}
	if err := p.Validate(); err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	return p
}

// drawCause draws the cause with which a running task is settled. Hand-backs have no limit of their own, so the
// argument interrupts limits them.
func drawCause(t *rapid.T, interrupts *int) holdfast.Cause {
	wait := time.Duration(rapid.Int64().Draw(t, "wait"))
	kinds := []string{"failure", "retry after", "defer", "crash"}
	if *interrupts > 0 {
		kinds = append(kinds, "interrupt")
	}
	switch rapid.SampledFrom(kinds).Draw(t, "cause") {
	case "retry after":
		return holdfast.Returned(holdfast.RetryAfter(wait, errBoom))
	case "defer":
		return holdfast.Returned(holdfast.Defer(wait, errBoom))
	case "crash":
		return holdfast.Crashed(1)
	case "interrupt":
		*interrupts--
		return holdfast.Interrupted(nil)
	}
	return holdfast.Returned(errBoom)
}

// apply changes a task as a store does for a transition.
func apply(task holdfast.Task, move holdfast.Transition, now time.Time) holdfast.Task {
	task.State, task.Attempt, task.Worker = move.To, move.NextAttempt, 0
	task.Failures, task.Crashes, task.Deferrals = move.Failures, move.Crashes, move.Deferrals
	task.NextRunAt = now.Add(move.Wait)
	return task
}

// TestATaskThatNeverSucceedsIsGivenUp settles a task with random causes until it is dead. That must happen within the
// limits of the policy.
func TestATaskThatNeverSucceedsIsGivenUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := drawPolicy(t)
		now := now
		task := holdfast.Task{ID: holdfast.TaskID(rapid.Int64Range(1, math.MaxInt64).Draw(t, "id")), State: holdfast.Ready, Attempt: 1, CreatedAt: now}
		task.MaxAttempts = rapid.IntRange(0, 5).Draw(t, "own limit")
		limit := task.MaxAttempts
		if limit == 0 {
			limit = policy.MaxAttempts
		}
		interrupts := rapid.IntRange(0, 5).Draw(t, "interrupts")
		most := limit + policy.MaxCrashes + policy.MaxDeferrals + 1 + interrupts
		for range most {
			task.State, task.Worker = holdfast.Running, 1 // claimed
			move := settle(t, task, drawCause(t, &interrupts), now, policy)
			if move.Failures > limit || move.Crashes > policy.MaxCrashes || move.Deferrals > policy.MaxDeferrals+1 {
				t.Fatalf("the transition exceeds a limit: %+v", move)
			}
			now = now.Add(min(move.Wait, 1000*time.Hour))
			task = apply(task, move, now)
			if policy.AtMostOnce && task.State == holdfast.Ready && move.Event != holdfast.EventInterrupt {
				t.Fatalf("the task runs at most once, and is ready again: %+v", move)
			}
			if task.State == holdfast.Dead {
				return
			}
		}
		t.Fatalf("after %d attempts the task is not dead: %+v", most, task)
	})
}

// failer is the part of *testing.T and *rapid.T that the helpers use.
type failer interface {
	Fatalf(format string, args ...any)
}

// settle calls Settle and checks what must be true for every transition.
func settle(t failer, task holdfast.Task, cause holdfast.Cause, now time.Time, policy holdfast.Policy) holdfast.Transition {
	move, err := holdfast.Settle(task, cause, now, policy)
	if err != nil {
		t.Fatalf("%+v: %v", task, err)
	}
	again, err := holdfast.Settle(task, cause, now, policy)
	if err != nil || !reflect.DeepEqual(move, again) {
		t.Fatalf("two calls return %+v and %+v, %v", move, again, err)
	}
	if move.Wait < 0 || move.To != holdfast.Ready && move.Wait != 0 {
		t.Fatalf("invalid wait in %+v", move)
	}
	if ready := move.To == holdfast.Ready; ready && move.NextAttempt != task.Attempt+1 || !ready && move.NextAttempt != task.Attempt {
		t.Fatalf("wrong next attempt in %+v", move)
	}
	if move.Event != holdfast.EventRequeue {
		grown := move.Failures - task.Failures + move.Crashes - task.Crashes + move.Deferrals - task.Deferrals
		if grown < 0 || grown > 1 || move.Failures < task.Failures || move.Crashes < task.Crashes || move.Deferrals < task.Deferrals {
			t.Fatalf("wrong counters in %+v", move)
		}
		if uncounted := move.Event == holdfast.EventInterrupt || move.Event == holdfast.EventComplete || move.Event == holdfast.EventCancel; uncounted && grown != 0 {
			t.Fatalf("%s must not be counted: %+v", move.Event, move)
		}
	}
	if policy.Deadline > 0 && move.To == holdfast.Ready && move.Event != holdfast.EventInterrupt && move.Event != holdfast.EventRequeue &&
		now.Add(move.Wait).After(task.CreatedAt.Add(policy.Deadline)) {
		t.Fatalf("the next attempt begins after the deadline: %+v", move)
	}
	return move
}

// TestTheStateMachineWithOperators adds random requests of operators. It checks that attempt numbers only grow. Settle
// must return a conflict exactly where the state table does not allow the request.
func TestTheStateMachineWithOperators(t *testing.T) {
	t.Parallel()
	requests := []holdfast.Event{holdfast.EventRequeue, holdfast.EventCancel, holdfast.EventArchive, holdfast.EventRestore}
	rapid.Check(t, func(t *rapid.T) {
		policy := drawPolicy(t)
		task := holdfast.Task{ID: 5, State: holdfast.Ready, Attempt: 1, CreatedAt: now}
		interrupts := 100
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if task.State == holdfast.Ready && rapid.Bool().Draw(t, "claim") {
				task.State, task.Worker = holdfast.Running, 1
			}
			var cause holdfast.Cause
			var event holdfast.Event
			if task.State == holdfast.Running && rapid.Bool().Draw(t, "result") {
				cause = drawCause(t, &interrupts)
				if rapid.Bool().Draw(t, "success") {
					cause = holdfast.Returned(nil)
				}
			} else {
				event = rapid.SampledFrom(requests).Draw(t, "request")
				cause = holdfast.Requested(event)
			}
			if event != "" && !holdfast.Allowed(event, task.State) {
				if move, err := holdfast.Settle(task, cause, now, policy); !errors.Is(err, holdfast.ErrConflict) {
					t.Fatalf("%s while %s: %+v, %v", event, task.State, move, err)
				}
				continue
			}
			move := settle(t, task, cause, now, policy)
			if !slices.Contains(move.From, task.State) || move.To != holdfast.Moves()[move.Event].To {
				t.Fatalf("%+v is not in the table", move)
			}
			task = apply(task, move, now)
		}
	})
}
