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
		source app.Source
		want   time.Duration
	}{
		"a source":               {app.Source{Name: "shop", Effective: lag, Progress: plan.SourceProgress{DoneThrough: now.Add(-time.Hour)}}, 59 * time.Minute},
		"within the lag":         {app.Source{Name: "shop", Effective: lag, Progress: plan.SourceProgress{DoneThrough: now.Add(-time.Second)}}, 0},
		"a backfill of the past": {app.Source{Name: "shop.b", Effective: backfill, Progress: plan.SourceProgress{DoneThrough: now.Add(-11 * time.Hour)}}, time.Hour},
		"the default":            {app.Source{Name: plan.DefaultSource, Effective: lag}, 0},
	} {
		if got := c.source.Lag(now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
