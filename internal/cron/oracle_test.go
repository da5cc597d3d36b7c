package cron_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/cron"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// texts are the expressions that the oracle checks: fixed hours around the changes, hours in real time, days.
var texts = strings.Split(`0 0 * * *
30 1 * * *
45 1 * * *
0 2 * * *
15 2 * * *
30 2 * * *
59 2 * * *
0 3 * * *
30 3 * * *
0,30 2 * * *
0 2,3 * * *
30 1,2 * * *
*/10 2 * * *
* 2 * * *
15 1-3 * * *
45 0-4/2 * * *
0 0-23 * * *
30 0-23/2 * * *
30 */4,1-3 * * *
* * * * *
*/15 * * * *
7 * * * *
0,20,40 * * * *
0 */2 * * *
30 */2 * * *
15 */3 * * *
*/30 */6 * * *
30 2 * * SUN
30 2 * * 7
30 2 29 * *
30 2 * 3,10 0
0 9 * * mon-fri
0 9 1 * *
0 9 31 * *
0 0 29 2 *
0 9 13 * 5
0 9 1,15 * mon
0 9 */2 * 1
0 9 1-7 * */2
0 9 * * 1-5/2
15 14 1 jan,jul *
0 12 25 dec ?
5/20 10-12 * * *
0 2 1-7 4,10 0
0 30 2 * * *
*/20 30 2 * * *
15 */30 * * * *
59 59 1,23 * * *
50/3 * */2 * * *`, "\n")

// oracle decides by the definition of the language and of the rule for clock changes whether an expression has a time
// at an instant. It shares no code and no idea with Next: it is shown all instants in turn, and searches nothing.
type oracle struct {
	text   string
	fields [6][60]bool // second, minute, hour, day of month, month, day of week
	open   [6]bool

	expression cron.Expression
	next       time.Time // what Next returned for the last time
	times      int
}

func newOracle(t *testing.T, text string) *oracle {
	o := &oracle{text: text, expression: expression(t, text)}
	parts := strings.Fields(text)
	if len(parts) == 5 {
		parts = append([]string{"0"}, parts...)
	}
	for i, part := range parts {
		lowest, highest := [6]int{0, 0, 0, 1, 1, 0}[i], [6]int{59, 59, 23, 31, 12, 6}[i]
		for element := range strings.SplitSeq(part, ",") {
			values, stepText, stepped := strings.Cut(element, "/")
			from, to, ranged := strings.Cut(values, "-")
			low, high, step := lowest, highest, 1
			if stepped {
				step = valueOf(t, stepText)
			}
			switch {
			case values == "*" || values == "?":
				o.open[i] = true
			case ranged:
				low, high = valueOf(t, from), valueOf(t, to)
			case stepped:
				low = valueOf(t, from)
			default:
				low = valueOf(t, from)
				high = low
			}
			for n := low; n <= high; n += step {
				if i == 5 {
					o.fields[i][n%7] = true
				} else {
					o.fields[i][n] = true
				}
			}
		}
	}
	return o
}

