package holdfast_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
)

const century = 100 * 365 * 24 * time.Hour

func TestDelays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy holdfast.Policy
		want   []time.Duration // after 1, 2, 3… failures
	}{
		"exponential":     {holdfast.Policy{Strategy: holdfast.Exponential, Base: time.Second, Factor: 2}, seconds(1, 2, 4, 8, 16)},
		"with a cap":      {holdfast.Policy{Strategy: holdfast.Exponential, Base: time.Second, Factor: 3, Max: 5 * time.Second}, seconds(1, 3, 5, 5)},
		"factor one":      {holdfast.Policy{Strategy: holdfast.Exponential, Base: time.Second, Factor: 1}, seconds(1, 1, 1)},
		"linear":          {holdfast.Policy{Strategy: holdfast.Linear, Base: 2 * time.Second, Max: 5 * time.Second}, seconds(2, 4, 5, 5)},
		"fixed":           {holdfast.Policy{Strategy: holdfast.Fixed, Base: 3 * time.Second}, seconds(3, 3, 3)},
		"at once":         {holdfast.Policy{Strategy: holdfast.Fixed}, seconds(0, 0)},
		"list":            {holdfast.Policy{Strategy: holdfast.List, Delays: seconds(1, 0, 9)}, seconds(1, 0, 9, 9, 9)},
		"list with a cap": {holdfast.Policy{Strategy: holdfast.List, Delays: seconds(1, 10), Max: 4 * time.Second}, seconds(1, 4, 4)},
		"jitter of zero":  {holdfast.Policy{Strategy: holdfast.Fixed, Base: 8 * time.Second, Jitter: 1}, seconds(8, 8)},
	} {
		for i, want := range test.want {
			if got := test.policy.Delay(i+1, 0.5); got != want {
				t.Errorf("%s, failure %d: got %s, want %s", name, i+1, got, want)
			}
		}
		if got := test.policy.Delay(0, 0.5); got != test.want[0] {
			t.Errorf("%s without a failure: got %s, want %s", name, got, test.want[0])
		}
	}
}

func seconds(n ...int) []time.Duration {
	all := make([]time.Duration, len(n))
	for i, s := range n {
		all[i] = time.Duration(s) * time.Second
	}
	return all
}

func TestTheDefaultPolicyLastsAboutFourHours(t *testing.T) {
	t.Parallel()
	policy, total := holdfast.DefaultPolicy(), time.Duration(0)
	for n := 1; n < policy.MaxAttempts; n++ {
		total += policy.Delay(n, 0.5)
	}
	if total < 3*time.Hour || total > 5*time.Hour {
		t.Errorf("the delays add up to %s", total)
	}
}

func TestDelaysDoNotOverflow(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]holdfast.Policy{
		"exponential":  {Strategy: holdfast.Exponential, Base: time.Hour, Factor: 1e300},
		"with jitter":  {Strategy: holdfast.Exponential, Base: math.MaxInt64, Factor: math.MaxFloat64, Jitter: 1},
		"linear":       {Strategy: holdfast.Linear, Base: math.MaxInt64, Jitter: 1},
		"fixed":        {Strategy: holdfast.Fixed, Base: math.MaxInt64, Jitter: 1},
		"list":         {Strategy: holdfast.List, Delays: []time.Duration{math.MaxInt64}, Jitter: 1},
		"with any cap": {Strategy: holdfast.Exponential, Base: 1, Factor: 1e300, Max: math.MaxInt64, Jitter: 1},
		"plain":        {Strategy: holdfast.Exponential, Base: time.Hour, Factor: 2},
	} {
		for _, failures := range []int{1, 2, 100, 10_000, math.MaxInt32, math.MaxInt} {
			for _, dice := range []float64{0, 0.5, math.Nextafter(1, 0)} {
				if d := p.Delay(failures, dice); d < 0 || d > century {
					t.Errorf("%s, failure %d, dice %v: %d", name, failures, dice, d)
				}
			}
			if d := p.Delay(failures, 0.5); failures > 10_000 && d != century && name != "fixed" {
				t.Errorf("%s, failure %d: %s is less than the limit", name, failures, d)
			}
		}
	}
}

func TestJitterStaysInItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		failures, dice := rapid.IntRange(1, 1000).Draw(t, "failures"), rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "dice")
		got := p.Delay(failures, dice)
		plain := p
		plain.Jitter = 0
		middle := float64(plain.Delay(failures, dice))
		low, high := middle*(1-p.Jitter), min(middle*(1+p.Jitter), float64(century))
		const slack = 1e-9 // for rounding; middle is truncated by up to a nanosecond, which jitter may double
		if f := float64(got); got < 0 || f < low*(1-slack)-2 || f > high*(1+slack)+2 {
			t.Fatalf("%d failures, dice %v: %s is not from %v to %v", failures, dice, got, low, high)
		}
		if p.Strategy != holdfast.List && plain.Delay(failures+1, dice) < plain.Delay(failures, dice) {
			t.Fatalf("the delay shrinks after %d failures", failures)
		}
	})
}

