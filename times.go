package holdfast

import (
	"fmt"
	"time"
)

// MaxDuration is the longest duration that a person or a program can give: ten years of 366 days. A sum of a valid time
// and some such durations does not overflow.
const MaxDuration = 10 * 366 * 24 * time.Hour

// The years of the times that a person or a program can give. RFC 3339 has no later ones.
const firstYear, lastYear = 1970, 9999

// CheckTime returns an [ErrInvalid] that names the field, unless the time is in the years from 1970 to 9999 in UTC. The
// zero time is always valid. It is safe for concurrent use.
func CheckTime(field string, t time.Time) error {
	if year := t.UTC().Year(); !t.IsZero() && (year < firstYear || year > lastYear) {
		return fmt.Errorf("%w: %s %s must be in the years from %d to %d", ErrInvalid, field, t.UTC().Format(time.RFC3339), firstYear, lastYear)
	}
	return nil
}

// CheckDuration returns an [ErrInvalid] that names the field, unless the duration is between 0 and [MaxDuration]. It is
// safe for concurrent use.
func CheckDuration(field string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%w: %s %s is negative", ErrInvalid, field, d)
	}
	if d > MaxDuration {
		return fmt.Errorf("%w: %s %s is longer than ten years (%s)", ErrInvalid, field, d, MaxDuration)
	}
	return nil
}
