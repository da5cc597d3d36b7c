// Package preview computes when a policy runs the attempts of a task that always fails, before anyone uses the policy.
// holdfast.Settle decides each step, as it does for real tasks.
package preview

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
)

// Attempt is an attempt that fails at once. Times are ranges, because delays have a random part; see
// holdfast.Policy.Jitter.
type Attempt struct {
	Attempt            int
	DelayMin, DelayMax time.Duration // since the attempt before; 0 for the first attempt
	SinceMin, SinceMax time.Duration // since the creation of the task
	Result             string        // what happens when the attempt has failed: "retry", "dead" or "retry or dead"
}

// Preview is the attempts of a task until it is dead.
type Preview struct {
	Attempts []Attempt
	// End says what ends the task. It is empty if the preview is limited to fewer attempts.
	End string
}

// Of returns the preview of a task with the policy, with at most limit attempts. The attempts take no time.
func Of(policy holdfast.Policy, limit int) (Preview, error) {
	if err := policy.Validate(); err != nil {
		return Preview{}, err
	}
	n := min(limit, policy.MaxAttempts)
	fast, err := path(fixed(policy, n, 0), n)
	if err != nil {
		return Preview{}, err
	}
	slow, err := path(fixed(policy, n, 1), n)
	if err != nil {
		return Preview{}, err
	}
	var p Preview
	for i, f := range fast {
		a := Attempt{Attempt: i + 1, DelayMin: f.delay, DelayMax: f.delay, SinceMin: f.since, SinceMax: f.since}
		s, both := f, i < len(slow)
		if both {
			s = slow[i]
			a.DelayMax, a.SinceMax = s.delay, s.since
		} else { // only fast enough tasks have this attempt
			before := p.Attempts[i-1]
			a.DelayMax = min(policy.Delay(i, 1), policy.Deadline-before.SinceMin)
			a.SinceMax = min(before.SinceMax+a.DelayMax, policy.Deadline)
		}
		switch {
		case f.dead:
			a.Result = "dead"
		case both && !s.dead:
			a.Result = "retry"
		default:
			a.Result = "retry or dead" // the random parts of the delays decide whether the deadline passes
		}
		p.Attempts = append(p.Attempts, a)
	}
	last := fast[len(fast)-1]
	switch {
	case !last.dead:
	case policy.AtMostOnce:
		p.End = "attempt 1, because the type runs at most once"
	case last.deadline:
		p.End = fmt.Sprintf("the deadline of %s: no attempt begins after it", policy.Deadline)
	case !slow[len(slow)-1].deadline:
		p.End = fmt.Sprintf("attempt %d of %d", len(fast), policy.MaxAttempts)
	default:
		p.End = fmt.Sprintf("attempt %d of %d, or the deadline of %s", len(fast), policy.MaxAttempts, policy.Deadline)
	}
	return p, nil
}

// fixed returns the policy with the delays that dice gives, for n attempts and without a random part.
func fixed(policy holdfast.Policy, n int, dice float64) holdfast.Policy {
	delays := make([]time.Duration, n)
	for i := range delays {
		delays[i] = policy.Delay(i+1, dice)
	}
	policy.Strategy, policy.Delays, policy.Max, policy.Jitter = holdfast.List, delays, 0, 0
	return policy
}

// step is one attempt with certain delays.
type step struct {
	delay, since   time.Duration
	dead, deadline bool // deadline means that the deadline has ended the task
}

var errFailed = errors.New("failure in a preview")

// path returns the attempts of a task whose delays have no random part.
func path(policy holdfast.Policy, n int) ([]step, error) {
	created := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	task := holdfast.Task{ID: 1, State: holdfast.Running, Attempt: 1, Worker: 1, CreatedAt: created}
	var steps []step
	delay, now := time.Duration(0), created
	for range n {
		move, err := holdfast.Settle(task, holdfast.Returned(errFailed), now, policy)
		if err != nil {
			return nil, err
		}
		dead := move.To == holdfast.Dead
		steps = append(steps, step{delay, now.Sub(created), dead, dead && move.Failures < policy.MaxAttempts})
		if dead {
			break
		}
		delay = move.Wait
		now = now.Add(delay)
		task.Attempt, task.Failures = move.NextAttempt, move.Failures
	}
	return steps, nil
}
