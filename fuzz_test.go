package holdfast_test

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

// anyPolicy returns a policy with arbitrary values, which may be invalid.
func anyPolicy(strategy uint8, base, longest, delay, deadline int64, factor, jitter float64, limits uint32) holdfast.Policy {
	names := []holdfast.Strategy{holdfast.Exponential, holdfast.Linear, holdfast.Fixed, holdfast.List, "", "hope"}
	return holdfast.Policy{
		Strategy: names[int(strategy)%len(names)], Base: time.Duration(base), Factor: factor, Max: time.Duration(longest), Jitter: jitter,
		Delays:      []time.Duration{time.Duration(delay), time.Duration(base), 0}[:int(strategy/8)%4],
		MaxAttempts: int(int8(limits)), MaxCrashes: int(int8(limits >> 8)), MaxDeferrals: int(int8(limits >> 16)),
		Deadline: time.Duration(deadline), AtMostOnce: limits>>24&1 == 1,
	}
}

// FuzzPolicy checks that Validate returns a reason for every invalid policy, and that the delays of a valid policy are
// in their range.
func FuzzPolicy(f *testing.F) {
	const five = 5<<16 | 5<<8 | 5
	f.Add(uint8(0), int64(time.Second), int64(0), int64(0), int64(0), 2.5, 0.1, uint32(five), 7, 0.5)
	f.Add(uint8(0), int64(math.MaxInt64), int64(math.MaxInt64), int64(0), int64(0), math.MaxFloat64, 1.0, uint32(five), math.MaxInt, 0.999)
	f.Add(uint8(3+8), int64(-1), int64(5), int64(math.MaxInt64), int64(time.Hour), math.NaN(), math.Inf(1), uint32(math.MaxUint32), -3, 0.0)
	f.Fuzz(func(t *testing.T, strategy uint8, base, longest, delay, deadline int64, factor, jitter float64, limits uint32, failures int, dice float64) {
		p := anyPolicy(strategy, base, longest, delay, deadline, factor, jitter, limits)
		if err := p.Validate(); err != nil {
			if !errors.Is(err, holdfast.ErrInvalid) || len(err.Error()) > 300 || !strings.Contains(err.Error(), "retry policy: ") {
				t.Fatalf("%+v: %v", p, err)
			}
			return
		}
		if !(dice >= 0 && dice < 1) {
			dice = 0.5
		}
		got := p.Delay(failures, dice)
		plain := p
		plain.Jitter = 0
		middle := plain.Delay(failures, dice)
		if p.Max > 0 && middle > p.Max || middle < 0 || middle > century {
			t.Fatalf("%+v after %d failures: %s without jitter", p, failures, middle)
		}
		low, high := float64(middle)*(1-p.Jitter), min(float64(middle)*(1+p.Jitter), float64(century))
		const slack = 1e-9 // for rounding
		if d := float64(got); got < 0 || d < low*(1-slack)-1 || d > high*(1+slack)+1 {
			t.Fatalf("%+v after %d failures, dice %v: %s is not from %v to %v", p, failures, dice, got, low, high)
		}
		if failures < math.MaxInt && p.Strategy != holdfast.List && plain.Delay(failures+1, dice) < middle {
			t.Fatalf("%+v: the delay shrinks after %d failures", p, failures)
		}
		if err := (holdfast.Settings{Defaults: holdfast.TypeSettings{Policy: p}}).Validate(); err != nil {
			t.Fatalf("the policy is valid, but not the settings that contain it: %v", err)
		}
	})
}

// anyCause returns the cause that kind selects.
func anyCause(kind uint8, wait int64) holdfast.Cause {
	d := time.Duration(wait)
	all := []holdfast.Cause{
		holdfast.Returned(nil), holdfast.Returned(errBoom), holdfast.Returned(holdfast.RetryAfter(d, errBoom)), holdfast.Returned(holdfast.Defer(d, errBoom)),
		holdfast.Returned(holdfast.Permanent(errBoom)), holdfast.Returned(holdfast.Cancel(nil)), holdfast.Crashed(9), holdfast.Interrupted(errBoom), holdfast.Stopped(errBoom), holdfast.StartedBefore(),
		holdfast.Requested(holdfast.EventRequeue), holdfast.Requested(holdfast.EventCancel), holdfast.Requested(holdfast.EventArchive),
		holdfast.Requested(holdfast.EventRestore), holdfast.Requested(holdfast.EventComplete), holdfast.Requested("\x00"),
	}
	return all[int(kind)%len(all)]
}

// FuzzSettle settles any task for any cause with any valid policy. It checks that the transition is in the state table.
// No limit may be exceeded, even if the counters of the task already exceed their limits.
func FuzzSettle(f *testing.F) {
	const five = 5<<16 | 5<<8 | 5
	for kind := range uint8(16) {
		f.Add(uint8(1), kind, int64(time.Minute), []byte{1, 2, 3, 4, 5, 6}, uint8(0), int64(time.Second), int64(0), int64(time.Hour), 2.0, 0.1, uint32(five))
	}
	f.Fuzz(func(t *testing.T, state, kind uint8, wait int64, counters []byte, strategy uint8, base, age, deadline int64, factor, jitter float64, limits uint32) {
		policy := anyPolicy(strategy, base, 0, wait, deadline, factor, jitter, limits)
		if policy.Validate() != nil {
			return
		}
		c := make([]byte, 12)
		copy(c, counters)
		number := func(i int) int { return int(binary.BigEndian.Uint16(c[2*i:])) }
		task := holdfast.Task{
			ID: holdfast.TaskID(1 + number(0)), State: holdfast.States()[int(state)%6], Attempt: 1 + number(1), CreatedAt: now.Add(-time.Duration(age)),
			MaxAttempts: number(2), Failures: number(3), Crashes: number(4), Deferrals: number(5),
		}
		if task.State == holdfast.Running {
			task.Worker = 9
		}
		cause := anyCause(kind, wait)
		if move, err := holdfast.Settle(task, cause, now, policy); err != nil {
			if !errors.Is(err, holdfast.ErrConflict) || !reflect.DeepEqual(move, holdfast.Transition{}) || !strings.Contains(err.Error(), "cannot") {
				t.Fatalf("%+v: %+v, %v", task, move, err)
			}
			return
		}
		move := settle(t, task, cause, now, policy)
		row := holdfast.Moves()[move.Event]
		if move.To != row.To || !reflect.DeepEqual(move.From, row.From) || !slices.Contains(move.From, task.State) ||
			move.Task != task.ID || move.Attempt != task.Attempt || move.Worker != task.Worker {
			t.Fatalf("%+v of %+v is not in the table", move, task)
		}
		limit := task.MaxAttempts
		if limit == 0 {
			limit = policy.MaxAttempts
		}
		over := move.Event == holdfast.EventRetry && move.Failures >= limit ||
			move.Event == holdfast.EventCrash && move.Crashes >= policy.MaxCrashes ||
			move.Event == holdfast.EventDefer && move.Deferrals > policy.MaxDeferrals
		if over || move.Wait > century || len(move.Report.Error) > holdfast.MaxErrorLength {
			t.Fatalf("the transition exceeds a limit: %+v of %+v with %+v", move, task, policy)
		}
	})
}
