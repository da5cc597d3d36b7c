package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// Limits restricts how many tasks start in a given time, and how many run at the same time, over all processes.
//
// A limit is a gate of the kind [GateLimit]. It concerns the tasks that its [Scope] selects. Such a task needs a permit
// of the limit before a worker can claim it:
//
//   - Work.Claim answers Blocked for a task without a permit, and Tickets.Block then blocks the task at the limit.
//   - Gates.ReleaseBlocked gives permits to blocked tasks, in the order in which they were blocked, and makes them due.
//   - A permit belongs to one attempt. It becomes free when the attempt ends, for any reason.
//   - A queue gives no more permits than its live workers have executors, and tasks that end soon; a topic no more than
//     it may have slots. See package slots.
//
// If several limits concern a task, it gets the permits of all of them, or none.
type Limits interface {
	// SetLimit sets a limit, or changes only the fields that c sets of the limit with the same scope. So two callers
	// that change different fields at the same time both succeed. SetLimit adds an audit entry. It returns ErrInvalid
	// if the change is not valid, or if the limit would have neither a rate nor a concurrency. It returns the error of
	// c.Check.
	//
	// When SetLimit returns, no claim takes a task of the scope without a permit. Attempts that already run need none,
	// and a lower limit ends no attempt. SetLimit then makes the keys and targets of the limit due for a check, in short
	// transactions. If one of these fails, SetLimit returns its error, although the limit is set; a further call with the
	// same change checks the rest.
	SetLimit(ctx context.Context, by Actor, c LimitChange) (Changed[Limit], error)
	// UnsetLimit removes the limit with a scope, and adds an audit entry. The blocked tasks become due in small steps.
	// It returns ErrNotFound if no limit has the scope.
	UnsetLimit(ctx context.Context, by Actor, s Scope) (Limit, error)
	// UnsetLimitByID is UnsetLimit for the limit with an id. check, if not nil, gets the limit in the transaction that
	// removes it. If check returns an error, nothing changes, and UnsetLimitByID returns that error. It returns
	// ErrNotFound if no limit has the id.
	UnsetLimitByID(ctx context.Context, by Actor, id ID, check func(Limit) error) (Limit, error)
	// Limits returns the limits and their present use, in the order in which they were first set.
	Limits(ctx context.Context) ([]LimitUse, error)
	// LimitsOf returns the limits and breakers that concern a ready task and from which it has no permit. The result is
	// empty for other tasks.
	LimitsOf(ctx context.Context, task holdfast.TaskID) ([]TaskLimit, error)
}

// Per selects which tasks of a scope share a limit.
type Per string

// The values of Per.
const (
	PerScope  Per = ""       // all tasks of the scope share the limit
	PerKey    Per = "key"    // each key has a limit of its own; tasks without a key have none
	PerTarget Per = "target" // each target has a limit of its own; tasks without a target have none
)

// Scope selects the tasks of a limit. A task must match each field of the subject that is not empty.
type Scope struct {
	Subject
	Per Per `json:"per,omitempty"`
}

// String returns the scope as the audit log names it: "limit type http", "limit queue mail, key tenant-7",
// "limit type http per target", "limit per key".
func (s Scope) String() string {
	var fields []string
	for _, field := range []struct{ name, value string }{{"queue", s.Queue}, {"type", s.Type}, {"key", s.Key}, {"target", s.Target}} {
		if field.value != "" {
			fields = append(fields, field.name+" "+field.value)
		}
	}
	text := strings.TrimSpace("limit " + strings.Join(fields, ", "))
	if s.Per != PerScope {
		text += " per " + string(s.Per)
	}
	return text
}

// Validate returns ErrInvalid if the scope selects no task, or all tasks together.
func (s Scope) Validate() error {
	for _, part := range []Subject{{Queue: s.Queue}, {Type: s.Type}, {Key: s.Key}, {Target: s.Target}} {
		if part != (Subject{}) {
			if err := part.Validate(); err != nil {
				return err
			}
		}
	}
	switch {
	case s.Per != PerScope && s.Per != PerKey && s.Per != PerTarget:
		return fmt.Errorf("%w: a limit can be per key or per target, not per %q", holdfast.ErrInvalid, s.Per)
	case s.Per == PerKey && s.Key != "", s.Per == PerTarget && s.Target != "":
		return fmt.Errorf("%w: a limit per %s cannot name one %[2]s", holdfast.ErrInvalid, s.Per)
	case (s.Per == PerTarget || s.Target != "") && s.Type != "" && s.Type != "http":
		return fmt.Errorf("%w: only tasks of the type http have targets, not those of the type %s", holdfast.ErrInvalid, s.Type)
	case s == Scope{}:
		return fmt.Errorf("%w: a limit needs a queue, a type, a key or a target, or must be per key or per target", holdfast.ErrInvalid)
	}
	return nil
}

