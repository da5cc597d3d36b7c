package main

import (
	"fmt"
	"time"
)

// parseDelayAndTime parses a delay and a time; an empty text gives a zero value. The error begins with the name of the
// invalid one, "delay" or "at".
func parseDelayAndTime(delay, at string) (d time.Duration, t time.Time, err error) {
	if delay != "" {
		if d, err = time.ParseDuration(delay); err != nil {
			return 0, time.Time{}, fmt.Errorf("delay %q is not a duration like 90s or 2h", delay)
		}
		if d < 0 {
			return 0, time.Time{}, fmt.Errorf("delay %s is negative", delay)
		}
	}
	if at != "" {
		if t, err = parseTime(at); err != nil {
			return 0, time.Time{}, fmt.Errorf("at %w", err)
		}
	}
	return d, t, nil
}

// parseTime parses a date, a date with a time of day, or an RFC 3339 time. Without a zone, the time is local.
func parseTime(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time like 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z", text)
}

// parsePast parses a time like parseTime, or a duration before now.
func parsePast(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return time.Time{}, fmt.Errorf("%s is negative", text)
		}
		return now.Add(-d), nil
	}
	at, err := parseTime(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w, or a duration like 2h", err)
	}
	return at, nil
}
