package surface

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Source is the JSON form of a source or a backfill. The settings are those in effect, and Own names the members that
// the source sets itself.
type Source struct {
	Name        string         `json:"name"`
	Type        string         `json:"type,omitempty"`
	Every       *plan.Duration `json:"every,omitempty"`
	Overlap     plan.Duration  `json:"overlap"`
	Lag         plan.Duration  `json:"lag"`
	Start       string         `json:"start,omitempty" doc:"Where the first slice begins: a time, or a negative duration before the creation of the source."`
	InFlight    int            `json:"in_flight"`
	Rate        store.Rate     `json:"rate,omitzero"`
	Queue       string         `json:"queue,omitempty"`
	MaxAttempts int            `json:"max_attempts,omitempty" doc:"Missing: the setting of the type."`

	Timeout       *plan.Duration    `json:"timeout,omitempty" doc:"The maximum duration of one attempt; 0s means no maximum. Missing: the setting of the type."`
	RetryStrategy holdfast.Strategy `json:"retry_strategy,omitempty" enum:"exponential,linear,fixed" doc:"How the delay grows. Missing: the setting of the type."`
	RetryBase     *plan.Duration    `json:"retry_base,omitempty" doc:"The first delay after a failure. Missing: the setting of the type."`
	RetryMax      *plan.Duration    `json:"retry_max,omitempty" doc:"The longest delay after a failure; 0s means no limit. Missing: the setting of the type."`

	Note       string    `json:"note,omitempty"`
	BackfillOf string    `json:"backfill_of,omitempty" doc:"The source of which this backfill pulls slices again."`
	From       time.Time `json:"from,omitzero" doc:"Where a backfill begins."`
	To         time.Time `json:"to,omitzero" doc:"Where a backfill ends."`
	Declared   bool      `json:"declared,omitempty" doc:"A program has declared the source; when its declaration changes, it replaces the settings."`
	Own        []string  `json:"own" doc:"The members that the source sets itself. The other settings are those of the source default."`

	Next        time.Time `json:"next,omitzero" doc:"The begin of the next slice; missing in the source default."`
	DoneThrough time.Time `json:"done_through,omitzero" doc:"The time up to which every slice has ended without being dead."`
	Behind      int64     `json:"behind_seconds" doc:"The seconds from done_through to the latest time that may be pulled."`
	Late        bool      `json:"late,omitempty" doc:"The source is behind by more than three slices and more than a minute."`
	Open        int       `json:"open" doc:"How many slices have a task that is ready or runs."`
	Dead        int       `json:"dead" doc:"How many slices have a dead task."`
	Done        int64     `json:"done" doc:"How many slices have ended."`
	StepFailure
	Actor     string        `json:"actor" doc:"Who created the source."`
	Surface   store.Surface `json:"surface"`
	Reason    string        `json:"reason,omitempty"`
	CreatedAt time.Time     `json:"created_at"`
}

// SourceOf returns the JSON form of a source at the time now of the store.
func SourceOf(s app.Source, now time.Time) Source {
	e, p := s.Effective, s.Progress
	form := Source{
		Name: s.Name, Type: e.Type, Every: e.Every, Overlap: *e.Overlap, Lag: *e.Lag, InFlight: *e.InFlight, Rate: *e.Rate, Queue: e.Queue,
		MaxAttempts: *e.Attempts, Timeout: e.Timeout, RetryStrategy: e.RetryStrategy, RetryBase: e.RetryBase, RetryMax: e.RetryMax,
		Note: e.Note, BackfillOf: e.BackfillOf, From: e.From, To: e.To, Declared: e.Declared != "", Own: ownSettings(s.Spec),
		Next: p.Next, DoneThrough: p.DoneThrough, Behind: int64(s.Lag(now) / time.Second), Late: s.Late(now), Open: p.Open, Dead: p.Dead, Done: p.Done,
	}
	if text, err := e.Start.MarshalText(); err == nil && e.BackfillOf == "" {
		form.Start = string(text)
	}
	form.FailedSteps, form.Failure = s.Failing()
	by, at := s.Creator()
	form.Actor, form.Surface, form.Reason, form.CreatedAt = by.Name, by.Surface, by.Reason, at
	return form
}