func valueOf(t *testing.T, text string) int {
	t.Helper()
	const months, days = "jan1 feb2 mar3 apr4 may5 jun6 jul7 aug8 sep9 oct10 nov11 dec12", "sun0 mon1 tue2 wed3 thu4 fri5 sat6"
	for name := range strings.FieldsSeq(months + " " + days) {
		if strings.EqualFold(name[:3], text) {
			text = name[3:]
			break
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// moment is a due moment of a wall clock.
type moment struct{ second, minute, hour, day, month, weekday int }

func momentOf(wall time.Time) moment {
	hour, minute, second := wall.Clock()
	_, month, day := wall.Date()
	return moment{second, minute, hour, day, int(month), int(wall.Weekday())}
}

func (o *oracle) matches(m moment) bool {
	if !o.fields[0][m.second] || !o.fields[1][m.minute] || !o.fields[2][m.hour] || !o.fields[4][m.month] {
		return false
	}
	if o.open[3] || o.open[5] {
		return o.fields[3][m.day] && o.fields[5][m.weekday]
	}
	return o.fields[3][m.day] || o.fields[5][m.weekday]
}

// runs reports whether the expression has a time at an instant, given what the wall clock shows, which moments it has
// just skipped, and whether it has shown this one before.
func (o *oracle) runs(now moment, skipped []moment, repeated bool) bool {
	if o.open[2] {
		return o.matches(now)
	}
	if repeated {
		return false
	}
	run := o.matches(now)
	for _, m := range skipped {
		run = run || o.matches(m)
	}
	return run
}

// walk goes through all instants of an interval by a step, and compares the times of all expressions. The clocks must
// not change within three hours before from.
func walk(t *testing.T, zone *time.Location, from, to time.Time, step time.Duration, oracles []*oracle) {
	t.Helper()
	for _, o := range oracles {
		o.next = o.expression.Next(from.Add(-1), zone)
	}
	var latest time.Time // what the wall clock has shown, or skipped
	for now := from; now.Before(to); now = now.Add(step) {
		_, offset := now.In(zone).Zone()
		wall := now.UTC().Add(time.Duration(offset) * time.Second)
		var skipped []moment
		if !latest.IsZero() {
			for missed := latest.Add(step); missed.Before(wall); missed = missed.Add(step) {
				skipped = append(skipped, momentOf(missed))
			}
		}
		repeated := !wall.After(latest)
		if !repeated {
			latest = wall
		}
		shown := momentOf(wall)
		for _, o := range oracles {
			runs := o.runs(shown, skipped, repeated)
			if runs != o.next.Equal(now) {
				t.Fatalf("%s in %s: at %s, the oracle says %t, and Next says %s", o.text, zone, now.In(zone).Format(layout), runs, o.next.Format(layout))
			}
			if runs {
				o.next = o.expression.Next(now, zone)
				o.times++
			}
		}
	}
}

// changesOf returns the full hours that follow the changes of the clocks in an interval.
func changesOf(zone *time.Location, from, to time.Time) (changes []time.Time) {
	_, offset := from.In(zone).Zone()
	for now := from; now.Before(to); now = now.Add(time.Hour) {
		if _, changed := now.In(zone).Zone(); changed != offset {
			changes = append(changes, now)
			offset = changed
		}
	}
	return changes
}

// TestEveryInstant compares the times of all expressions with an oracle. It covers the days around all changes of the
// clocks in ten years, and 2040: a leap year after the last change in the zone data. If slow tests are enabled, it
// covers every minute of the ten years too.
func TestEveryInstant(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Antarctica/Troll", "Africa/Casablanca"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone := zoneOf(t, name)
			var minutes, seconds []*oracle // by the step that they need
			for _, text := range texts {
				o := newOracle(t, text)
				if len(strings.Fields(text)) == 5 {
					minutes = append(minutes, o)
				} else {
					seconds = append(seconds, o)
				}
			}
			first, last := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			if slow.All() {
				walk(t, zone, first, last, time.Minute, minutes)
			}
			walk(t, zone, first.AddDate(20, 0, 0), first.AddDate(21, 0, 1), time.Minute, minutes)
			walk(t, zone, first, first.AddDate(0, 0, slow.Pick(1, 30)), time.Second, seconds)
			changes := changesOf(zone, first, last)
			for n, change := range changes {
				walk(t, zone, change.AddDate(0, 0, -slow.Pick(1, 4)), change.AddDate(0, 0, slow.Pick(2, 4)), time.Minute, minutes)
				if n < slow.Pick(2, len(changes)) {
					walk(t, zone, change.Add(-9*time.Hour), change.Add(27*time.Hour), time.Second, seconds)
				}
			}
			for _, o := range append(minutes, seconds...) {
				if o.times == 0 {
					t.Errorf("%s has no time", o.text)
				}
			}
			t.Logf("%d changes of the clocks", len(changes))
		})
	}
}
