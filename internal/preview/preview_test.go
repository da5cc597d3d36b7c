package preview_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/preview"
)

func TestPreviews(t *testing.T) {
	t.Parallel()
	policy := func(change func(*holdfast.Policy)) holdfast.Policy {
		p := holdfast.DefaultPolicy()
		p.Strategy, p.Base, p.Jitter, p.MaxAttempts = holdfast.Fixed, 10*time.Second, 0, 3
		change(&p)
		return p
	}
	for _, c := range []struct {
		name   string
		policy holdfast.Policy
		want   []string
		end    string
	}{
		{"fixed", policy(func(*holdfast.Policy) {}), []string{"1 0s-0s 0s-0s retry", "2 10s-10s 10s-10s retry", "3 10s-10s 20s-20s dead"}, "attempt 3 of 3"},
		{"jitter", policy(func(p *holdfast.Policy) { p.Jitter = 0.5 }),
			[]string{"1 0s-0s 0s-0s retry", "2 5s-15s 5s-15s retry", "3 5s-15s 10s-30s dead"}, "attempt 3 of 3"},
		{"one attempt", policy(func(p *holdfast.Policy) { p.MaxAttempts = 1 }), []string{"1 0s-0s 0s-0s dead"}, "attempt 1 of 1"},
		{"at most once", policy(func(p *holdfast.Policy) { p.AtMostOnce = true }), []string{"1 0s-0s 0s-0s dead"}, "attempt 1, because the type runs at most once"},
		{"list", policy(func(p *holdfast.Policy) {
			p.Strategy, p.Delays = holdfast.List, []time.Duration{time.Second, time.Minute}
		}),
			[]string{"1 0s-0s 0s-0s retry", "2 1s-1s 1s-1s retry", "3 1m0s-1m0s 1m1s-1m1s dead"}, "attempt 3 of 3"},
		{"deadline", policy(func(p *holdfast.Policy) { p.Deadline = 15 * time.Second }),
			[]string{"1 0s-0s 0s-0s retry", "2 10s-10s 10s-10s dead"}, "the deadline of 15s: no attempt begins after it"},
		{"attempts or deadline", policy(func(p *holdfast.Policy) { p.Jitter, p.Deadline = 0.5, 25*time.Second }),
			[]string{"1 0s-0s 0s-0s retry", "2 5s-15s 5s-15s retry or dead", "3 5s-15s 10s-25s dead"}, "attempt 3 of 3, or the deadline of 25s"},
		{"cap", policy(func(p *holdfast.Policy) { p.Strategy, p.Factor, p.Max = holdfast.Exponential, 10, 20*time.Second }),
			[]string{"1 0s-0s 0s-0s retry", "2 10s-10s 10s-10s retry", "3 20s-20s 30s-30s dead"}, "attempt 3 of 3"},
		{"more than the limit", policy(func(p *holdfast.Policy) { p.MaxAttempts = 1_000_000_000 }),
			[]string{"1 0s-0s 0s-0s retry", "2 10s-10s 10s-10s retry", "3 10s-10s 20s-20s retry", "4 10s-10s 30s-30s retry"}, ""},
	} {
		computed, err := preview.Of(c.policy, 4)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range computed.Attempts {
			got = append(got, fmt.Sprintf("%d %s-%s %s-%s %s", a.Attempt, a.DelayMin, a.DelayMax, a.SinceMin, a.SinceMax, a.Result))
		}
		if !slices.Equal(got, c.want) || computed.End != c.end {
			t.Errorf("%s:\n%q, %q\nwant\n%q, %q", c.name, got, computed.End, c.want, c.end)
		}
	}
	if _, err := preview.Of(holdfast.Policy{}, 4); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("an invalid policy: %v", err)
	}
}

// TestTasksFollowThePreview settles tasks with their own random parts. Each attempt is within the range of the
// preview.
func TestTasksFollowThePreview(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2_000 {
		policy := holdfast.DefaultPolicy()
		policy.Strategy = []holdfast.Strategy{holdfast.Exponential, holdfast.Linear, holdfast.Fixed}[rng.IntN(3)]
		policy.Base, policy.Jitter, policy.MaxAttempts = time.Duration(1+rng.IntN(100))*time.Second, rng.Float64(), 1+rng.IntN(8)
		policy.Max, policy.Deadline = time.Duration(rng.IntN(500))*time.Second, time.Duration(rng.IntN(1000))*time.Second
		got, err := preview.Of(policy, 100)
		if err != nil {
			t.Fatal(err)
		}
		created := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		task := holdfast.Task{ID: holdfast.TaskID(rng.IntN(1_000_000)), State: holdfast.Running, Attempt: 1, Worker: 1, CreatedAt: created}
		now := created
		for i := 0; ; i++ {
			if i >= len(got.Attempts) {
				t.Fatalf("%+v: attempt %d is not in the preview %+v", policy, i+1, got)
			}
			a := got.Attempts[i]
			if since := now.Sub(created); since < a.SinceMin || since > a.SinceMax {
				t.Fatalf("%+v: attempt %d begins after %s, not within %s and %s", policy, i+1, since, a.SinceMin, a.SinceMax)
			}
			move, err := holdfast.Settle(task, holdfast.Returned(errors.New("failed")), now, policy)
			if err != nil {
				t.Fatal(err)
			}
			dead := move.To == holdfast.Dead
			if dead && a.Result == "retry" || !dead && a.Result == "dead" {
				t.Fatalf("%+v: attempt %d is %s, the preview says %s", policy, i+1, move.To, a.Result)
			}
			if dead {
				break
			}
			if next := got.Attempts[i+1]; move.Wait < next.DelayMin || move.Wait > next.DelayMax {
				t.Fatalf("%+v: the delay before attempt %d is %s, not within %s and %s", policy, i+2, move.Wait, next.DelayMin, next.DelayMax)
			}
			now, task.Attempt, task.Failures = now.Add(move.Wait), move.NextAttempt, move.Failures
		}
	}
}