// ownSettings returns the names of the settings that a source has itself.
func ownSettings(s plan.Source) []string {
	names := []string{}
	for _, setting := range []struct {
		name string
		own  bool
	}{
		{"type", s.Type != ""}, {"every", s.Every != nil}, {"overlap", s.Overlap != nil}, {"lag", s.Lag != nil}, {"start", s.Start != nil},
		{"in_flight", s.InFlight != nil}, {"rate", s.Rate != nil}, {"queue", s.Queue != ""}, {"max_attempts", s.Attempts != nil},
		{"timeout", s.Timeout != nil}, {"retry_strategy", s.RetryStrategy != ""}, {"retry_base", s.RetryBase != nil}, {"retry_max", s.RetryMax != nil},
	} {
		if setting.own {
			names = append(names, setting.name)
		}
	}
	return names
}

// GetSource returns the source or the backfill with a name, and what it was made from.
func GetSource(ctx context.Context, b *app.Backend, name string) (Source, app.Source, error) {
	s, err := b.Source(ctx, name)
	if err != nil {
		return Source{}, s, err
	}
	now, err := b.Store.Now(ctx)
	return SourceOf(s, now), s, err
}

// SourceQuery is a request for a page of sources and backfills.
type SourceQuery struct {
	Limit int    `query:"limit" flag:"N" default:"50" minimum:"1" maximum:"1000" most:"1000" doc:"At most so many sources."`
	After string `query:"after" flag:"NAME" doc:"Only greater names: the value next of the page before."`
}

// ListSources reads a page of sources in the order of their names, and the name after which the next page begins, which
// is nil on the last page.
func ListSources(ctx context.Context, b *app.Backend, r SourceQuery) ([]Listed[Source, app.Source], *string, error) {
	found, err := b.Sources(ctx, r.After, r.Limit+1)
	if err != nil {
		return nil, nil, err
	}
	now, err := b.Store.Now(ctx)
	page, next := listed(found, r.Limit, func(s app.Source) Source { return SourceOf(s, now) }, func(s app.Source) string { return s.Name })
	return page, next, err
}

// SourceSettings is the part of a request that has the settings of a source. A missing member keeps its value. If a
// member is null, the value of the source default is in effect.
type SourceSettings struct {
	Type        Optional[string] `json:"type,omitzero" flag:"TYPE" doc:"The type of the tasks, which selects the handler; null restores the default."`
	Every       Optional[string] `json:"every,omitzero" flag:"DURATION" doc:"The length of a slice, at least 1s; null restores the default."`
	Overlap     Optional[string] `json:"overlap,omitzero" flag:"DURATION" doc:"How much earlier than its slice a pull begins; null restores the default, or else 0s."`
	Lag         Optional[string] `json:"lag,omitzero" flag:"DURATION" doc:"How long after the end of a slice it is pulled; null restores the default, or else 0s."`
	Start       Optional[string] `json:"start,omitzero" flag:"TIME|-DURATION" doc:"Where the first slice begins: a time such as 2030-01-31, or -2160h for so long before the source is created; null restores the default, or else the creation."`
	InFlight    Optional[int]    `json:"in_flight,omitzero" flag:"N" minimum:"1" doc:"At most so many open slices; null restores the default, or else 1."`
	Rate        Optional[string] `json:"rate,omitzero" flag:"RATE" doc:"How many slices begin in a time, such as 10/m; null restores the default, or else removes the limit."`
	Queue       Optional[string] `json:"queue,omitzero" flag:"QUEUE" doc:"The queue of the tasks; null restores the default, or else the queue of the type."`
	MaxAttempts Optional[int]    `json:"max_attempts,omitzero" flag:"N" minimum:"1" doc:"A slice is dead after so many failed attempts; null restores the default, or else the limit of the type."`

	Timeout       Optional[string] `json:"timeout,omitzero" flag:"DURATION" doc:"The maximum duration of one attempt, and 0s for no maximum; null restores the default, or else the setting of the type."`
	RetryStrategy Optional[string] `json:"retry_strategy,omitzero" flag:"STRATEGY" doc:"How the delay grows from one failure to the next: exponential, linear or fixed; null restores the default, or else the setting of the type."`
	RetryBase     Optional[string] `json:"retry_base,omitzero" flag:"DURATION" doc:"The first delay after a failure; null restores the default, or else the setting of the type."`
	RetryMax      Optional[string] `json:"retry_max,omitzero" flag:"DURATION" doc:"The longest delay after a failure, and 0s for no limit; null restores the default, or else the setting of the type."`

	Note Optional[string] `json:"note,omitzero" flag:"TEXT" doc:"A text for people, of at most 1000 bytes; null removes it."`
}

