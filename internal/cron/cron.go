// Package cron computes the times of cron expressions.
//
// An expression has five fields: minute, hour, day of month, month and day of week. If it has six, the first one is the
// second. A field is a list of values, ranges such as 1-5, and * for all values; a step such as */15 or 10-40/10 takes
// every nth value. Months and days of the week also have names, and 7 is Sunday, like 0. A question mark means the same
// as *. Names such as @daily replace all fields. A field is open if it has an element * or */n. If neither the day of
// month nor the day of week is open, a day has to match one of them; otherwise it has to match both.
//
// When the clocks change, the hour field decides. If it is open, the schedule goes on in real time: it has times in
// both occurrences of a repeated hour, and none for an hour that does not exist. Otherwise, each moment of the wall
// clock gives one time. A due moment in a repeated hour gives its first occurrence. All moments in a gap together
// give the end of the gap.
//
// The package has its own parser because no library followed these rules when they were tried on every minute of ten
// years. For example, on the day of the gap in Berlin, github.com/netresearch/go-cron v0.9.1 runs 30 2 * * * at 03:30,
// not at 03:00, and runs 0 */2 * * * at 03:00. github.com/adhocore/gronx v1.20.4 skips that day for 30 2 * * *, and on
// the day of the repeated hour omits 02:00+02:00 for */15 * * * *. Used for UTC only, gronx is right, but it says
// neither which field is wrong nor that it accepts L, W, # and years, so its caller needs a parser anyway.
package cron

import (
	"math/bits"
	"time"
)

// horizon is how many years Next searches. The longest wait of an expression that matches at all is 40 years: for a 29
// February on one day of the week, around a year such as 2100.
const horizon = 40

// Expression is a parsed cron expression. It is immutable and safe for concurrent use. Two expressions are == if they
// match the same moments. The zero value matches nothing.
type Expression struct {
	second, minute, hour, day, month, weekday uint64 // bit n is set if the field matches n

	openHour  bool // the schedule goes on in real time when the clocks change
	eitherDay bool // a day has to match only one of the two day fields
}

// Next returns the first time of the expression that is strictly after the given time, in the zone. It returns the zero
// time if there is none within about 40 years: for the zero Expression, and if the clocks of the zone skip each match.
func (e Expression) Next(after time.Time, zone *time.Location) time.Time {
	from := after.UTC().Truncate(time.Second).Add(time.Second) // the first time to consider
	at := after.In(zone)                                       // in the period of the zone to search
	for limit := at.AddDate(horizon, 0, 0); !at.After(limit); {
		start, end := period(at)
		ahead := offset(at)
		wall := from.Add(ahead)
		if !e.openHour && !start.IsZero() {
			before := start.UTC().Add(offset(start.Add(-1))) // the wall clock, had it not changed at start
			if from.Equal(start) {
				if missed := e.match(before); !missed.IsZero() && missed.Before(wall) {
					return start.In(zone)
				}
			}
			if wall.Before(before) {
				wall = before // the repeated moments were in the previous period
			}
		}
		found := e.match(wall)
		if found.IsZero() {
			return time.Time{}
		}
		if found = found.Add(-ahead); end.IsZero() || found.Before(end) {
			return found.In(zone)
		}
		at, from = end, end.UTC()
	}
	return time.Time{}
}

// period returns the interval around t in which the clocks of its zone do not change. An end is zero if there is none.
//
// For years after the last change in the zone data, package time computes the period from a rule and ends it 365 days
// after the start of the year. On December 31 of a leap year this end is not after t, and a search from it would never
// end. The period continues until the year ends.
func period(t time.Time) (start, end time.Time) {
	start, end = t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		end = time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).In(t.Location())
	}
	return start, end
}

// offset returns by how much the wall clock at t, in the zone of t, is ahead of UTC.
func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// match returns the first moment at or after wall that matches the fields, or the zero time if there is none within 40
// years. It represents moments of a wall clock as times in UTC, because the clocks of UTC do not change.
func (e Expression) match(wall time.Time) time.Time {
	hour, minute, second := wall.Clock()
	day := time.Date(wall.Year(), wall.Month(), wall.Day(), 0, 0, 0, 0, time.UTC)
	for ; day.Year() <= wall.Year()+horizon; day = day.AddDate(0, 0, 1) {
		if !has(e.month, int(day.Month())) {
			day = time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC) // the last day of the month
		} else if e.matchDay(day) {
			if clock, ok := e.clock(hour, minute, second); ok {
				return day.Add(clock)
			}
		}
		hour, minute, second = 0, 0, 0
	}
	return time.Time{}
}

// matchDay reports whether the two day fields match.
func (e Expression) matchDay(day time.Time) bool {
	ofMonth, ofWeek := has(e.day, day.Day()), has(e.weekday, int(day.Weekday()))
	if e.eitherDay {
		return ofMonth || ofWeek
	}
	return ofMonth && ofWeek
}

// clock returns the first time of day that matches, at or after the given one, as the duration since midnight. It
// returns false if there is none on the same day.
func (e Expression) clock(hour, minute, second int) (time.Duration, bool) {
	laterHour, laterMinute, inMinute := first(e.hour, hour+1), first(e.minute, minute+1), first(e.second, second)
	switch {
	case has(e.hour, hour) && has(e.minute, minute) && inMinute != none:
		second = inMinute
	case has(e.hour, hour) && laterMinute != none:
		minute, second = laterMinute, first(e.second, 0)
	case laterHour != none:
		hour, minute, second = laterHour, first(e.minute, 0), first(e.second, 0)
	default:
		return 0, false
	}
	return time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second, true
}

// has reports whether bit n of the mask is set.
func has(mask uint64, n int) bool { return mask>>n&1 == 1 }

// none is the result of first if there is no such bit.
const none = 64

// first returns the lowest set bit of the mask that is n or higher.
func first(mask uint64, n int) int { return bits.TrailingZeros64(mask >> n << n) }
