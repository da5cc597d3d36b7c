package daemon

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/holdfastq/holdfast"
)

// metrics records observations as Prometheus metrics. A label never has an id.
type metrics struct {
	counts   map[holdfast.ObservationKind]prometheus.Counter
	claimed  *prometheus.CounterVec
	attempts *prometheus.CounterVec
	late     *prometheus.HistogramVec
	took     *prometheus.HistogramVec
	confirm  prometheus.Histogram

	// These maps have the metrics of each combination of labels. They save a lookup in the vectors for each of the two
	// observations of a task.
	byClaim   sync.Map // claimLabels → claimMetrics
	byAttempt sync.Map // attemptLabels → attemptMetrics
}

type (
	claimLabels  struct{ queue, kind string }
	claimMetrics struct {
		claimed prometheus.Counter
		late    prometheus.Observer
	}
	attemptLabels  struct{ queue, kind, event string }
	attemptMetrics struct {
		attempts prometheus.Counter
		took     prometheus.Observer
	}
)

var counters = map[holdfast.ObservationKind][2]string{
	holdfast.ObservedEnqueued:    {"tasks_enqueued_total", "Tasks stored by this process."},
	holdfast.ObservedDuplicate:   {"tasks_duplicate_total", "Tasks refused because their unique key was taken."},
	holdfast.ObservedPublished:   {"tickets_published_total", "Tickets confirmed by the broker."},
	holdfast.ObservedStale:       {"tickets_stale_total", "Tickets that were no longer needed."},
	holdfast.ObservedContended:   {"tickets_contended_total", "Tickets of tasks that another worker runs."},
	holdfast.ObservedParked:      {"tasks_parked_total", "Tasks parked because no live worker has a handler for their type."},
	holdfast.ObservedPassedOn:    {"tickets_passed_on_total", "Tickets passed on to workers that handle the type of the task."},
	holdfast.ObservedBlocked:     {"tasks_blocked_total", "Tasks blocked at a gate: a pause, a limit or a breaker."},
	holdfast.ObservedReleased:    {"tasks_released_total", "Blocked tasks that became due: their gate had opened, or they got permits."},
	holdfast.ObservedUnread:      {"messages_unread_total", "Messages of a newer version moved to the unread queue."},
	holdfast.ObservedQuarantined: {"messages_quarantined_total", "Malformed messages moved to the quarantine."},
	holdfast.ObservedRefused:     {"results_refused_total", "Results refused because they came too late."},
	holdfast.ObservedStuck:       {"handlers_stuck_total", "Handlers that still ran a second after their contexts had ended."},
	holdfast.ObservedAbandoned:   {"handlers_abandoned_total", "Attempts given up because their handlers ignored the end of their contexts."},
	holdfast.ObservedLeaseLost:   {"leases_lost_total", "Workers of this process that lost their lease."},
	holdfast.ObservedFenced:      {"workers_fenced_total", "Workers fenced by this janitor."},
	holdfast.ObservedRecovered:   {"tasks_recovered_total", "Tasks taken back from ended workers."},
	holdfast.ObservedRearmed:     {"manifests_rearmed_total", "Manifests of long pages published again."},
	holdfast.ObservedRepaired:    {"tickets_repaired_total", "Tasks that got a new ticket because theirs was lost."},
	holdfast.ObservedPruned:      {"rows_pruned_total", "Old rows deleted."},
	holdfast.ObservedPlanFailed:  {"plan_steps_failed_total", "Failed steps of schedules, sources, shard jobs and batches."},
}

// Metrics returns an observer that records observations as Prometheus metrics in the registry, as the daemon does. nil
// means a new registry. The observer is safe for concurrent use.
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
			Name: "holdfast_tasks_claimed_total", Help: "Tasks claimed by this worker."}, []string{"queue", "type"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_attempts_total", Help: "Attempts finished by this worker, by outcome."}, []string{"queue", "type", "event"}),
		late: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_claim_delay_seconds", Help: "Time from when a task was due to its claim.", Buckets: seconds}, []string{"queue"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_attempt_duration_seconds", Help: "Execution time of the handler.", Buckets: seconds}, []string{"type", "event"}),
		confirm: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_publish_duration_seconds", Help: "Time from publishing a group of tickets to its confirms.", Buckets: seconds}),
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
		claims := m.claimMetrics(claimLabels{o.Queue, o.Type})
		claims.claimed.Add(float64(o.Count))
		claims.late.Observe(max(0, o.Late.Seconds()))
	case holdfast.ObservedSettled:
		attempts := m.attemptMetrics(attemptLabels{o.Queue, o.Type, string(o.Event)})
		attempts.attempts.Add(float64(o.Count))
		attempts.took.Observe(o.Took.Seconds())
	default:
		if counter, known := m.counts[o.Kind]; known {
			counter.Add(float64(o.Count))
		}
		if o.Kind == holdfast.ObservedPublished {
			m.confirm.Observe(o.Took.Seconds())
		}
	}
}

func (m *metrics) claimMetrics(l claimLabels) claimMetrics {
	if found, known := m.byClaim.Load(l); known {
		return found.(claimMetrics)
	}
	added := claimMetrics{m.claimed.WithLabelValues(l.queue, l.kind), m.late.WithLabelValues(l.queue)}
	m.byClaim.Store(l, added)
	return added
}

func (m *metrics) attemptMetrics(l attemptLabels) attemptMetrics {
	if found, known := m.byAttempt.Load(l); known {
		return found.(attemptMetrics)
	}
	added := attemptMetrics{m.attempts.WithLabelValues(l.queue, l.kind, l.event), m.took.WithLabelValues(l.kind, l.event)}
	m.byAttempt.Store(l, added)
	return added
}

// requestMetrics counts the requests of the HTTP API. A label never has an id: a route is a pattern.
type requestMetrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

func newRequestMetrics(registry prometheus.Registerer) *requestMetrics {
	m := &requestMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_api_requests_total", Help: "Requests to the HTTP API, by route and class of the status."}, []string{"method", "route", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_api_request_duration_seconds", Help: "Time to answer a request to the HTTP API.",
			Buckets: []float64{.005, .02, .1, .5, 2, 10}}, []string{"method", "route"}),
	}
	registry.MustRegister(m.requests, m.took)
	return m
}

// observe records a request. Requests without a route have the route "" and the method "", because a client may send
// any text as a method.
func (m *requestMetrics) observe(method, route string, status int, took time.Duration) {
	if route == "" {
		method = ""
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status/100)+"xx").Inc()
	m.took.WithLabelValues(method, route).Observe(took.Seconds())
}
