package daemon

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/store"
)

// maxCountedKeys is the highest number of blocked keys that the gauge shows. The store counts the waiting tasks of
// each.
const maxCountedKeys = 100

// maxLimitLabels is the highest number of limits that have metrics of their own: those that were set first.
const maxLimitLabels = 100

// gateReader is the part of a store that gateCollector reads.
type gateReader interface {
	Gates(ctx context.Context) ([]store.Gate, error)
	Limits(ctx context.Context) ([]store.LimitUse, error)
	OrderedKeys(ctx context.Context, onlyDead bool, limit int) ([]store.OrderedKey, error)
	TopicQueues(ctx context.Context) ([]store.TopicQueue, error)
}

// gateCollector publishes how many gates are closed, how many tasks wait at them, the use of each limit, how many keys
// a dead ordered task blocks, and in how many topics tasks wait. Every process publishes the same numbers, and reads
// them when its metrics are read.
type gateCollector struct {
	store          gateReader
	gates, blocked *prometheus.Desc // by kind
	keys           *prometheus.Desc
	topics         *prometheus.Desc // by queue and priority
	// by limit
	limitBlocked, limitPermits, limitRate, limitConcurrency *prometheus.Desc
}

func newGateCollector(reader gateReader) *gateCollector {
	kind, limit := []string{"kind"}, []string{"limit"}
	return &gateCollector{
		store: reader,
		gates: prometheus.NewDesc("holdfast_gates",
			"Closed gates in the whole system: pauses, limits and breakers.", kind, nil),
		blocked: prometheus.NewDesc("holdfast_blocked_tasks",
			"Tasks that wait at closed gates, in the whole system. At most 100,000 are counted for each gate.", kind, nil),
		keys: prometheus.NewDesc("holdfast_ordered_keys_blocked",
			"Keys whose ordered tasks a dead task blocks or dooms, in the whole system. At most 100 are counted.", nil, nil),
		topics: prometheus.NewDesc("holdfast_topics_waiting",
			"Topics in which tasks wait for slots, in the whole system. At most 100,000 are counted for each queue and priority.", []string{"queue", "priority"}, nil),
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
	for _, desc := range []*prometheus.Desc{g.gates, g.blocked, g.keys, g.topics, g.limitBlocked, g.limitPermits, g.limitRate, g.limitConcurrency} {
		to <- desc
	}
}

// Collect implements prometheus.Collector. While the store does not answer, it publishes nothing.
func (g *gateCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	gates, err := g.store.Gates(ctx)
	if err != nil {
		return
	}
	limits, err := g.store.Limits(ctx)
	if err != nil {
		return
	}
	keys, err := g.store.OrderedKeys(ctx, true, maxCountedKeys)
	if err != nil {
		return
	}
	topics, err := g.store.TopicQueues(ctx)
	if err != nil {
		return
	}
	for _, q := range topics {
		to <- prometheus.MustNewConstMetric(g.topics, prometheus.GaugeValue, float64(q.Topics), q.Queue, q.Priority.String())
	}
	to <- prometheus.MustNewConstMetric(g.keys, prometheus.GaugeValue, float64(len(keys)))
	gauge := func(desc *prometheus.Desc, value float64, label string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label)
	}
	number, blocked := make(map[store.GateKind]int), make(map[store.GateKind]int)
	for _, gate := range gates {
		number[gate.Kind]++
		blocked[gate.Kind] += gate.Blocked
	}
	for _, limit := range limits {
		number[store.GateLimit]++
		blocked[store.GateLimit] += limit.Blocked
	}
	for _, kind := range []store.GateKind{store.GatePause, store.GateLimit, store.GateBreaker} {
		gauge(g.gates, float64(number[kind]), string(kind))
		gauge(g.blocked, float64(blocked[kind]), string(kind))
	}
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
