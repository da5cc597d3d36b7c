package plan

import (
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Plan returns a new plan for a source. now is the time of the store.
func (s Source) Plan(name string, defaults Source, now time.Time) store.Plan {
	p := store.Plan{Kind: store.SourceKind, Name: name, State: store.PlanRunning, Spec: encode(s)}
	if name == DefaultSource {
		return p
	}
	e := s.Effective(defaults)
	at := e.Start.At
	switch {
	case s.BackfillOf != "":
		at = s.From
	case at.IsZero():
		at = now.Add(-e.Start.Ago).Truncate(time.Duration(*e.Every))
	}
	at = at.UTC()
	p.NextAt, p.Progress = now, encode(SourceProgress{Next: at, DoneThrough: at})
	return p
}

// Backfill returns the settings and the name of a backfill that pulls a source again from one time to another. s are the
// effective settings of the source. It returns an ErrInvalid if the times are not in order.
func (s Source) Backfill(of string, from, to time.Time, inFlight int) (Source, string, error) {
	const form = "20060102T150405Z"
	switch {
	case of == DefaultSource || s.BackfillOf != "":
		return s, "", fmt.Errorf("%w: %s has no slices to pull again; name a source", holdfast.ErrInvalid, of)
	case !from.Before(to):
		return s, "", fmt.Errorf("%w: the begin %s must be before the end %s", holdfast.ErrInvalid, from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
	}
	s.BackfillOf, s.From, s.To, s.Start, s.Note, s.Declared = of, from.UTC().Truncate(time.Microsecond), to.UTC().Truncate(time.Microsecond), nil, "", ""
	if inFlight > 0 {
		s.InFlight = &inFlight
	}
	return s, fmt.Sprintf("%s.backfill-%s-%s", of, s.From.Format(form), s.To.Format(form)), s.Validate(false)
}
