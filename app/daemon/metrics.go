package daemon

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/holdfastq/holdfast"
)

// metrics turns observations into Prometheus metrics. Labels never hold ids.
type metrics struct {
	counts   map[holdfast.ObservationKind]prometheus.Counter
	claimed  *prometheus.CounterVec
	attempts *prometheus.CounterVec
	late     *prometheus.HistogramVec
	took     *prometheus.HistogramVec
	confirm  prometheus.Histogram

	// What labels stand for, looked up once: every task is observed twice.
	claims sync.Map // claimLabels → claimMetrics
	ends   sync.Map // endLabels → endMetrics
}

type (
	claimLabels  struct{ lane, kind string }
	claimMetrics struct {
		claimed prometheus.Counter
		late    prometheus.Observer
	}
	endLabels  struct{ lane, kind, event string }
	endMetrics struct {
		attempts prometheus.Counter
		took     prometheus.Observer
	}
)

var counters = map[holdfast.ObservationKind][2]string{
	holdfast.ObservedEnqueued:    {"tasks_enqueued_total", "Tasks stored by this process."},
	holdfast.ObservedDuplicate:   {"tasks_duplicate_total", "Tasks refused because their unique key was taken."},
	holdfast.ObservedPublished:   {"tickets_published_total", "Tickets confirmed by the broker."},
	holdfast.ObservedStale:       {"tickets_stale_total", "Tickets that were not needed any more."},
	holdfast.ObservedContended:   {"tickets_contended_total", "Tickets of tasks that another run holds."},
	holdfast.ObservedParked:      {"tasks_parked_total", "Tasks that wait because this worker has no handler for their type."},
	holdfast.ObservedQuarantined: {"messages_quarantined_total", "Malformed messages put aside."},
	holdfast.ObservedRefused:     {"results_refused_total", "Results that came too late and were refused."},
	holdfast.ObservedLeaseLost:   {"leases_lost_total", "Runs of this process that lost their lease."},
	holdfast.ObservedFenced:      {"runs_fenced_total", "Runs declared gone by this janitor."},
	holdfast.ObservedRecovered:   {"tasks_recovered_total", "Tasks taken back from gone runs."},
	holdfast.ObservedRearmed:     {"manifests_rearmed_total", "Manifests of long pages written anew."},
	holdfast.ObservedRepaired:    {"tickets_repaired_total", "Tasks that got a new ticket because theirs was gone."},
	holdfast.ObservedPruned:      {"rows_pruned_total", "Old rows deleted."},
}

// Metrics returns an observer that counts what it observes in the registry, as the daemon does. nil means a registry of
// its own.
func Metrics(registry prometheus.Registerer) holdfast.Observer {
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	return newMetrics(registry)
}

func newMetrics(registry prometheus.Registerer) *metrics {
	seconds := []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 1800}
	m := &metrics{
		counts: make(map[holdfast.ObservationKind]prometheus.Counter),
		claimed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_tasks_claimed_total", Help: "Tasks taken by this worker."}, []string{"lane", "type"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_attempts_total", Help: "Attempts finished by this worker, by what became of them."}, []string{"lane", "type", "event"}),
		late: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_claim_delay_seconds", Help: "Time between the moment a task was due and its claim.", Buckets: seconds}, []string{"lane"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_attempt_duration_seconds", Help: "Time the handler took.", Buckets: seconds}, []string{"type", "event"}),
		confirm: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_publish_duration_seconds", Help: "Time from publishing a batch of tickets to its confirms.", Buckets: seconds}),
	}
	registry.MustRegister(m.claimed, m.attempts, m.late, m.took, m.confirm,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for kind, text := range counters {
		counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_" + text[0], Help: text[1]})
		registry.MustRegister(counter)
		m.counts[kind] = counter
	}
	return m
}

// Observe implements holdfast.Observer.
func (m *metrics) Observe(o holdfast.Observation) {
	switch o.Kind {
	case holdfast.ObservedClaimed:
		of := m.ofClaims(claimLabels{o.Lane, o.Type})
		of.claimed.Add(float64(o.Count))
		of.late.Observe(max(0, o.Late.Seconds()))
	case holdfast.ObservedSettled:
		of := m.ofEnds(endLabels{o.Lane, o.Type, string(o.Event)})
		of.attempts.Add(float64(o.Count))
		of.took.Observe(o.Took.Seconds())
	default:
		if counter, known := m.counts[o.Kind]; known {
			counter.Add(float64(o.Count))
		}
		if o.Kind == holdfast.ObservedPublished {
			m.confirm.Observe(o.Took.Seconds())
		}
	}
}

func (m *metrics) ofClaims(l claimLabels) claimMetrics {
	if of, known := m.claims.Load(l); known {
		return of.(claimMetrics)
	}
	of := claimMetrics{m.claimed.WithLabelValues(l.lane, l.kind), m.late.WithLabelValues(l.lane)}
	m.claims.Store(l, of)
	return of
}

func (m *metrics) ofEnds(l endLabels) endMetrics {
	if of, known := m.ends.Load(l); known {
		return of.(endMetrics)
	}
	of := endMetrics{m.attempts.WithLabelValues(l.lane, l.kind, l.event), m.took.WithLabelValues(l.kind, l.event)}
	m.ends.Store(l, of)
	return of
}