// Bucket returns the name of the bucket that counts a task, and whether the limit concerns the task. A limit per key or
// per target has a bucket for each key or target, with that name. Other limits have one bucket, with an empty name.
func (s Scope) Bucket(t *holdfast.Task) (name string, concerned bool) {
	if s.Subject != (Subject{}) && !s.Selects(t) {
		return "", false
	}
	switch s.Per {
	case PerKey:
		return t.Key, t.Key != ""
	case PerTarget:
		target := holdfast.TargetOf(t.Type, t.Payload)
		return target, target != ""
	}
	return "", true
}

// Limit is a limit. It has a rate, a concurrency, or both.
type Limit struct {
	ID          ID        `json:"id"`
	Scope                 // the tasks that it concerns
	Rate        Rate      `json:"rate,omitzero"`         // rate of starts; the zero value means no limit
	Concurrency int       `json:"concurrency,omitempty"` // maximum number of simultaneous attempts; 0 means no limit
	Actor                 // the person who last set it
	SetAt       time.Time `json:"set_at"`
}

// MaxConcurrency is the maximum concurrency of a limit.
const MaxConcurrency = 1_000_000

// Validate returns ErrInvalid if the scope is not valid, if the limit has neither a rate nor a concurrency, or if one
// of these is out of range.
func (l Limit) Validate() error {
	if err := l.Scope.Validate(); err != nil {
		return err
	}
	switch {
	case l.Rate == Rate{} && l.Concurrency == 0:
		return fmt.Errorf("%w: a limit needs a rate or a concurrency", holdfast.ErrInvalid)
	case l.Concurrency < 0 || l.Concurrency > MaxConcurrency:
		return fmt.Errorf("%w: the concurrency of a limit must be from 1 to %d, not %d", holdfast.ErrInvalid, MaxConcurrency, l.Concurrency)
	case l.Rate == Rate{}:
		return nil
	}
	return l.Rate.Validate()
}

// LimitChange changes the limit of a scope, or creates one. The zero value of a field keeps the present value.
type LimitChange struct {
	Scope
	Rate        *Rate // nil keeps the rate; the zero value removes it
	Concurrency *int  // nil keeps the concurrency; 0 removes it
	// NoReason removes the reason of the limit. Otherwise the reason of the actor replaces it, unless the actor has
	// none.
	NoReason bool
	// Check, if not nil, gets the present limit, or nil, in the transaction that changes it. If Check returns an error,
	// nothing changes, and SetLimit returns that error.
	Check func(before *Limit) error
}

// Change returns the change that sets the rate and the concurrency of the limit's scope to those of the limit.
func (l Limit) Change() LimitChange {
	return LimitChange{Scope: l.Scope, Rate: &l.Rate, Concurrency: &l.Concurrency}
}

// Validate returns ErrInvalid if the scope is not valid, or if the rate or the concurrency is out of range.
func (c LimitChange) Validate() error {
	l := Limit{Scope: c.Scope, Concurrency: 1}
	if c.Rate != nil {
		l.Rate = *c.Rate
	}
	if c.Concurrency != nil && *c.Concurrency != 0 {
		l.Concurrency = *c.Concurrency
	}
	return l.Validate()
}

// Apply returns the scope, rate, concurrency and reason of the limit after the change. before is the present limit, or
// nil. It returns ErrInvalid if the limit would have neither a rate nor a concurrency.
func (c LimitChange) Apply(before *Limit, by Actor) (Limit, error) {
	after := Limit{Scope: c.Scope}
	if before != nil {
		after.Rate, after.Concurrency, after.Reason = before.Rate, before.Concurrency, before.Reason
	}
	if c.Rate != nil {
		after.Rate = *c.Rate
	}
	if c.Concurrency != nil {
		after.Concurrency = *c.Concurrency
	}
	reason := reasonAfter(after.Reason, by.Reason, c.NoReason)
	after.Actor = Actor{Name: by.Name, Surface: by.Surface, Reason: reason}
	err := after.Validate()
	if err != nil && before != nil && after.Rate == (Rate{}) && after.Concurrency == 0 {
		return after, holdfast.WithHint(fmt.Errorf("%w: the %s would have neither a rate nor a concurrency", holdfast.ErrInvalid, c.Scope),
			holdfast.Hint{Kind: holdfast.HintUnsetLimit})
	}
	return after, err
}

