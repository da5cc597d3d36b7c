package app_test

import (
	"testing"
	"time"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
)

func TestLagOfASource(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	lag := plan.Source{Lag: new(plan.Duration(time.Minute))}
	backfill := lag
	backfill.BackfillOf, backfill.To = "shop", now.Add(-10*time.Hour)
	for name, c := range map[string]struct {
		name      string
		effective plan.Source
		through   time.Time
		want      time.Duration
	}{
		"a source":               {"shop", lag, now.Add(-time.Hour), 59 * time.Minute},
		"within the lag":         {"shop", lag, now.Add(-time.Second), 0},
		"a backfill of the past": {"shop.b", backfill, now.Add(-11 * time.Hour), time.Hour},
		"the default":            {plan.DefaultSource, lag, time.Time{}, 0},
	} {
		s := app.Source{Effective: c.effective}
		s.Name, s.Progress.DoneThrough = c.name, c.through
		if got := s.Lag(now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
