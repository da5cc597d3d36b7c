package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/store"
)

func TestScheduleMetrics(t *testing.T) {
	t.Parallel()
	var err error
	registry := prometheus.NewRegistry()
	registry.MustRegister(newScheduleCollector(func(_ context.Context, kinds []store.PlanKind, within time.Duration, limit int) ([]store.Plan, error) {
		if !slices.Equal(kinds, []store.PlanKind{store.ScheduleKind}) || within != -time.Minute || limit != 1000 {
			t.Errorf("read at most %d plans of the kinds %q that are due in %s", limit, kinds, within)
		}
		return make([]store.Plan, 3), err
	}))
	if got, want := gauges(t, registry), []string{"holdfast_schedules_late 3"}; !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
	err = errors.New("the store does not answer")
	if got := gauges(t, registry); len(got) > 0 {
		t.Errorf("without a store: %q", got)
	}
}
