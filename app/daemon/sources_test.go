package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
)

func TestSourceMetrics(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 30, 0, 0, time.UTC)
	source := func(name string, through time.Time, dead int, settings plan.Source) app.Source {
		s := app.Source{Effective: settings.Effective(plan.Source{})}
		s.Name, s.Spec, s.Progress = name, settings, plan.SourceProgress{DoneThrough: through, Dead: dead}
		return s
	}
	var err, clock error
	registry := prometheus.NewRegistry()
	registry.MustRegister(newSourceCollector(func(_ context.Context, after string, limit int) ([]app.Source, error) {
		if after != "" || limit != 1000 {
			t.Errorf("read at most %d sources after %q", limit, after)
		}
		return []app.Source{
			source("a", now.Add(-time.Hour), 2, plan.Source{Every: new(plan.Duration(time.Minute)), Lag: new(plan.Duration(time.Minute))}),
			source("a.backfill", now.Add(-time.Hour), 2, plan.Source{BackfillOf: "a"}),
			source("a.other", now.Add(-time.Hour), 0, plan.Source{BackfillOf: "a"}),
			source("b", now, 0, plan.Source{}),
			source(plan.DefaultSource, time.Time{}, 0, plan.Source{}),
		}, err
	}, func(context.Context) (time.Time, error) { return now, clock }))
	want := []string{
		"holdfast_slice_lag_seconds a 3540", "holdfast_slice_lag_seconds b 0", "holdfast_slices_dead a 2", "holdfast_slices_dead a.backfill 2", "holdfast_slices_dead b 0",
		"holdfast_source_late a 1", "holdfast_source_late b 0",
	}
	if got := gauges(t, registry); !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
	err = errors.New("the store does not answer")
	if got := gauges(t, registry); len(got) > 0 {
		t.Errorf("without a store: %q", got)
	}
	if err, clock = nil, err; len(gauges(t, registry)) > 0 {
		t.Error("there are metrics without the time of the store")
	}
}
