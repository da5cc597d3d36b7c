package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Slice is the interval of time that one task of a source pulls: the records from From up to but not including To.
type Slice struct {
	Source string    `json:"source"`
	From   time.Time `json:"from"` // already includes the overlap
	To     time.Time `json:"to"`
}

// HandleSlices registers handle for a type whose tasks are slices of sources. See [Handle] for the options and errors.
// A slice runs at least once, and neighboring slices overlap, so handle must store a record that it has seen before
// only once. Slices of a source run in any order, up to InFlight at a time. A task that is no slice is dead at once.
func HandleSlices(c *Client, taskType string, handle func(ctx context.Context, task holdfast.Task, s Slice) error, opts ...TypeOption) error {
	if handle == nil {
		return Handle[Slice](c, taskType, nil, opts...)
	}
	return Handle(c, taskType, func(ctx context.Context, task holdfast.Task, s Slice) error {
		if s.Source == "" || !s.From.Before(s.To) {
			return holdfast.Permanent(fmt.Errorf("%w: the payload is no slice of a source", holdfast.ErrInvalid))
		}
		return handle(ctx, task, s)
	}, opts...)
}

// DefaultSource is the name of the source whose settings apply to all sources that do not have them. It has no slices.
const DefaultSource = plan.DefaultSource

// Source declares a system that is pulled in slices of time; see [Client.SetSource]. A field with the zero value has
// the setting of the source "default" when a slice is stored, or else the value in the comment.
type Source struct {
	Name        string        // letters, digits and . _ -
	Type        string        // of the tasks; see HandleSlices
	Every       time.Duration // length of a slice, at least a second
	Overlap     time.Duration // how much earlier than its slice a pull begins; 0
	Lag         time.Duration // from the end of a slice until it is pulled; 0
	Start       Start         // begin of the first slice; the time at which the source is created
	InFlight    int           // maximum number of slices that are ready or running; 1
	Rate        store.Rate    // how often a slice begins; no limit
	Queue       string        // of the tasks; that of their type when the source is stored
	MaxAttempts int           // of a slice; that of the type
	Timeout     time.Duration // of one attempt; that of the type
	Retry       SourceRetry   // the delays after failures; those of the type
	Note        string        // for the people who operate the source
}

// SourceRetry has the delays after the failures of a slice; see [holdfast.Policy]. A field with the zero value has the
// setting of the source "default" when a slice is stored, or else that of the type when the slice fails.
type SourceRetry struct {
	Strategy holdfast.Strategy // exponential, linear or fixed
	Base     time.Duration     // the first delay
	Max      time.Duration     // the longest delay before jitter
}

// Start is the begin of the first slice of a source. Make one with [Ago] or [From]. It only counts when the source is
// created.
type Start struct{ start *plan.Start }

// Ago begins the first slice so long before the source is created. The begin is rounded down to a multiple of the
// length of a slice.
func Ago(d time.Duration) Start { return Start{&plan.Start{Ago: d}} }

// From begins the first slice at t.
func From(t time.Time) Start { return Start{&plan.Start{At: t.UTC().Truncate(time.Microsecond)}} }

// SourceChange is what a declaration has changed.
type SourceChange string

// The values of SourceChange.
const (
	SourceCreated   SourceChange = "created"
	SourceChanged   SourceChange = "changed"   // the declaration has replaced an earlier one and the edits of persons
	SourceUnchanged SourceChange = "unchanged" // the declaration was stored already; edits of persons stay
)

// SourceResult is the result of a declaration, and how far the source is.
type SourceResult struct {
	Name        string
	Change      SourceChange
	Next        time.Time // begin of the next slice
	DoneThrough time.Time // all slices up to this time have ended, and none of them is dead
	Open, Dead  int       // slices
}

// SetSource stores a source, or changes the stored one with its name. A program calls it at each start. Any process
// with a janitor then stores the slices, each exactly once, whichever processes run: those up to now at once, as many
// as InFlight and Rate allow, and the next one when its time and the lag have passed. A slice that is dead does not
// stop the source.
//
// SetSource only writes if the declaration has changed since the last call. The edit of a person stays until then. A
// change applies to slices that are not stored yet, also of Timeout and Retry. The next call creates a deleted source
// again.
//
// SetSource returns ErrInvalid if the declaration is wrong, and ErrConflict if a person has created a source with the
// name.
func (c *Client) SetSource(ctx context.Context, s Source) (SourceResult, error) {
	b, err := c.openBackend()
	if err != nil {
		return SourceResult{}, err
	}
	spec := s.spec()
	spec.Declared = spec.Hash()
	change := SourceCreated
	_, stored, err := b.SetSource(ctx, by(""), s.Name, func(stored *plan.Source) error {
		*stored = spec
		return nil
	}, func(before *app.Source) error {
		switch {
		case before == nil:
			change = SourceCreated
			return nil
		case before.Spec.Declared == "":
			person, _ := before.Creator()
			return personsOwn("source", person)
		case before.Spec.Declared == spec.Declared:
			change = SourceUnchanged
			return errSettled
		}
		change = SourceChanged
		return nil
	})
	if err != nil && !errors.Is(err, errSettled) {
		return SourceResult{}, fmt.Errorf("source %.100s: %w", s.Name, err)
	}
	p := stored.Progress
	return SourceResult{Name: s.Name, Change: change, Next: p.Next, DoneThrough: p.DoneThrough, Open: p.Open, Dead: p.Dead}, nil
}

// spec returns the settings that the declaration has.
func (s Source) spec() plan.Source {
	return plan.Source{
		Type: s.Type, Queue: s.Queue, Note: s.Note, Start: s.Start.start,
		Every: set(plan.Duration(s.Every)), Overlap: set(plan.Duration(s.Overlap)), Lag: set(plan.Duration(s.Lag)),
		InFlight: set(s.InFlight), Rate: set(s.Rate), Attempts: set(s.MaxAttempts),
		SliceSettings: plan.SliceSettings{
			Timeout: set(plan.Duration(s.Timeout)), RetryStrategy: s.Retry.Strategy, RetryBase: set(plan.Duration(s.Retry.Base)),
			RetryMax: set(plan.Duration(s.Retry.Max)),
		},
	}
}

// set returns a pointer to a value, or nil for the zero value.
func set[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// BackfillSource pulls a source again from one time up to another, with the settings that the source has now. inFlight
// is the maximum number of its open slices; 0 means that of the source. BackfillSource returns the name of the
// backfill: a source of its own, which ends when all its slices have ended. A dead slice keeps it until a person has
// retried or archived the task. DeleteSource with this name stops the backfill.
//
// BackfillSource returns ErrNotFound if there is no such source, ErrInvalid if the times are not in order or in the
// future, and ErrConflict if the same backfill has not ended, for example because a slice is dead.
func (c *Client) BackfillSource(ctx context.Context, name string, from, until time.Time, inFlight int, reason string) (backfill string, err error) {
	b, err := c.openBackend()
	if err != nil {
		return "", err
	}
	s, err := b.BackfillSource(ctx, by(reason), name, from, until, inFlight)
	return s.Name, err
}

// DeleteSource deletes a source. Stored slices still run. The next call of SetSource that declares the source creates
// it again, and it begins at its start; slices of which the store has a task do not run again. DeleteSource returns
// ErrNotFound if there is no such source.
func (c *Client) DeleteSource(ctx context.Context, name, reason string) error {
	b, err := c.openBackend()
	if err != nil {
		return err
	}
	_, _, err = b.DeleteSource(ctx, by(reason), name)
	return err
}
