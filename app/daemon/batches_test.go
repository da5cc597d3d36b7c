package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/store"
)

func TestBatchMetrics(t *testing.T) {
	t.Parallel()
	var err error
	registry := prometheus.NewRegistry()
	registry.MustRegister(newBatchCollector(func(_ context.Context, f store.PlanFilter) ([]store.Plan, error) {
		if f.Kind != store.BatchKind || f.Ended || f.Limit != 1000 {
			t.Errorf("read %+v", f)
		}
		return []store.Plan{{State: store.PlanRunning}, {State: store.PlanStopped}, {State: store.PlanRunning}}, err
	}))
	want := []string{`holdfast_batches paused 0`, `holdfast_batches running 2`, `holdfast_batches stopped 1`}
	if got := gauges(t, registry); !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
	err = errors.New("the store does not answer")
	if got := gauges(t, registry); len(got) > 0 {
		t.Errorf("without a store: %q", got)
	}
}
