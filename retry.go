package holdfast

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Strategy is the rule by which delays grow from one failure to the next.
type Strategy string

// The strategies. n is the number of failures so far, from 1.
const (
	Exponential Strategy = "exponential" // Base × Factor^(n-1)
	Linear      Strategy = "linear"      // Base × n
	Fixed       Strategy = "fixed"       // Base
	List        Strategy = "list"        // Delays[n-1]; after the end of the list, its last element
)

// Keep selects the attempts that the store records. It always records a death, so that the death can be explained.
type Keep string

// The values of Keep. The empty value means KeepRetried.
const (
	KeepNone    Keep = "none"    // only the attempt after which the task is dead
	KeepRetried Keep = "retried" // each attempt that did not succeed, and a success that follows one
	KeepAll     Keep = "all"     // every attempt; a success at the first attempt then costs more
)

// AfterDeath decides what the death of an ordered task does to the later tasks of its key.
type AfterDeath string

// The values of AfterDeath. The empty value means AfterDeathBlock.
const (
	// AfterDeathBlock makes the later tasks wait. They wait until a person has retried the dead task and it has ended,
	// or until a person cancels, archives or deletes it.
	AfterDeathBlock AfterDeath = "block"
	AfterDeathSkip  AfterDeath = "skip" // the next task starts
	// AfterDeathDead makes the later tasks dead, too, without an attempt. The same happens to tasks that are enqueued
	// while AfterDeathBlock would make them wait.
	AfterDeathDead AfterDeath = "dead"
)

// Policy decides when a failed task is retried and when it is given up. It also decides what a death does to the later
// tasks of a key, and which attempts are recorded. Start with DefaultPolicy and change the fields that differ.
type Policy struct {
	Strategy Strategy
	Base     time.Duration   // greater than 0; with Fixed also 0, which means at once
	Factor   float64         // ≥ 1, for Exponential
	Max      time.Duration   // maximum delay before jitter; 0 means no maximum
	Jitter   float64         // 0 to 1: the delay varies by up to ± this fraction
	Delays   []time.Duration // for List: at least one, none negative

	MaxAttempts  int           // failures allowed, at least 1; applies to tasks without a number of their own
	MaxCrashes   int           // crashes allowed; ≥ 1
	MaxDeferrals int           // deferrals allowed; ≥ 0
	Deadline     time.Duration // time since the creation of the task; 0 means none

	// AtMostOnce means that no second attempt of a task starts before a person has retried the task. If an attempt has
	// started and does not succeed, the task is dead, whatever has ended the attempt. A worker that handles such a type
	// claims no tasks of any type ahead of its executors.
	AtMostOnce   bool
	AfterDeath   AfterDeath // for ordered tasks; empty means AfterDeathBlock
	KeepAttempts Keep       // empty means KeepRetried
}

// DefaultPolicy returns a policy with ten attempts over about four hours.
func DefaultPolicy() Policy {
	return Policy{
		Strategy: Exponential, Base: 10 * time.Second, Factor: 2.5, Max: time.Hour, Jitter: 0.1,
		MaxAttempts: DefaultMaxAttempts, MaxCrashes: 5, MaxDeferrals: 1000, AfterDeath: AfterDeathBlock, KeepAttempts: KeepRetried,
	}
}

// Validate returns an [ErrInvalid] that describes the first value that is out of range, or nil.
func (p Policy) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: retry policy: "+format, append([]any{ErrInvalid}, args...)...)
	}
	switch p.Strategy {
	case Exponential:
		if !(p.Factor >= 1) || math.IsInf(p.Factor, 0) {
			return bad("factor %v must be at least 1", p.Factor)
		}
	case List:
		if len(p.Delays) == 0 {
			return bad("the strategy %q needs delays", List)
		}
	case Linear, Fixed:
	default:
		return bad("unknown strategy %q; use %s, %s, %s or %s", p.Strategy, Exponential, Linear, Fixed, List)
	}
	errs := []error{CheckDuration("base", p.Base), CheckDuration("max", p.Max), CheckDuration("deadline", p.Deadline)}
	for _, d := range p.Delays {
		errs = append(errs, CheckDuration("the delay", d))
	}
	if err := cmp.Or(errs...); err != nil {
		return fmt.Errorf("retry policy: %w", err)
	}
	switch {
	case p.Base == 0 && (p.Strategy == Exponential || p.Strategy == Linear):
		return bad("base %s must be greater than zero", p.Base)
	case !(p.Jitter >= 0 && p.Jitter <= 1):
		return bad("jitter %v must be between 0 and 1", p.Jitter)
	case p.MaxAttempts < 1:
		return bad("max attempts %d must be at least 1", p.MaxAttempts)
	case p.MaxCrashes < 1:
		return bad("max crashes %d must be at least 1", p.MaxCrashes)
	case p.MaxDeferrals < 0:
		return bad("max deferrals %d is negative", p.MaxDeferrals)
	}
	switch p.AfterDeath {
	case "", AfterDeathBlock, AfterDeathSkip, AfterDeathDead:
	default:
		return bad("unknown value %q of after death; use %s, %s or %s", p.AfterDeath, AfterDeathBlock, AfterDeathSkip, AfterDeathDead)
	}
	switch p.KeepAttempts {
	case "", KeepNone, KeepRetried, KeepAll:
	default:
		return bad("unknown value %q of keep attempts; use %s, %s or %s", p.KeepAttempts, KeepNone, KeepRetried, KeepAll)
	}
	return nil
}

