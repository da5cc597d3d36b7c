package daemon

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/store"
)

// gateKinds are the kinds of gates that gateCollector publishes, also while none is closed.
var gateKinds = []store.GateKind{store.GatePause}

// gateCollector publishes how many gates are closed, and how many tasks wait at them. Every process publishes the same
// numbers, and reads them when its metrics are read.
type gateCollector struct {
	read           func(context.Context) ([]store.Gate, error)
	gates, blocked *prometheus.Desc
}

func newGateCollector(read func(context.Context) ([]store.Gate, error)) *gateCollector {
	return &gateCollector{
		read: read,
		gates: prometheus.NewDesc("holdfast_gates",
			"Closed gates in the whole system, such as pauses.", []string{"kind"}, nil),
		blocked: prometheus.NewDesc("holdfast_blocked_tasks",
			"Tasks that wait at closed gates, in the whole system. At most 100,000 are counted for each gate.", []string{"kind"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (g *gateCollector) Describe(to chan<- *prometheus.Desc) { to <- g.gates; to <- g.blocked }

// Collect implements prometheus.Collector. While the store does not answer, it publishes nothing.
func (g *gateCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	closed, err := g.read(ctx)
	if err != nil {
		return
	}
	for _, kind := range gateKinds {
		gates, blocked := 0, 0
		for _, gate := range closed {
			if gate.Kind == kind {
				gates, blocked = gates+1, blocked+gate.Blocked
			}
		}
		to <- prometheus.MustNewConstMetric(g.gates, prometheus.GaugeValue, float64(gates), string(kind))
		to <- prometheus.MustNewConstMetric(g.blocked, prometheus.GaugeValue, float64(blocked), string(kind))
	}
}
