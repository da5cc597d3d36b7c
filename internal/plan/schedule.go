package plan

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/cron"
	"github.com/holdfastq/holdfast/store"
)

// Schedule stores a task at regular moments: those of a cron expression, or those after equal intervals.
type Schedule struct {
	Cron     string   `json:"cron,omitempty"` // see package cron; either Cron or Every is set
	Every    Duration `json:"every,omitzero"` // at least a second; in real time
	Timezone string   `json:"timezone,omitempty"`
	// Start is the earliest moment; the intervals begin there. End is the latest moment.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// RunAtStart also stores a task when the schedule is created.
	RunAtStart bool `json:"run_at_start,omitempty"`

	Missed  MissedRuns `json:"missed"`
	CatchUp Duration   `json:"catch_up"` // older moments are left out
	Overlap Overlap    `json:"overlap"`
	Jitter  Duration   `json:"jitter,omitzero"` // a task is stored up to so long after its moment
	// PauseAfter is the number of dead tasks in a row after which the schedule pauses. 0 means that it never does.
	PauseAfter int    `json:"pause_after,omitempty"`
	Note       string `json:"note,omitempty"`
	Task       Task   `json:"task"`

	// BackfillOf is the name of the schedule whose moments from Start to End a backfill runs. A backfill uses all of
	// them in order, and waits while Overlap does not allow another task. Again means that moments of which the store
	// has a task run again. AgainAt is when such a backfill was created. It distinguishes the tasks of several such
	// backfills.
	BackfillOf string    `json:"backfill_of,omitempty"`
	Again      bool      `json:"again,omitempty"`
	AgainAt    time.Time `json:"again_at,omitzero"`

	// Owner, Revision and Declared belong to a schedule that a program has declared. Declared is the hash of the
	// declaration; only another declaration replaces the edits of a person.
	Owner    string `json:"owner,omitempty"`
	Revision int    `json:"revision,omitempty"`
	Declared string `json:"declared,omitempty"`
}

// MissedRuns says which of several due moments run, if no janitor made the steps in time.
type MissedRuns string

// The values of MissedRuns. MissedOne is the default.
const (
	MissedSkip MissedRuns = "skip" // the last moment, if it was due less than a minute ago
	MissedOne  MissedRuns = "one"  // the last moment
	MissedAll  MissedRuns = "all"  // every moment
)

// onTime is the age up to which a due moment is not missed.
const onTime = time.Minute

// Overlap says what happens to a due moment while earlier tasks of the schedule are open. 1 means that the schedule
// leaves the moment out. OverlapQueue means that one moment waits. Any other number is the maximum of open tasks.
type Overlap int

// OverlapQueue lets one moment wait for the end of the open task.
const OverlapQueue Overlap = 0

// MaxOverlap is the maximum number of open tasks of a schedule.
const MaxOverlap = 1000

// ParseOverlap parses skip, queue, or a number from 1 to MaxOverlap.
func ParseOverlap(text string) (Overlap, error) {
	switch text {
	case "skip":
		return 1, nil
	case "queue":
		return OverlapQueue, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxOverlap {
		return 0, fmt.Errorf("%w: overlap %q must be skip, queue or a number from 1 to %d", holdfast.ErrInvalid, text, MaxOverlap)
	}
	return Overlap(n), nil
}

// String returns the text that ParseOverlap parses.
func (o Overlap) String() string {
	switch o {
	case 1:
		return "skip"
	case OverlapQueue:
		return "queue"
	}
	return strconv.Itoa(int(o))
}

// MarshalText implements encoding.TextMarshaler.
func (o Overlap) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Overlap) UnmarshalText(text []byte) (err error) {
	*o, err = ParseOverlap(string(text))
	return err
}

// limit returns the maximum number of open tasks.
func (o Overlap) limit() int { return max(1, int(o)) }

// Defaults and limits of schedules.
const (
	DefaultCatchUp = Duration(time.Hour)
	MinEvery       = time.Second
	MaxCatchUp     = 366 * 24 * time.Hour
	MaxJitter      = 24 * time.Hour
	maxNote        = 1000 // bytes
)

