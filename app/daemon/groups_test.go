package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/store"
)

func TestGroupMetrics(t *testing.T) {
	t.Parallel()
	var err error
	registry := prometheus.NewRegistry()
	registry.MustRegister(newGroupCollector(func(context.Context) (store.GroupCounts, error) {
		return store.GroupCounts{Open: 3, Returned: 1}, err
	}))
	if got, want := gauges(t, registry), []string{"holdfast_dead_groups open 3", "holdfast_dead_groups returned 1"}; !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
	err = errors.New("the store does not answer")
	if got := gauges(t, registry); len(got) > 0 {
		t.Errorf("without a store: %q", got)
	}
}
