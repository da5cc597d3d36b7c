package cron_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/cron"
)

const layout = "2006-01-02T15:04:05.999Z07:00"

func zoneOf(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := cron.Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func expression(t testing.TB, text string) cron.Expression {
	t.Helper()
	e, err := cron.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestNextTimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, zone, after, want string }{ // want has some times, one after the other
		{"* * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z 2026-01-01T00:02:00Z"},
		{"* * * * *", "", "2026-01-01T00:00:59.999Z", "2026-01-01T00:01:00Z"},
		{"* * * * * *", "", "2026-01-01T00:00:00.001Z", "2026-01-01T00:00:01Z 2026-01-01T00:00:02Z"},
		{"*/15 * * * *", "", "2026-12-31T23:50:00Z", "2027-01-01T00:00:00Z 2027-01-01T00:15:00Z"},
		{"5/20 * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z 2026-01-01T00:25:00Z 2026-01-01T00:45:00Z 2026-01-01T01:05:00Z"},
		{"5-5/20 * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z 2026-01-01T01:05:00Z"},
		{"10-40/15,59 3 * * *", "", "2026-01-01T03:10:00Z", "2026-01-01T03:25:00Z 2026-01-01T03:40:00Z 2026-01-01T03:59:00Z 2026-01-02T03:10:00Z"},
		{"20,40 30 2 * * *", "", "2026-01-01T02:30:20Z", "2026-01-01T02:30:40Z 2026-01-02T02:30:20Z"},
		{" 0\t9 * *  MON-fri ", "", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"},
		{"0 0 * * 7", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z 2026-01-11T00:00:00Z"},
		{"0 0 * * fri-sun", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-09T00:00:00Z"},
		{"0 0 * * sun-sun", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z 2026-01-11T00:00:00Z"},
		{"0 0 * * 1/3", "", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00Z 2026-01-08T00:00:00Z 2026-01-12T00:00:00Z"},
		{"0 0 13 * 5", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z 2026-01-09T00:00:00Z 2026-01-13T00:00:00Z 2026-01-16T00:00:00Z"},
		{"0 0 */10 * 5", "", "2026-01-01T00:00:00Z", "2026-05-01T00:00:00Z 2026-07-31T00:00:00Z 2026-08-21T00:00:00Z"},
		{"0 0 ? * 5", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z 2026-01-09T00:00:00Z"},
		{"0 0 31 * *", "", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z 2026-05-31T00:00:00Z"},
		{"0 12 1 Jan,jul ?", "", "2026-01-01T12:00:00Z", "2026-07-01T12:00:00Z 2027-01-01T12:00:00Z"},
		{"0 0 29 2 *", "", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 29 feb */7", "", "2072-02-28T00:00:00Z", "2088-02-29T00:00:00Z 2128-02-29T00:00:00Z"},
		{"@hourly", "", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z"},
		{"@daily", "", "2026-01-01T00:30:00Z", "2026-01-02T00:00:00Z"},
		{"@Midnight", "", "2026-01-01T00:30:00Z", "2026-01-02T00:00:00Z"},
		{"@weekly", "", "2026-01-01T00:30:00Z", "2026-01-04T00:00:00Z"},
		{"@monthly", "", "2026-01-01T00:30:00Z", "2026-02-01T00:00:00Z"},
		{"@yearly", "", "2026-01-01T00:30:00Z", "2027-01-01T00:00:00Z"},
		{"@annually", "", "2026-01-01T00:30:00Z", "2027-01-01T00:00:00Z"},

		// The zone of after does not matter.
		{"0 9 * * *", "Asia/Tokyo", "2026-01-01T23:30:00-05:00", "2026-01-03T09:00:00+09:00"},
		{"30 12 * * *", "Asia/Kathmandu", "2026-01-01T00:00:00Z", "2026-01-01T12:30:00+05:45"},

		// An hour is missing on 2026-03-29 in Berlin.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"*/10 2 * * *", "Europe/Berlin", "2026-03-28T02:50:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
		{"0 2,3 * * *", "Europe/Berlin", "2026-03-28T03:00:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
		{"15 2,3 * * *", "Europe/Berlin", "2026-03-28T03:15:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-29T03:15:00+02:00 2026-03-30T02:15:00+02:00"},
		{"0 */2 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-29T04:00:00+02:00"},
		{"30 * * * *", "Europe/Berlin", "2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"},
		{"15 30 2 * * *", "Europe/Berlin", "2026-03-28T02:30:15+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:15+02:00"},

		// An hour is repeated on 2026-10-25.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00", "2026-10-26T02:30:00+01:00"},
		{"30 0-23 * * *", "Europe/Berlin", "2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-25T03:30:00+01:00"},
		{"30 */1 * * *", "Europe/Berlin", "2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00 2026-10-25T03:30:00+01:00"},
		{"0 */2 * * *", "Europe/Berlin", "2026-10-25T00:00:00+02:00", "2026-10-25T02:00:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T04:00:00+01:00"},

		// The clocks change by 30 minutes, by two hours, at midnight, by a day, and for good.
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T02:15:00+10:30", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T01:45:00+11:00", "2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
		{"0 1,2 * * *", "Antarctica/Troll", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-30T01:00:00+02:00"},
		{"@daily", "Africa/Cairo", "2026-04-23T12:00:00+02:00", "2026-04-24T01:00:00+03:00 2026-04-25T00:00:00+03:00"},
		{"0 6,18 * * *", "Pacific/Apia", "2011-12-29T18:00:00-10:00", "2011-12-31T00:00:00+14:00 2011-12-31T06:00:00+14:00"},
		{"0 */6 * * *", "Pacific/Apia", "2011-12-29T18:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"30 0 28 3 *", "Asia/Pyongyang", "2018-05-04T12:00:00+08:30", "2019-03-28T00:30:00+09:00"},
		{"45 23 * * *", "Asia/Pyongyang", "2018-05-04T12:00:00+08:30", "2018-05-05T00:00:00+09:00 2018-05-05T23:45:00+09:00"},

		// After the last change in the zone data, a rule applies. Leap years have one day more.
		{"@yearly", "Europe/Berlin", "2088-03-01T00:00:00+01:00", "2089-01-01T00:00:00+01:00 2090-01-01T00:00:00+01:00"},
		{"30 2 31 12 *", "Europe/Berlin", "2088-03-01T00:00:00+01:00", "2088-12-31T02:30:00+01:00 2089-12-31T02:30:00+01:00"},
		{"0 */12 * * *", "America/New_York", "2040-12-30T12:00:00-05:00", "2040-12-31T00:00:00-05:00 2040-12-31T12:00:00-05:00 2041-01-01T00:00:00-05:00"},
	} {
		zone := zoneOf(t, c.zone)
		next, err := time.Parse(layout, c.after)
		if err != nil {
			t.Fatal(err)
		}
		e := expression(t, c.text)
		for want := range strings.FieldsSeq(c.want) {
			after := next
			next = e.Next(after, zone)
			if got := next.Format(layout); got != want {
				t.Errorf("%s in %s after %s is %s, not %s", c.text, zone, after.Format(layout), got, want)
				break
			}
			if next.Location() != zone {
				t.Errorf("%s: the location is %s, not %s", c.text, next.Location(), zone)
			}
		}
	}
}

func TestTheZeroExpressionHasNoTimes(t *testing.T) {
	t.Parallel()
	if next := (cron.Expression{}).Next(time.Now(), time.UTC); !next.IsZero() {
		t.Error(next)
	}
}

func TestErrorsNameTheField(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"61 * * * *":            `the minute "61" is not in 0 to 59`,
		"60 0 * * * *":          `the second "60" is not in 0 to 59`,
		"0 24 * * *":            `the hour "24" is not in 0 to 23`,
		"0 0 0 * *":             `the day of month "0" is not in 1 to 31`,
		"0 0 L * *":             `the day of month "L" is not in 1 to 31`,
		"0 0 1 13 *":            `the month "13" is not in 1 to 12 or jan to dec`,
		"0 0 1 january *":       `the month "january" is not in 1 to 12 or jan to dec`,
		"0 0 * * 8":             `the day of week "8" is not in 0 to 7 or sun to sat`,
		"0 0 * * 5#2":           `the day of week "5#2" is not in 0 to 7 or sun to sat`,
		"jan * * * *":           `the minute "jan" is not in 0 to 59`,
		"+5 * * * *":            `the minute "+5" is not in 0 to 59`,
		"-5 * * * *":            `the minute "" is not in 0 to 59`,
		"1,,2 * * * *":          `the minute "" is not in 0 to 59`,
		"*5 * * * *":            `the minute "*5" is not in 0 to 59`,
		"99999999999 * * * *":   `the minute "99999999999" is not in 0 to 59`,
		"1-2-3 * * * *":         `the minute "2-3" is not in 0 to 59`,
		"0 22-2 * * *":          `the range "22-2" of the hour begins after its end; write 22-23,0-2`,
		"0 0 1 nov-feb *":       `the range "nov-feb" of the month begins after its end; write nov-12,1-feb`,
		"0 0 * * 7-2":           `the range "7-2" of the day of week begins after its end; write 7-7,0-2`,
		"*/0 * * * *":           `the step "0" of the minute is not in 1 to 59`,
		"*/90 * * * *":          `the step "90" of the minute is not in 1 to 59`,
		"0 */ * * *":            `the step "" of the hour is not in 1 to 23`,
		"0 */2/3 * * *":         `the step "2/3" of the hour is not in 1 to 23`,
		"":                      `0 fields are not 5 (minute, hour, day of month, month, day of week) or 6 (with the second first)`,
		"* * * *":               `4 fields are not 5`,
		"0 0 0 1 1 * 2099":      `7 fields are not 5`,
		"@every 5m":             `an interval is not a cron expression`,
		"@every":                `give the interval of the schedule instead`,
		"@reboot":               `"@reboot" is not one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually`,
		"@daily 5":              `"@daily 5" is not one of @hourly`,
		"TZ=UTC 0 0 * * *":      `the time zone is not a part of the expression`,
		"CRON_TZ=UTC 0 0 * * *": `set the time zone of the schedule`,
		"TZ=UTC @daily":         `set the time zone of the schedule`,
		"0 0 31 2 *":            `no date matches: none of the months has such a day`,
		"0 0 30,31 feb */2":     `no date matches`,
		"0 0 31 2,4,6,9,11 ?":   `no date matches`,
	} {
		_, err := cron.Parse(text)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "cron expression") {
			t.Errorf("%q: the error is %v, not %s", text, err, want)
			continue
		}
		if _, instead, ok := strings.Cut(err.Error(), "; write "); ok { // the advice can be followed
			ranged := strings.Split(strings.Split(err.Error(), `the range "`)[1], `"`)[0]
			if _, err := cron.Parse(strings.Replace(text, ranged, instead, 1)); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := cron.Parse(strings.Repeat("x", 10_000) + " * * * *"); err == nil || len(err.Error()) > 500 {
		t.Errorf("the error of a long text is %v", err)
	}
}

func TestSameMomentsAreTheSameExpression(t *testing.T) {
	t.Parallel()
	for a, b := range map[string]string{
		"@daily":           "0 0 0 ? * *",
		"0 0 * jan sun":    "00 00 * 1 7",
		"*/20 */1 * * 1-7": "0,20,40 * * * 0-6",
	} {
		if expression(t, a) != expression(t, b) {
			t.Errorf("%s and %s differ", a, b)
		}
	}
}

func TestZones(t *testing.T) {
	t.Parallel()
	if zone := zoneOf(t, ""); zone != time.UTC {
		t.Errorf("the empty name is %s", zone)
	}
	if zone := zoneOf(t, "America/New_York"); zone.String() != "America/New_York" {
		t.Errorf("the zone is %s", zone)
	}
	for _, name := range []string{"Local", "Berlin", "Mars/Olympus", "../UTC", "CET+1\n"} {
		_, err := cron.Zone(name)
		if !errors.Is(err, holdfast.ErrInvalid) || holdfast.HintOf(err).Kind != holdfast.HintAdvice || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: the error is %v, with the hint %v", name, err, holdfast.HintOf(err))
		}
	}
}