// Validate returns an ErrInvalid that describes the first problem of the schedule, or nil. maxPayload is in bytes.
func (s *Schedule) Validate(maxPayload int) error {
	switch {
	case (s.Cron == "") == (s.Every == 0):
		return invalid("give a cron expression or an interval, and not both")
	case s.Every != 0 && s.Timezone != "":
		return invalid("an interval has no timezone: it is real time")
	case s.Missed != MissedSkip && s.Missed != MissedOne && s.Missed != MissedAll:
		return invalid("missed %q must be skip, one or all", s.Missed)
	case s.PauseAfter < 0:
		return invalid("pause after %d dead tasks must be at least 1, or 0 for never", s.PauseAfter)
	case len(s.Note) > maxNote:
		return invalid("the note has %d bytes, the limit is %d", len(s.Note), maxNote)
	case !s.Start.IsZero() && !s.End.IsZero() && !s.Start.Before(s.End):
		return invalid("the start %s must be before the end %s", s.Start.Format(time.RFC3339), s.End.Format(time.RFC3339))
	}
	if err := s.checkTimes(); err != nil {
		return err
	}
	c, err := s.clock()
	if err != nil {
		return err
	}
	if shortest := c.shortest(); time.Duration(s.Jitter) > shortest {
		return invalid("the jitter %s is longer than the shortest time between two runs, %s", time.Duration(s.Jitter), shortest)
	}
	return s.Task.New().Validate(maxPayload)
}

// checkTimes returns an ErrInvalid if a time or a duration is out of range. A step checks that again, because another
// version may have stored the schedule.
func (s *Schedule) checkTimes() error {
	switch {
	case s.Every != 0 && (time.Duration(s.Every) < MinEvery || time.Duration(s.Every) > MaxDuration):
		return invalid("the interval %s must be between %s and ten years (%s)", time.Duration(s.Every), MinEvery, MaxDuration)
	case s.Every%Duration(time.Microsecond) != 0:
		return invalid("the interval %s must be a whole number of microseconds", time.Duration(s.Every))
	case s.CatchUp < 0 || time.Duration(s.CatchUp) > MaxCatchUp:
		return invalid("the catch-up window %s must be between 0 and %s", time.Duration(s.CatchUp), MaxCatchUp)
	case s.Overlap < 0 || s.Overlap > MaxOverlap:
		return invalid("overlap %d must be between 1 and %d", s.Overlap, MaxOverlap)
	case s.Jitter < 0 || time.Duration(s.Jitter) > MaxJitter:
		return invalid("the jitter %s must be between 0 and %s", time.Duration(s.Jitter), MaxJitter)
	case s.Jitter > 0 && s.Every > 0 && s.Jitter > s.Every:
		return invalid("the jitter %s is longer than the interval %s", time.Duration(s.Jitter), time.Duration(s.Every))
	}
	return cmp.Or(holdfast.CheckTime("the start", s.Start), holdfast.CheckTime("the end", s.End))
}

// clock returns the function that computes the moments. Intervals need a Start; see Begun.
func (s *Schedule) clock() (clock, error) {
	if s.Every > 0 { // in microseconds, because a difference of times does not fit into a Duration after 292 years
		origin, every := s.Start.UnixMicro(), time.Duration(s.Every).Microseconds()
		return clock{s, func(after time.Time) time.Time {
			since := after.UnixMicro() - origin
			n := since / every
			if since < 0 && since%every != 0 { // the division rounds towards 0
				n--
			}
			return time.UnixMicro(origin + (n+1)*every)
		}}, nil
	}
	expression, err := cron.Parse(s.Cron)
	if err != nil {
		return clock{}, err
	}
	zone, err := cron.Zone(s.Timezone)
	if err != nil {
		return clock{}, err
	}
	return clock{s, func(after time.Time) time.Time { return expression.Next(after, zone) }}, nil
}

// shortest returns the shortest time between two moments of a schedule with a jitter. Otherwise it returns a long time. A
// moment whose task is stored after the next moment would look missed. The first moments of a year in UTC have every
// step that a cron expression can make within a minute, an hour, a day and between two days, except at clock changes.
func (c clock) shortest() time.Duration {
	shortest := MaxJitter
	if c.s.Jitter == 0 || c.s.Every > 0 {
		return shortest
	}
	expression, err := cron.Parse(c.s.Cron)
	if err != nil {
		return shortest // clock has returned the error
	}
	const enough = 500
	last := expression.Next(time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC), time.UTC)
	for range enough {
		next := expression.Next(last, time.UTC)
		if last.IsZero() || next.IsZero() {
			break
		}
		shortest, last = min(shortest, next.Sub(last)), next
	}
	return shortest
}

