package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/janitor"
)

// storeTimeout is how long the readiness check and a collector wait for the store.
const storeTimeout = time.Second

// endpoints returns a mux for health and metrics. worker and jan are nil if the process does not have their roles.
func endpoints(b *app.Backend, worker *consumer.Consumer, jan *janitor.Janitor, metrics *prometheus.Registry) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz/live", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, nil)
	})
	mux.HandleFunc("GET /healthz/ready", func(w http.ResponseWriter, r *http.Request) {
		answer(w, notReady(r.Context(), b, worker, jan))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	for _, path := range []string{"/healthz/live", "/healthz/ready", "/metrics"} {
		mux.HandleFunc("OPTIONS "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", "GET, HEAD, OPTIONS")
			w.WriteHeader(http.StatusNoContent)
		})
	}
	return mux
}

// notReady returns the reasons why this process is not ready, or none if it is ready. A process with a worker is ready
// only while the lease of its worker is fresh and the worker consumes all of its queues.
func notReady(ctx context.Context, b *app.Backend, worker *consumer.Consumer, jan *janitor.Janitor) []string {
	var reasons []string
	if health := b.Broker.Health(); !health.Connected {
		reason := "the broker is not connected"
		if health.Err != nil {
			reason += ": " + health.Err.Error()
		}
		reasons = append(reasons, reason)
	} else if health.Blocked != "" {
		reasons = append(reasons, "the broker takes no messages now: "+health.Blocked)
	}
	if s, ok := b.Store.(interface{ Ready(context.Context) error }); ok {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		if err := s.Ready(ctx); err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	if worker == nil {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		if _, err := b.Store.Now(ctx); err != nil {
			reasons = append(reasons, err.Error())
		}
		return reasons
	}
	status := worker.Status()
	switch {
	case status.Worker == 0:
		reasons = append(reasons, "no worker is registered: the database cannot be reached, or the process is starting or stopping")
	case time.Since(status.RenewedAt) > b.Config.Worker.Lease:
		reasons = append(reasons, "the lease is not renewed: the database cannot be reached")
	case len(status.Consuming)+len(status.Waiting)+len(status.Paused) == 0:
		reasons = append(reasons, "no queue is known yet")
	}
	if status.Fault != nil {
		reasons = append(reasons, "this worker is at fault itself and takes fewer tasks or none: "+status.Fault.Error())
	}
	for queue, reason := range status.Waiting {
		reasons = append(reasons, "queue "+queue+" is not consumed: "+notConsumed(reason, jan))
	}
	return reasons
}

// notConsumed describes why a queue is not consumed. If its AMQP queues do not exist, a janitor declares them. If the
// janitor of this process has failed to, notConsumed includes the janitor's error.
func notConsumed(reason error, jan *janitor.Janitor) string {
	if !errors.Is(reason, broker.ErrNoQueue) {
		return reason.Error()
	}
	if jan != nil {
		if err := jan.TopologyErr(); err != nil {
			return "it does not exist, and the janitor of this process cannot declare it: " + err.Error()
		}
	}
	return "it does not exist yet; a janitor declares it, or: holdfast topology apply"
}

// answer writes a health response: 200 if there are no reasons, or else 503 with the reasons.
func answer(w http.ResponseWriter, reasons []string) {
	w.Header().Set("Content-Type", "application/json")
	body := map[string]any{"status": "ok"}
	if len(reasons) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		body = map[string]any{"status": "not ready", "reasons": reasons}
	}
	_ = json.NewEncoder(w).Encode(body) // an error means that the client is gone
}