// Version returns the part of the limit that an audit entry stores.
func (l Limit) Version() json.RawMessage {
	document, err := json.Marshal(struct {
		Rate        Rate   `json:"rate,omitzero"`
		Concurrency int    `json:"concurrency,omitempty"`
		Reason      string `json:"reason,omitempty"`
	}{l.Rate, l.Concurrency, l.Reason})
	if err != nil { // impossible: the values always encode
		panic(err)
	}
	return document
}

// LimitUse is a limit and its present use, over all its buckets.
type LimitUse struct {
	Limit
	InUse   int `json:"in_use"`  // number of permits: attempts that run or may start
	Blocked int `json:"blocked"` // number of tasks that are blocked at the limit, at most MaxCountedBlocked
}

// TaskLimit is a limit or a breaker that a task waits for.
type TaskLimit struct {
	// Limit is the limit. For a breaker, Concurrency is the maximum number of simultaneous probes, Reason is the latest
	// fault, and SetAt is when it tripped.
	Limit
	Breaker *Breaker // nil for a limit
	Bucket  string   // see Scope.Bucket
	InUse   int      // number of permits in the bucket
	// Blocked is the number of tasks that are blocked in the bucket, at most MaxCountedBlocked. Ahead is the number of
	// these that get a permit before the task. If the task itself is not blocked in the bucket, all of them are ahead.
	Blocked, Ahead int
	// Reserved is the task for which the bucket keeps a permit, or will soon keep one, or 0. That task waits for
	// another limit, too. If only this permit is free, younger tasks do not get it.
	Reserved holdfast.TaskID
}

// Rate is a number of starts in a time. The starts are evenly spread over the time.
type Rate struct {
	Count int
	Per   time.Duration
}

// The range of rates.
const (
	maxRateCount  = 1_000_000
	maxRatePeriod = 24 * time.Hour
)

// Validate returns ErrInvalid unless the rate is between one start in 24 hours and 100,000 starts per second. Its time
// must be from one second to 24 hours, in whole seconds.
func (r Rate) Validate() error {
	switch {
	case r.Per < time.Second || r.Per > maxRatePeriod || r.Per%time.Second != 0:
		return fmt.Errorf("%w: the time of the rate %s must be from 1s to 24h, in whole seconds", holdfast.ErrInvalid, r)
	case r.Count < 1 || r.Count > maxRateCount || r.PerSecond() > 100_000:
		return fmt.Errorf("%w: the rate %s is not between 1 in 24 hours and 100,000 in a second", holdfast.ErrInvalid, r)
	}
	return nil
}

// Interval returns the time from one start to the next.
func (r Rate) Interval() time.Duration { return r.Per / time.Duration(r.Count) }

// PerSecond returns the number of starts per second.
func (r Rate) PerSecond() float64 { return float64(r.Count) / r.Per.Seconds() }

// rateUnits are the units in the text of a rate.
var rateUnits = []struct {
	name string
	time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// String returns the rate as ParseRate reads it: "100/s", "5/m", "10/90s".
func (r Rate) String() string {
	for _, unit := range rateUnits {
		if r.Per == unit.Duration {
			return fmt.Sprintf("%d/%s", r.Count, unit.name)
		}
	}
	return fmt.Sprintf("%d/%s", r.Count, r.Per)
}

// ParseRate parses a rate: a number, a slash, and one of s, m, h and d or a duration for time.ParseDuration. It returns
// ErrInvalid if the text is not a valid rate.
func ParseRate(text string) (Rate, error) {
	number, period, ok := strings.Cut(strings.TrimSpace(text), "/")
	count, err := strconv.Atoi(strings.TrimSpace(number))
	period = strings.TrimSpace(period)
	r := Rate{Count: count}
	for _, unit := range rateUnits {
		if period == unit.name {
			r.Per = unit.Duration
		}
	}
	if ok && err == nil && r.Per == 0 {
		r.Per, err = time.ParseDuration(period)
	}
	if !ok || err != nil {
		return Rate{}, fmt.Errorf("%w: %q is not a rate; write 100/s, 5000/m or 10/h", holdfast.ErrInvalid, text)
	}
	return r, r.Validate()
}

// MarshalText implements encoding.TextMarshaler. The text of the zero value is empty.
func (r Rate) MarshalText() ([]byte, error) {
	if r == (Rate{}) {
		return nil, nil
	}
	return []byte(r.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*r = Rate{}
		return nil
	}
	*r, err = ParseRate(string(text))
	return err
}
