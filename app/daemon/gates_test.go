package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/store"
)

// gateSource is a gateReader.
type gateSource struct {
	gates               []store.Gate
	limits              []store.LimitUse
	keys                []store.OrderedKey
	topics              []store.TopicQueue
	gatesErr, limitsErr error
	keysErr             error
}

func (s *gateSource) Gates(context.Context) ([]store.Gate, error) { return s.gates, s.gatesErr }

func (s *gateSource) Limits(context.Context) ([]store.LimitUse, error) { return s.limits, s.limitsErr }

func (s *gateSource) OrderedKeys(_ context.Context, onlyDead bool, limit int) ([]store.OrderedKey, error) {
	if !onlyDead {
		return nil, errors.New("the tasks of other keys are counted")
	}
	return s.keys[:min(len(s.keys), limit)], s.keysErr
}

func (s *gateSource) TopicQueues(context.Context) ([]store.TopicQueue, error) { return s.topics, nil }

func TestGateMetrics(t *testing.T) {
	t.Parallel()
	source := new(gateSource)
	registry := prometheus.NewRegistry()
	registry.MustRegister(newGateCollector(source))
	check := func(want ...string) {
		t.Helper()
		if got := gauges(t, registry); !slices.Equal(got, want) {
			t.Errorf("the metrics are %q, want %q", got, want)
		}
	}
	check("holdfast_blocked_tasks breaker 0", "holdfast_blocked_tasks limit 0", "holdfast_blocked_tasks pause 0",
		"holdfast_gates breaker 0", "holdfast_gates limit 0", "holdfast_gates pause 0", "holdfast_ordered_keys_blocked 0")
	source.keys = make([]store.OrderedKey, 3)
	source.gates = []store.Gate{{Kind: store.GatePause, Blocked: 3}, {Kind: store.GateBreaker, Blocked: 9}, {Kind: store.GatePause, Blocked: 4}}
	source.limits = []store.LimitUse{
		{Limit: store.Limit{Scope: store.Scope{Per: store.PerKey}, Rate: store.Rate{Count: 30, Per: time.Minute}}, InUse: 5, Blocked: 6},
		{Limit: store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "http"}}, Concurrency: 10}, InUse: 7, Blocked: 8},
	}
	check("holdfast_blocked_tasks breaker 9", "holdfast_blocked_tasks limit 14", "holdfast_blocked_tasks pause 7",
		"holdfast_gates breaker 1", "holdfast_gates limit 2", "holdfast_gates pause 2",
		"holdfast_limit_blocked_tasks per key 6", "holdfast_limit_blocked_tasks type http 8", "holdfast_limit_concurrency type http 10",
		"holdfast_limit_permits_in_use per key 5", "holdfast_limit_permits_in_use type http 7", "holdfast_limit_rate per key 0.5", "holdfast_ordered_keys_blocked 3")
	source.topics = []store.TopicQueue{{Queue: "mail", Topics: 12, Executors: 3}}
	if got := gauges(t, registry); got[len(got)-1] != "holdfast_topics_waiting normal mail 12" {
		t.Errorf("the metrics are %q", got)
	}
	source.topics = nil
	source.keysErr = errors.New("the store does not answer")
	check()
	source.keysErr = nil
	source.limitsErr = errors.New("the store does not answer")
	check()
	source.gatesErr = source.limitsErr
	source.limitsErr = nil
	check()
	source.gatesErr = nil
	source.gates, source.limits, source.keys = nil, nil, make([]store.OrderedKey, maxCountedKeys+1)
	if got := gauges(t, registry); got[len(got)-1] != "holdfast_ordered_keys_blocked 100" {
		t.Errorf("the metrics are %q", got)
	}
}

// The number of time series has a bound, however many limits people set.
func TestMetricsOfManyLimits(t *testing.T) {
	t.Parallel()
	source := new(gateSource)
	for i := range maxLimitLabels + 1 {
		key := store.Subject{Key: fmt.Sprintf("tenant-%03d", i)}
		source.limits = append(source.limits, store.LimitUse{Limit: store.Limit{Scope: store.Scope{Subject: key}, Concurrency: 1}, Blocked: 1})
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newGateCollector(source))
	got := gauges(t, registry)
	last := slices.IndexFunc(got, func(line string) bool { return strings.Contains(line, "tenant-099") })
	if len(got) != 7+3*maxLimitLabels || last < 0 || got[1] != "holdfast_blocked_tasks limit 101" {
		t.Errorf("%d metrics, such as %q", len(got), got[0])
	}
}