func TestJitterDiffersBetweenTasks(t *testing.T) {
	t.Parallel()
	policy := holdfast.Policy{Strategy: holdfast.Fixed, Base: time.Hour, Jitter: 0.5, MaxAttempts: 100, MaxCrashes: 1}
	seen, early := make(map[time.Duration]bool), 0
	const tasks = 2000
	for id := range tasks {
		task := running()
		task.ID = holdfast.TaskID(id + 1)
		move, err := holdfast.Settle(task, holdfast.Returned(errBoom), now, policy)
		if err != nil {
			t.Fatal(err)
		}
		seen[move.Wait] = true
		if move.Wait < time.Hour {
			early++
		}
	}
	if len(seen) < tasks*99/100 || early < tasks*4/10 || early > tasks*6/10 {
		t.Errorf("%d tasks have %d different delays, and %d are shorter than the base", tasks, len(seen), early)
	}
}

func TestPoliciesOutOfRange(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*holdfast.Policy){
		`unknown strategy "hope"`:                                func(p *holdfast.Policy) { p.Strategy = "hope" },
		`unknown strategy ""`:                                    func(p *holdfast.Policy) { *p = holdfast.Policy{} },
		"factor 0.9 must be at least 1":                          func(p *holdfast.Policy) { p.Factor = 0.9 },
		"factor NaN must be at least 1":                          func(p *holdfast.Policy) { p.Factor = math.NaN() },
		"factor +Inf must be at least 1":                         func(p *holdfast.Policy) { p.Factor = math.Inf(1) },
		`the strategy "list" needs delays`:                       func(p *holdfast.Policy) { p.Strategy = holdfast.List },
		"the delay -1s is negative":                              func(p *holdfast.Policy) { p.Delays = []time.Duration{-time.Second} },
		"base 0s must be greater than zero":                      func(p *holdfast.Policy) { p.Base = 0 },
		"base -1s is negative":                                   func(p *holdfast.Policy) { p.Strategy, p.Base = holdfast.Fixed, -time.Second },
		"max -1s is negative":                                    func(p *holdfast.Policy) { p.Max = -time.Second },
		"jitter 1.1 must be between":                             func(p *holdfast.Policy) { p.Jitter = 1.1 },
		"jitter NaN must be between":                             func(p *holdfast.Policy) { p.Jitter = math.NaN() },
		"max attempts 0 must be at least":                        func(p *holdfast.Policy) { p.MaxAttempts = 0 },
		"max crashes 0 must be at least":                         func(p *holdfast.Policy) { p.MaxCrashes = 0 },
		"max deferrals -1 is negative":                           func(p *holdfast.Policy) { p.MaxDeferrals = -1 },
		"deadline 87840h0m0.000000001s is longer than ten years": func(p *holdfast.Policy) { p.Deadline = holdfast.MaxDuration + 1 },
		"deadline -1s is negative":                               func(p *holdfast.Policy) { p.Deadline = -time.Second },
	} {
		p := holdfast.DefaultPolicy()
		change(&p)
		if err := p.Validate(); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, p := range []holdfast.Policy{holdfast.DefaultPolicy(), {Strategy: holdfast.Fixed, MaxAttempts: 1, MaxCrashes: 1}} {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	var none holdfast.Settings
	if got := none.For("any"); got.Policy.MaxAttempts != holdfast.DefaultMaxAttempts || got.Queue != holdfast.DefaultQueue || got.Timeout != 0 {
		t.Errorf("got %+v", got)
	}
	fixed := holdfast.Policy{Strategy: holdfast.Fixed, MaxAttempts: 1, MaxCrashes: 1}
	s := holdfast.Settings{
		Defaults: holdfast.TypeSettings{Timeout: time.Second, Queue: "slow"},
		Types:    map[string]holdfast.TypeSettings{"a": {Policy: fixed}, "b": {Queue: "fast"}},
	}
	if got := s.For("a"); got.Policy.MaxAttempts != 1 || got.Queue != holdfast.DefaultQueue || got.Timeout != 0 {
		t.Errorf("a type's settings are complete, not merged: got %+v", got)
	}
	if got := s.For("b"); got.Policy.MaxAttempts != holdfast.DefaultMaxAttempts || got.Queue != "fast" {
		t.Errorf("got %+v", got)
	}
	if got := s.For("c"); got.Timeout != time.Second || got.Queue != "slow" {
		t.Errorf("got %+v", got)
	}
	for want, s := range map[string]holdfast.Settings{
		"":                          s,
		"defaults: invalid: the":    {Defaults: holdfast.TypeSettings{Timeout: -1}},
		"types.a: invalid: the":     {Types: map[string]holdfast.TypeSettings{"a": {Timeout: -1}}},
		"types.a: invalid: retry":   {Types: map[string]holdfast.TypeSettings{"a": {Policy: holdfast.Policy{Strategy: "x"}}}},
		"defaults: invalid: retry ": {Defaults: holdfast.TypeSettings{Policy: holdfast.Policy{Strategy: "x"}}},
	} {
		err := s.Validate()
		if want == "" && err != nil || want != "" && (!errors.Is(err, holdfast.ErrInvalid) || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
