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

// storeWait is how long a store may take to say whether it can be used.
const storeWait = time.Second

// endpoints serves health and metrics. worker and jan are nil without those roles.
func endpoints(b *app.Backend, worker *consumer.Consumer, jan *janitor.Janitor, metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz/live", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, nil)
	})
	mux.HandleFunc("GET /healthz/ready", func(w http.ResponseWriter, r *http.Request) {
		answer(w, unready(r.Context(), b, worker, jan))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}

// unready says why this process does not do its work now; nothing if it does. A
// worker is ready only while it holds a lease that is fresh and every lane it should
// consume is subscribed: a process that runs and takes nothing is not healthy.
func unready(ctx context.Context, b *app.Backend, worker *consumer.Consumer, jan *janitor.Janitor) []string {
	var why []string
	if health := b.Broker.Health(); !health.Connected {
		reason := "the broker is not connected"
		if health.Err != nil {
			reason += ": " + health.Err.Error()
		}
		why = append(why, reason)
	} else if health.Blocked != "" {
		why = append(why, "the broker takes no messages now: "+health.Blocked)
	}
	if s, ok := b.Store.(interface{ Ready(context.Context) error }); ok {
		ctx, cancel := context.WithTimeout(ctx, storeWait)
		defer cancel()
		if err := s.Ready(ctx); err != nil {
			why = append(why, err.Error())
		}
	}
	if worker == nil {
		ctx, cancel := context.WithTimeout(ctx, storeWait)
		defer cancel()
		if _, err := b.Store.Now(ctx); err != nil {
			why = append(why, err.Error())
		}
		return why
	}
	status := worker.Status()
	switch {
	case status.Run == 0:
		why = append(why, "there is no run: the database cannot be reached, or the worker is starting or stopping")
	case time.Since(status.RenewedAt) > b.Config.Worker.Lease:
		why = append(why, "the lease is not renewed: the database cannot be reached")
	case len(status.Consuming) == 0 && len(status.Waiting) == 0:
		why = append(why, "no lane is known yet")
	}
	if status.Fault != nil {
		why = append(why, "this worker is at fault itself and takes fewer tasks: "+status.Fault.Error())
	}
	for queue, reason := range status.Waiting {
		why = append(why, "queue "+queue+" is not consumed: "+waits(reason, jan))
	}
	return why
}

// waits says why a queue is not consumed. A queue that does not exist is declared by a janitor, if nothing keeps it from
// that: the janitor of this process knows what does.
func waits(reason error, jan *janitor.Janitor) string {
	if !errors.Is(reason, broker.ErrNoQueue) {
		return reason.Error()
	}
	if jan != nil {
		if err := jan.Refused(); err != nil {
			return "it does not exist, and the janitor of this process cannot declare it: " + err.Error()
		}
	}
	return "it does not exist yet; a janitor declares it, or: holdfast topology apply"
}

func answer(w http.ResponseWriter, why []string) {
	w.Header().Set("Content-Type", "application/json")
	body := map[string]any{"status": "ok"}
	if len(why) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		body = map[string]any{"status": "not ready", "reasons": why}
	}
	_ = json.NewEncoder(w).Encode(body) // the client is gone: nobody is left to tell
}