// apply changes the settings of a source.
func (r SourceSettings) apply(s *plan.Source) error {
	for _, m := range []struct {
		text Optional[string]
		to   *string
	}{{r.Type, &s.Type}, {r.Queue, &s.Queue}, {r.Note, &s.Note}} {
		if m.text.Given {
			*m.to = m.text.Or("")
		}
	}
	if r.RetryStrategy.Given {
		s.RetryStrategy = holdfast.Strategy(r.RetryStrategy.Or(""))
	}
	for _, m := range []struct {
		name string
		n    Optional[int]
		to   **int
	}{{"in_flight", r.InFlight, &s.InFlight}, {"max_attempts", r.MaxAttempts, &s.Attempts}} {
		if n := m.n.Value; n != nil && *n < 1 {
			return fmt.Errorf("%w: %s %d must be at least 1", holdfast.ErrInvalid, m.name, *n)
		}
		if m.n.Given {
			*m.to = m.n.Value
		}
	}
	return cmp.Or(
		change("every", r.Every, &s.Every, planDuration), change("overlap", r.Overlap, &s.Overlap, planDuration),
		change("lag", r.Lag, &s.Lag, planDuration), change("start", r.Start, &s.Start, sourceStart),
		change("timeout", r.Timeout, &s.Timeout, planDuration), change("retry_base", r.RetryBase, &s.RetryBase, planDuration),
		change("retry_max", r.RetryMax, &s.RetryMax, planDuration),
		change("rate", r.Rate, &s.Rate, func(_, text string) (store.Rate, error) { return store.ParseRate(text) }))
}

// change sets a member from its text, if the text is given. It removes the member if the text is null.
func change[T any](name string, text Optional[string], to **T, parse func(name, text string) (T, error)) error {
	if !text.Given {
		return nil
	}
	*to = nil
	if text.Value == nil {
		return nil
	}
	value, err := parse(name, *text.Value)
	*to = &value
	return err
}

// sourceStart parses the start of a source.
func sourceStart(name, text string) (plan.Start, error) {
	if ago, err := time.ParseDuration(text); err == nil {
		return plan.Start{Ago: -ago}, nil
	}
	at, err := scheduleTime(name, &text, time.Local)
	if err != nil {
		err = fmt.Errorf("%w, or a negative duration like -2160h", err)
	}
	return plan.Start{At: at}, err
}

// SetSourceRequest is a request to create a source, or to change it.
type SetSourceRequest struct {
	SourceSettings
	Reason string `json:"reason,omitempty" flag:"TEXT" doc:"Why, for the audit log."`
}

// Check returns an error if the request is invalid, whatever the source has.
func (r SetSourceRequest) Check() error {
	var s plan.Source
	return cmp.Or(r.apply(&s), s.Validate(true))
}

// SourceSet is the answer to a request that creates or changes a source.
type SourceSet struct {
	Source
	Before   *Source  `json:"before,omitempty" doc:"The source before the change; missing if there was none."`
	Warnings []string `json:"warnings" doc:"Why the change may not do what the caller expects."`
}

// SetSource creates or changes a source. check, if it is not nil, may refuse that; before is nil if there is no source
// with the name.
func SetSource(
	ctx context.Context, b *app.Backend, by store.Actor, name string, r SetSourceRequest, check func(before *app.Source) error,
) (SourceSet, app.Source, error) {
	by.Reason = r.Reason
	checks := []func(*app.Source) error{func(before *app.Source) error {
		if before != nil && reflect.ValueOf(r.SourceSettings).IsZero() {
			return fmt.Errorf("%w: nothing to change; give at least one new value", holdfast.ErrInvalid)
		}
		return nil
	}}
	if check != nil {
		checks = append(checks, check)
	}
	before, after, err := b.SetSource(ctx, by, name, r.apply, checks...)
	if err != nil {
		return SourceSet{}, after, err
	}
	now, err := b.Store.Now(ctx)
	if err != nil {
		return SourceSet{}, after, err
	}
	set := SourceSet{Source: SourceOf(after, now), Warnings: []string{}}
	if before != nil {
		set.Before = new(SourceOf(*before, now))
		if r.Start.Given && name != plan.DefaultSource {
			set.Warnings = append(set.Warnings, fmt.Sprintf("a start counts only when a source is created; the next slice of %s still begins at %s",
				name, set.Next.Format(time.RFC3339)))
		}
	}
	if name == plan.DefaultSource {
		n, err := b.ReliantSources(ctx)
		if err != nil {
			return set, after, err
		}
		if n > 0 {
			set.Warnings = append(set.Warnings, fmt.Sprintf("the change concerns each source that does not have the setting itself; other sources: %d", n))
		}
	}
	return set, after, nil
}

