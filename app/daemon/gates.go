package daemon

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/store"
)

// maxLimitLabels is the highest number of limits that have metrics of their own: those that were set first.
const maxLimitLabels = 100

// gateReader is the part of a store that gateCollector reads.
type gateReader interface {
	Gates(ctx context.Context) ([]store.Gate, error)
	Limits(ctx context.Context) ([]store.LimitUse, error)
}

// gateCollector publishes how many gates are closed, how many tasks wait at them, and the use of each limit. Every process
// publishes the same numbers, and reads them when its metrics are read.
type gateCollector struct {
	store          gateReader
	gates, blocked *prometheus.Desc // by kind
	// by limit
	limitBlocked, limitPermits, limitRate, limitConcurrency *prometheus.Desc
}

func newGateCollector(reader gateReader) *gateCollector {
	kind, limit := []string{"kind"}, []string{"limit"}
	return &gateCollector{
		store: reader,
		gates: prometheus.NewDesc("holdfast_gates",
			"Closed gates in the whole system, such as pauses and limits.", kind, nil),
		blocked: prometheus.NewDesc("holdfast_blocked_tasks",
			"Tasks that wait at closed gates, in the whole system. At most 100,000 are counted for each gate.", kind, nil),
		limitBlocked: prometheus.NewDesc("holdfast_limit_blocked_tasks",
			"Tasks that wait for a permit of the limit, in the whole system. At most 100,000 are counted.", limit, nil),
		limitPermits: prometheus.NewDesc("holdfast_limit_permits_in_use",
			"Permits of the limit in use, in the whole system, over all its keys or targets.", limit, nil),
		limitRate: prometheus.NewDesc("holdfast_limit_rate",
			"Starts per second that the limit allows, for each of its keys or targets.", limit, nil),
		limitConcurrency: prometheus.NewDesc("holdfast_limit_concurrency",
			"Attempts that the limit allows at the same time, for each of its keys or targets.", limit, nil),
	}
}

// Describe implements prometheus.Collector.
func (g *gateCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{g.gates, g.blocked, g.limitBlocked, g.limitPermits, g.limitRate, g.limitConcurrency} {
		to <- desc
	}
}

// Collect implements prometheus.Collector. While the store does not answer, it publishes nothing.
func (g *gateCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	pauses, err := g.store.Gates(ctx)
	if err != nil {
		return
	}
	limits, err := g.store.Limits(ctx)
	if err != nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, label string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label)
	}
	blocked := 0
	for _, gate := range pauses {
		blocked += gate.Blocked
	}
	gauge(g.gates, float64(len(pauses)), string(store.GatePause))
	gauge(g.blocked, float64(blocked), string(store.GatePause))
	blocked = 0
	for _, limit := range limits {
		blocked += limit.Blocked
	}
	gauge(g.gates, float64(len(limits)), string(store.GateLimit))
	gauge(g.blocked, float64(blocked), string(store.GateLimit))
	for _, limit := range limits[:min(len(limits), maxLimitLabels)] {
		name := strings.TrimPrefix(limit.Scope.String(), "limit ")
		gauge(g.limitBlocked, float64(limit.Blocked), name)
		gauge(g.limitPermits, float64(limit.InUse), name)
		if limit.Rate.Count > 0 {
			gauge(g.limitRate, limit.Rate.PerSecond(), name)
		}
		if limit.Concurrency > 0 {
			gauge(g.limitConcurrency, float64(limit.Concurrency), name)
		}
	}
}