// Expired reports whether the next attempt of t must not begin at the time now, because the deadline passed while t
// waited for it. It returns false for a task that became due only after the deadline, for example because a person has
// retried it. Such a task gets one attempt.
func (p Policy) Expired(t Task, now time.Time) bool {
	deadline := t.CreatedAt.Add(p.Deadline)
	return p.Deadline > 0 && now.After(deadline) && !t.NextRunAt.After(deadline)
}

// StartedBefore reports whether no attempt of t may start, because an earlier one has started and the policy is
// AtMostOnce. The retry of a task by a person resets the counters that prove it.
func (p Policy) StartedBefore(t Task) bool {
	return p.AtMostOnce && t.Failures+t.Crashes+t.Deferrals > 0
}

// maxDelay keeps every sum of a time and a delay in the range of the stores.
const maxDelay = 100 * 365 * 24 * time.Hour

// Delay returns the delay before the next attempt after the given number of failures, which is at least 1. dice is the
// position of the delay in the range of the jitter, in [0, 1). The result is never negative.
func (p Policy) Delay(failures int, dice float64) time.Duration {
	n := max(failures, 1)
	var d float64
	switch p.Strategy {
	case Fixed:
		d = float64(p.Base)
	case Linear:
		d = float64(p.Base) * float64(n)
	case List:
		d = float64(p.Delays[min(n, len(p.Delays))-1])
	default:
		d = float64(p.Base) * math.Pow(p.Factor, float64(n-1))
	}
	if p.Max > 0 {
		d = min(d, float64(p.Max))
	}
	d = min(d, float64(maxDelay)) // before the jitter, because infinity times zero is NaN
	d *= 1 + p.Jitter*(2*dice-1)
	return time.Duration(max(0, min(d, float64(maxDelay))))
}

// TypeSettings are the settings for the tasks of one type.
type TypeSettings struct {
	Policy Policy
	// PolicyFor, if set, returns the policy for an attempt that ended with err. policy is the field Policy, so the
	// result can depend on the class of the error. PolicyFor must be safe for concurrent use, and runs on a goroutine
	// of its own. It cannot change AtMostOnce. A worker without this function uses Policy, and so does a janitor that
	// settles a crash.
	PolicyFor func(policy Policy, err error) Policy
	Timeout   time.Duration // maximum duration of one attempt; 0 means no maximum
	// AbandonAfter is how long a handler may ignore the end of its context. Then the worker gives up the attempt: it
	// settles the task, refuses the result of the handler, and replaces the executor. The handler continues beside
	// other tasks, because no program can end a goroutine. 0 means that the worker waits for the handler.
	AbandonAfter time.Duration
	Queue        string // for tasks without a queue; empty means DefaultQueue
	// Breaker has the rules for the targets of the tasks. Only tasks of TypeHTTP have targets.
	Breaker BreakerRules
}

// PolicyOf returns the policy for an attempt, and the cause with which to settle it. If the handler returned an error
// and PolicyFor is set, it returns the result of PolicyFor. If PolicyFor panics or calls runtime.Goexit, PolicyOf
// returns Policy, a cause with the stack of that call, and an error. If the result of PolicyFor is not valid, PolicyOf
// returns Policy, the given cause, and an error.
func (t *TypeSettings) PolicyOf(cause Cause) (Policy, Cause, error) {
	if t.PolicyFor == nil || cause.event != "" || cause.err == nil {
		return t.Policy, cause, nil
	}
	original := cause.err
	if c, ok := original.(*contained); ok {
		original = c.original
	}
	policy, policyFor := t.Policy, t.PolicyFor // a closure with t would move t to the heap, even after a success
	if failed := guard(func() { policy = policyFor(policy, original) }).printable(); failed != nil {
		return t.Policy, Returned(fmt.Errorf("%w; the policy function failed: %w", cause.err, failed)), failed
	}
	if err := policy.Validate(); err != nil {
		return t.Policy, cause, err
	}
	policy.AtMostOnce = t.Policy.AtMostOnce
	return policy, cause, nil
}

// SettingsSource returns the settings of task types. They may change between two calls. So call For for each decision,
// and neither keep nor change its result. For is fast and safe for concurrent use. Settings is a source that never changes.
type SettingsSource interface {
	For(taskType string) *TypeSettings
}

// Settings have two levels: defaults for all types, and complete settings for single types. The zero value means
// DefaultPolicy and no timeout.
type Settings struct {
	Defaults TypeSettings
	Types    map[string]TypeSettings
}

// For returns the settings of a type.
func (s Settings) For(taskType string) *TypeSettings {
	settings, ok := s.Types[taskType]
	if !ok {
		settings = s.Defaults
	}
	if settings.Policy.Strategy == "" {
		settings.Policy = DefaultPolicy()
	}
	if settings.Queue == "" {
		settings.Queue = DefaultQueue
	}
	if settings.Breaker == (BreakerRules{}) {
		settings.Breaker = DefaultBreakerRules()
	}
	return &settings
}

// Validate returns an [ErrInvalid] that describes a setting that is out of range, or nil.
func (s Settings) Validate() error {
	check := func(name string, t TypeSettings) error {
		if t.Policy.Strategy != "" {
			if err := t.Policy.Validate(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if err := cmp.Or(CheckDuration("the timeout", t.Timeout), CheckDuration("abandon after", t.AbandonAfter)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := t.Breaker.Validate(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if err := check("defaults", s.Defaults); err != nil {
		return err
	}
	for name, t := range s.Types {
		if err := check("types."+name, t); err != nil {
			return err
		}
	}
	return nil
}
