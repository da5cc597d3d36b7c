package plan_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
)

// With a longer jitter, a task would be stored after the next moment, which then looks missed.
func TestJitterIsShorterThanTheTimeBetweenRuns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cron, zone string
		jitter     time.Duration
		valid      bool
	}{
		{"* * * * * *", "", time.Second, true},
		{"* * * * * *", "", 5 * time.Second, false},
		{"*/7 * * * *", "", 4 * time.Minute, true}, // from minute 56 to the next hour
		{"*/7 * * * *", "", 5 * time.Minute, false},
		{"0 */7 * * *", "", 3 * time.Hour, true}, // from 21:00 to midnight
		{"0 */7 * * *", "", 4 * time.Hour, false},
		{"30 2 * * *", "Europe/Berlin", 24 * time.Hour, true},
		{"0 9,10 1 1 *", "", time.Hour, true},
		{"0 9,10 1 1 *", "", 2 * time.Hour, false},
		{"0 0 29 2 *", "", 24 * time.Hour, true},
		{"@hourly", "", time.Hour, true},
		{"@hourly", "", time.Hour + time.Second, false},
	} {
		s := plan.Schedule{Cron: test.cron, Timezone: test.zone, Jitter: plan.Duration(test.jitter), Missed: plan.MissedOne, Task: plan.Task{Type: "a"}}
		if err := s.Validate(100); (err == nil) != test.valid || err != nil && !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s with a jitter of %s: %v", test.cron, test.jitter, err)
		}
	}
}

func TestAllowedFailuresAreWrittenInDecimals(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		"0": true, "10": true, "1%": true, "0.5%": true, "100%": true, "0%": true,
		"1e1%": false, "0x1p3%": false, "NaN%": false, "inf%": false, "+1%": false, "-1%": false, ".5%": false, "5.%": false, "100.1%": false, "1_0%": false,
		"": false, "%": false, "+1": false, "-1": false, "1e1": false, " 1": false,
	} {
		if _, err := plan.ParseAllowed(text); (err == nil) != valid {
			t.Errorf("%q: %v", text, err)
		}
	}
}
