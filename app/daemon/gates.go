package daemon

import (
	"context"
	"strings"

	"github.com/holdfastq/holdfast/store"
)

// maxCountedKeys is the maximum of the gauge of blocked keys, because the store counts the waiting tasks of each key.
const maxCountedKeys = 100

// maxLimitLabels is the maximum number of limits with metrics of their own. The oldest limits have them.
const maxLimitLabels = 100

// gateReader is the part of a store that the collector of newGateCollector reads.
type gateReader interface {
	Gates(ctx context.Context) ([]store.Gate, error)
	Limits(ctx context.Context) ([]store.LimitUse, error)
	OrderedKeys(ctx context.Context, onlyDead bool, limit int) ([]store.OrderedKey, error)
	TopicQueues(ctx context.Context) ([]store.TopicQueue, error)
}

// newGateCollector publishes how many gates are closed, how many tasks wait at them, the use of each limit, how many keys
// a dead ordered task blocks, and in how many topics tasks wait.
func newGateCollector(reader gateReader) *collector {
	kind, limit := []string{"kind"}, []string{"limit"}
	return newCollector([]gauge{
		{"holdfast_gates", "Closed gates in the whole system: pauses, limits and breakers.", kind},
		{"holdfast_blocked_tasks", "Tasks that wait at closed gates, in the whole system. At most 100,000 are counted for each gate.", kind},
		{"holdfast_ordered_keys_blocked", "Keys whose ordered tasks a dead task blocks or dooms, in the whole system. At most 100 are counted.", nil},
		{"holdfast_topics_waiting",
			"Topics in which tasks wait for slots, in the whole system. At most 100,000 are counted for each queue and priority.", []string{"queue", "priority"}},
		{"holdfast_limit_blocked_tasks", "Tasks that wait for a permit of the limit, in the whole system. At most 100,000 are counted.", limit},
		{"holdfast_limit_permits_in_use", "Permits of the limit in use, in the whole system, over all its keys or targets.", limit},
		{"holdfast_limit_rate", "Starts per second that the limit allows, for each of its keys or targets.", limit},
		{"holdfast_limit_concurrency", "Attempts that the limit allows at the same time, for each of its keys or targets.", limit},
	}, func(ctx context.Context, set setter) error {
		gates, err := reader.Gates(ctx)
		if err != nil {
			return err
		}
		limits, err := reader.Limits(ctx)
		if err != nil {
			return err
		}
		keys, err := reader.OrderedKeys(ctx, true, maxCountedKeys)
		if err != nil {
			return err
		}
		topics, err := reader.TopicQueues(ctx)
		for _, q := range topics {
			set("holdfast_topics_waiting", float64(q.Topics), q.Queue, q.Priority.String())
		}
		set("holdfast_ordered_keys_blocked", float64(len(keys)))
		setGates(set, gates, limits)
		return err
	})
}

// setGates sets the gauges of gates and limits.
func setGates(set setter, gates []store.Gate, limits []store.LimitUse) {
	number, blocked := make(map[store.GateKind]int), make(map[store.GateKind]int)
	for _, gate := range gates {
		number[gate.Kind]++
		blocked[gate.Kind] += gate.Blocked
	}
	for i, limit := range limits {
		number[store.GateLimit]++
		blocked[store.GateLimit] += limit.Blocked
		if i >= maxLimitLabels {
			continue
		}
		name := strings.TrimPrefix(limit.Scope.String(), "limit ")
		set("holdfast_limit_blocked_tasks", float64(limit.Blocked), name)
		set("holdfast_limit_permits_in_use", float64(limit.InUse), name)
		if limit.Rate.Count > 0 {
			set("holdfast_limit_rate", limit.Rate.PerSecond(), name)
		}
		if limit.Concurrency > 0 {
			set("holdfast_limit_concurrency", float64(limit.Concurrency), name)
		}
	}
	for _, kind := range []store.GateKind{store.GatePause, store.GateLimit, store.GateBreaker} {
		set("holdfast_gates", float64(number[kind]), string(kind))
		set("holdfast_blocked_tasks", float64(blocked[kind]), string(kind))
	}
}
