package main

import (
	"fmt"
	"time"

	"github.com/holdfastq/holdfast/internal/search"
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
		if t, err = search.Time(at); err != nil {
			return 0, time.Time{}, fmt.Errorf("at %w", err)
		}
	}
	return d, t, nil
}