// DeleteSource ends a source, and returns it with warnings.
func DeleteSource(ctx context.Context, b *app.Backend, by store.Actor, name string, checks ...func(*app.Source) error) (SourceSet, app.Source, error) {
	before, after, err := b.DeleteSource(ctx, by, name, checks...)
	if err != nil {
		return SourceSet{}, after, err
	}
	now, err := b.Store.Now(ctx)
	return SourceSet{Source: SourceOf(*before, now), Warnings: []string{}}, *before, err
}

// SourceBackfill is a request to pull a source again.
type SourceBackfill struct {
	From     string `json:"from" flag:"TIME" required:"true" doc:"Where the first slice begins: 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z; without a zone, local time."`
	To       string `json:"to" flag:"TIME" required:"true" doc:"Where the last slice ends."`
	InFlight *int   `json:"in_flight,omitempty" flag:"N" minimum:"1" doc:"At most so many open slices of the backfill; default the value of the source."`
	Reason   string `json:"reason,omitempty" flag:"TEXT" doc:"Why, for the audit log."`
}

// times returns the begin and the end of the range.
func (r SourceBackfill) times() (from, to time.Time, err error) {
	if from, err = scheduleTime("from", &r.From, time.Local); err != nil {
		return from, to, err
	}
	to, err = scheduleTime("to", &r.To, time.Local)
	return from, to, err
}

// Check returns an error if the request is invalid.
func (r SourceBackfill) Check() error {
	_, _, err := r.times()
	if err == nil && r.InFlight != nil && (*r.InFlight < 1 || *r.InFlight > plan.MaxInFlight) {
		err = fmt.Errorf("%w: in_flight %d must be between 1 and %d", holdfast.ErrInvalid, *r.InFlight, plan.MaxInFlight)
	}
	return err
}

// BackfillSource starts a backfill; see app.Backend.BackfillSource.
func BackfillSource(ctx context.Context, b *app.Backend, by store.Actor, name string, r SourceBackfill) (Source, app.Source, error) {
	by.Reason = r.Reason
	from, to, err := r.times()
	if err := cmp.Or(err, r.Check()); err != nil {
		return Source{}, app.Source{}, err
	}
	s, err := b.BackfillSource(ctx, by, name, from, to, *cmp.Or(r.InFlight, new(int)))
	if err != nil {
		return Source{}, s, err
	}
	now, err := b.Store.Now(ctx)
	return SourceOf(s, now), s, err
}

// Slice is the JSON form of a slice that is open or dead, without the overlap.
type Slice struct {
	Source string              `json:"source"`
	From   time.Time           `json:"from"`
	To     time.Time           `json:"to"`
	State  store.PlanItemState `json:"state" enum:"open,dead"`
	Task   holdfast.TaskID     `json:"task"`
}

// SliceQuery is a request for a page of the slices of a source.
type SliceQuery struct {
	Source string `query:"source" arg:"0" required:"true" doc:"The name of the source or the backfill."`
	State  string `query:"state" flag:"STATE" enum:"open,dead" doc:"Only slices in this state."`
	Limit  int    `query:"limit" flag:"N" default:"50" minimum:"1" maximum:"1000" most:"1000" doc:"At most so many slices."`
	After  string `query:"after" flag:"TIME" doc:"Only slices that begin later: the value next of the page before."`
}

// Check returns an error if the request is invalid.
func (r SliceQuery) Check() error {
	_, err := r.after()
	return err
}

// after returns the begin of the last slice of the previous page, or the zero time.
func (r SliceQuery) after() (time.Time, error) {
	if r.After == "" {
		return time.Time{}, nil
	}
	return scheduleTime("after", &r.After, time.Local)
}

// ListSlices reads a page of the slices of a source that are open or dead, the earliest first, and the begin of the
// last slice of the page, after which the next page begins. On the last page, next is nil.
func ListSlices(ctx context.Context, b *app.Backend, r SliceQuery) ([]Slice, *string, error) {
	after, err := r.after()
	if err != nil {
		return nil, nil, err
	}
	var found []app.Slice
	for _, state := range []store.PlanItemState{store.ItemOpen, store.ItemDead} {
		if r.State != "" && r.State != string(state) {
			continue
		}
		some, err := b.Slices(ctx, r.Source, state, after, r.Limit+1)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, some...)
	}
	slices.SortStableFunc(found, func(a, b app.Slice) int { return a.From.Compare(b.From) })
	found = slices.CompactFunc(found, func(a, b app.Slice) bool { return a.From.Equal(b.From) }) // it died between the reads
	page, next := pageOf(found, r.Limit, func(s app.Slice) string { return s.From.UTC().Format(time.RFC3339Nano) })
	return Each(page, func(s app.Slice) Slice { return Slice{r.Source, s.From, s.To, s.State, s.Task} }), next, nil
}
