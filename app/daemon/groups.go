package daemon

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/store"
)

// groupCollector publishes how many groups of dead tasks people still have to look at. Every process publishes the same
// numbers, and reads them when its metrics are read.
type groupCollector struct {
	count  func(context.Context) (store.GroupCounts, error)
	groups *prometheus.Desc
}

func newGroupCollector(count func(context.Context) (store.GroupCounts, error)) *groupCollector {
	return &groupCollector{count: count, groups: prometheus.NewDesc("holdfast_dead_groups",
		"Groups of dead tasks that are not resolved, in the whole system.", []string{"state"}, nil)}
}

// Describe implements prometheus.Collector.
func (g *groupCollector) Describe(to chan<- *prometheus.Desc) { to <- g.groups }

// Collect implements prometheus.Collector. While the store does not answer, it publishes nothing.
func (g *groupCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	counts, err := g.count(ctx)
	if err != nil {
		return
	}
	to <- prometheus.MustNewConstMetric(g.groups, prometheus.GaugeValue, float64(counts.Open), string(store.GroupOpen))
	to <- prometheus.MustNewConstMetric(g.groups, prometheus.GaugeValue, float64(counts.Returned), string(store.GroupReturned))
}
