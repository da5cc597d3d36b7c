package plan

import (
	"cmp"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// DefaultSource is the name of the source that has the settings of all others. It has no slices of its own.
const DefaultSource = "default"

// Source has the settings of a source that is pulled in slices of time. A nil member has the value of DefaultSource, or
// else of standardSource.
type Source struct {
	Type     string      `json:"type,omitempty"`
	Every    *Duration   `json:"every,omitempty"`     // length of a slice, at least a second
	Overlap  *Duration   `json:"overlap,omitempty"`   // how much earlier than its slice a pull begins
	Lag      *Duration   `json:"lag,omitempty"`       // from the end of a slice until it is pulled
	Start    *Start      `json:"start,omitempty"`     // begin of the first slice; counts when the source is created
	InFlight *int        `json:"in_flight,omitempty"` // maximum number of open slices
	Rate     *store.Rate `json:"rate,omitempty"`      // how often a slice begins; nil or zero means no limit
	Queue    string      `json:"queue,omitempty"`
	Attempts *int        `json:"max_attempts,omitempty"`
	Note     string      `json:"note,omitempty"`
	SliceSettings

	// TypeQueue is the queue of the type when the source was stored. It counts if neither the source nor DefaultSource
	// has a queue.
	TypeQueue string `json:"type_queue,omitempty"`
	// Declared is the hash of the declaration if a program has declared the source. It is empty otherwise.
	Declared string `json:"declared,omitempty"`

	// BackfillOf is the name of the source of which a backfill pulls the slices from From to To.
	BackfillOf string    `json:"backfill_of,omitempty"`
	From       time.Time `json:"from,omitzero"`
	To         time.Time `json:"to,omitzero"`
}

// standardSource has the settings that neither a source nor DefaultSource has.
var standardSource = Source{
	Overlap: new(Duration(0)), Lag: new(Duration(0)), Start: &Start{}, InFlight: new(1), Rate: new(store.Rate), Attempts: new(0),
}

// Limits of sources.
const (
	MaxInFlight = 1000
	MaxSlice    = 366 * 24 * time.Hour // of Every, Overlap and Lag
)

// Start is the begin of the first slice: a time, or a duration before the creation of the source. The zero value is the
// time at which the source is created.
type Start struct {
	At  time.Time
	Ago time.Duration
}

// MarshalText implements encoding.TextMarshaler. The text is a time, or a negative duration such as -2160h0m0s.
func (s Start) MarshalText() ([]byte, error) {
	if !s.At.IsZero() {
		return s.At.MarshalText()
	}
	return []byte((-s.Ago).String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Start) UnmarshalText(text []byte) error {
	if d, err := time.ParseDuration(string(text)); err == nil {
		*s = Start{Ago: -d}
		return nil
	}
	*s = Start{}
	return s.At.UnmarshalText(text)
}

// Over returns the settings of s, with those of other where s has none.
func (s Source) Over(other Source) Source {
	if s.Type == "" {
		s.Type = other.Type
	}
	if s.Queue == "" {
		s.Queue = other.Queue
	}
	s.Every, s.Overlap, s.Lag = first(s.Every, other.Every), first(s.Overlap, other.Overlap), first(s.Lag, other.Lag)
	s.Start, s.InFlight, s.Rate, s.Attempts = first(s.Start, other.Start), first(s.InFlight, other.InFlight), first(s.Rate, other.Rate), first(s.Attempts, other.Attempts)
	s.SliceSettings = s.SliceSettings.Over(other.SliceSettings)
	return s
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// Effective returns the settings of a source with those of DefaultSource. defaults may be the zero value.
func (s Source) Effective(defaults Source) Source {
	e := s.Over(defaults).Over(standardSource)
	e.Queue = cmp.Or(e.Queue, s.TypeQueue)
	if s.BackfillOf != "" { // a copy of the settings of its source, even of those that were missing
		e.SliceSettings = s.SliceSettings
	}
	return e
}

// Validate returns an ErrInvalid that describes the first problem of the settings, or nil. partial allows that the type
// and the length of a slice are missing, as in DefaultSource.
func (s *Source) Validate(partial bool) error {
	switch {
	case s.Type == "" && !partial:
		return invalid("a source needs the type of its slices")
	case s.Type == holdfast.TypeHTTP:
		return invalid("the type http cannot pull slices, because its tasks deliver webhooks; use a type of your own")
	case s.Every == nil && !partial:
		return invalid("a source needs the length of its slices")
	case s.Every != nil && (time.Duration(*s.Every) < MinEvery || time.Duration(*s.Every) > MaxSlice):
		return invalid("a slice of %s must be between %s and %s long", time.Duration(*s.Every), MinEvery, MaxSlice)
	case s.Every != nil && *s.Every%Duration(time.Microsecond) != 0:
		return invalid("a slice of %s must be a whole number of microseconds long", time.Duration(*s.Every))
	case s.Overlap != nil && (*s.Overlap < 0 || time.Duration(*s.Overlap) > MaxSlice):
		return invalid("the overlap %s must be between 0 and %s", time.Duration(*s.Overlap), MaxSlice)
	case s.Lag != nil && (*s.Lag < 0 || time.Duration(*s.Lag) > MaxSlice):
		return invalid("the lag %s must be between 0 and %s", time.Duration(*s.Lag), MaxSlice)
	case s.Start != nil && s.Start.Ago > MaxDuration:
		return invalid("the start %s is more than ten years ago; give a time", -s.Start.Ago)
	case s.Start != nil && s.Start.Ago < 0:
		return invalid("the start %s is in the future; give a time, or a negative duration such as -24h", -s.Start.Ago)
	case s.InFlight != nil && (*s.InFlight < 1 || *s.InFlight > MaxInFlight):
		return invalid("%d slices in flight must be between 1 and %d", *s.InFlight, MaxInFlight)
	case s.Rate != nil && *s.Rate != (store.Rate{}) && s.Rate.Validate() != nil:
		return s.Rate.Validate()
	case s.Attempts != nil && *s.Attempts < 0:
		return invalid("max attempts %d must be at least 1, or 0 for the setting of the type", *s.Attempts)
	case len(s.Note) > maxNote:
		return invalid("the note has %d bytes, the limit is %d", len(s.Note), maxNote)
	}
	times := []error{s.SliceSettings.validate(partial), holdfast.CheckTime("the begin", s.From), holdfast.CheckTime("the end", s.To)}
	if s.Start != nil {
		times = append(times, holdfast.CheckTime("the start", s.Start.At))
	}
	if err := cmp.Or(times...); err != nil {
		return err
	}
	task := holdfast.NewTask{Type: s.Type, Queue: s.Queue}
	if s.Type == "" {
		task.Type = "any"
	}
	return task.Validate(holdfast.DefaultMaxPayload)
}

// SourceProgress is how far a source is.
type SourceProgress struct {
	Next time.Time `json:"next"` // the begin of the next slice
	// DoneThrough is the time up to which every slice has ended without being dead.
	DoneThrough time.Time `json:"done_through"`
	Open        int       `json:"open"` // slices whose tasks are not final
	Dead        int       `json:"dead"` // slices whose tasks are dead
	Done        int64     `json:"done"` // slices that have ended
	// RateAt is when the rate allows the next slice.
	RateAt time.Time `json:"rate_at,omitzero"`
}

// ReadSource returns the settings and the progress of a source.
func ReadSource(p store.Plan) (s Source, progress SourceProgress, err error) {
	if err := decode(p.Spec, &s); err != nil {
		return s, progress, err
	}
	return s, progress, decode(p.Progress, &progress)
}

// Behind returns how far a source with these effective settings is behind: the time from the end of the slices that are
// done to the latest time that may be pulled at the time now of the store.
func (s Source) Behind(p SourceProgress, now time.Time) time.Duration {
	until := now.Add(-time.Duration(*s.Lag))
	if s.BackfillOf != "" && s.To.Before(until) {
		until = s.To
	}
	return max(0, until.Sub(p.DoneThrough))
}

// A source is late if it is behind by more than lateSlices slices and by more than lateAfter.
const (
	lateSlices = 3
	lateAfter  = time.Minute
)

// Late reports whether a source with these effective settings needs a person, because it is behind by more than three
// slices and a minute. A backfill is never late: it is pulled as fast as its limits allow.
func (s Source) Late(p SourceProgress, now time.Time) bool {
	return s.BackfillOf == "" && s.Every != nil && s.Behind(p, now) > max(lateAfter, lateSlices*time.Duration(*s.Every))
}

// Hash returns a short text that differs between different declarations.
func (s Source) Hash() string {
	s.Declared = ""
	return hash(s)
}

// Slice is the payload of a slice: the source, and the interval to pull. From already includes the overlap.
type Slice struct {
	Source string    `json:"source"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
}

// SliceName returns the name of the item of the slice that begins at a time, and "" for the zero time.
func SliceName(from time.Time) string {
	if from.IsZero() {
		return ""
	}
	return from.UTC().Format(sliceTime)
}

// SliceOrigin returns the name of the source and the begin of the slice of a task from its unique key. ok is false if
// the key has another form. A program can store a task with such a key, too.
func SliceOrigin(unique string) (source string, from time.Time, ok bool) {
	rest, ok := strings.CutPrefix(unique, slicePrefix)
	if !ok {
		return "", time.Time{}, false
	}
	source, text, ok := strings.Cut(rest, "/")
	text, _, _ = strings.Cut(text, "/")
	from, err := time.Parse(sliceTime, text)
	return source, from, ok && err == nil && source != ""
}
