package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/store"
)

func TestGateMetrics(t *testing.T) {
	t.Parallel()
	var gates []store.Gate
	var err error
	registry := prometheus.NewRegistry()
	registry.MustRegister(newGateCollector(func(context.Context) ([]store.Gate, error) { return gates, err }))
	if got, want := gauges(t, registry), []string{"holdfast_blocked_tasks pause 0", "holdfast_gates pause 0"}; !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
	gates = []store.Gate{{Kind: store.GatePause, Blocked: 3}, {Kind: store.GatePause, Blocked: 4}}
	if got, want := gauges(t, registry), []string{"holdfast_blocked_tasks pause 7", "holdfast_gates pause 2"}; !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
	err = errors.New("the store does not answer")
	if got := gauges(t, registry); len(got) > 0 {
		t.Errorf("without a store, the metrics are %q", got)
	}
}