// clock computes the moments of a schedule.
type clock struct {
	s    *Schedule
	next func(after time.Time) time.Time
}

// after returns the first moment after t, in UTC, or the zero time if there is none.
func (c clock) after(t time.Time) time.Time {
	if before := c.s.Start.Add(-time.Microsecond); !c.s.Start.IsZero() && t.Before(before) {
		t = before
	}
	m := c.next(t)
	if m.IsZero() || !c.s.End.IsZero() && m.After(c.s.End) || holdfast.CheckTime("", m) != nil {
		return time.Time{}
	}
	if !m.After(t) {
		panic(fmt.Sprintf("plan: the moment %s is not after %s", m, t)) // the loops over moments would not end
	}
	return m.UTC()
}

// Moments returns the first n moments after t, in the zone of the schedule.
func (s *Schedule) Moments(t time.Time, n int) ([]time.Time, error) {
	c, err := s.clock()
	if err != nil {
		return nil, err
	}
	zone, err := cron.Zone(s.Timezone)
	if err != nil {
		return nil, err
	}
	var moments []time.Time
	for m := c.after(t); !m.IsZero() && len(moments) < n; m = c.after(m) {
		moments = append(moments, m.In(zone))
	}
	return moments, nil
}

// delay returns the jitter of the moment. It depends only on the name and the moment, so that every process computes the
// same.
func (s *Schedule) delay(name string, moment time.Time) time.Duration {
	if s.Jitter <= 0 || moment.IsZero() {
		return 0
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", name, moment.UnixMicro())
	return time.Duration(h.Sum64() % uint64(s.Jitter)).Truncate(time.Microsecond)
}

// ScheduleProgress is how far a schedule is.
type ScheduleProgress struct {
	Next time.Time `json:"next,omitzero"` // the first moment that no step has used; zero if there are no more
	// Open has the tasks that were open at the last step, oldest first.
	Open []ScheduleRun `json:"open,omitempty"`
	// Waiting is the moment that waits for the end of the open task; see OverlapQueue.
	Waiting time.Time     `json:"waiting,omitzero"`
	Recent  []ScheduleRun `json:"recent,omitempty"` // the last runs, newest first
	Runs    int64         `json:"runs"`             // moments whose tasks were stored
	Skipped int64         `json:"skipped"`          // moments left out because earlier tasks were open
	Missed  int64         `json:"missed"`           // moments left out because they were missed
	Deaths  int           `json:"deaths,omitempty"` // the newest tasks that are dead, in a row
	// PausedBy says why the schedule paused itself.
	PausedBy string `json:"paused_by,omitempty"`
}

// ScheduleRun is a due moment with its task.
type ScheduleRun struct {
	At   time.Time       `json:"at"`
	Task holdfast.TaskID `json:"task"`
}

// maxRecent is the number of runs that a schedule remembers.
const maxRecent = 10

// ReadSchedule returns the schedule of a plan and its progress. The error is not an ErrInvalid if a newer build has
// stored the plan.
func ReadSchedule(p store.Plan) (s Schedule, progress ScheduleProgress, err error) {
	if err := decode(p.Spec, &s); err != nil {
		return s, progress, err
	}
	return s, progress, decode(p.Progress, &progress)
}

// schedulePrefix begins the unique keys of the tasks of schedules: schedule/NAME/MOMENT.
const schedulePrefix = string(store.ScheduleKind) + "/"

// ScheduleOrigin returns the name of the schedule and the moment of a task from its unique key. ok is false if the key
// has another form. A program can store a task with such a key, too.
func ScheduleOrigin(unique string) (name string, moment time.Time, ok bool) {
	rest, ok := strings.CutPrefix(unique, schedulePrefix)
	if !ok {
		return "", time.Time{}, false
	}
	name, text, ok := strings.Cut(rest, "/")
	text, _, _ = strings.Cut(text, "/")
	moment, err := time.Parse(uniqueTime, text)
	return name, moment.UTC(), ok && err == nil && CheckName(name) == nil
}

// Hash returns a short text that differs between different declarations. The owner, the revision and the anchor have no
// influence.
func (s Schedule) Hash() string {
	s.Declared, s.Owner, s.Revision = "", "", 0
	return hash(s)
}
