// Package daemon is the daemon of `holdfast serve`: it adds Prometheus metrics, health endpoints and the task type http
// to the worker and the janitor of package app. A program that uses only package queue links none of these and opens no
// port.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/consumer/webhook"
	"github.com/holdfastq/holdfast/janitor"
)

// Open is app.Open for a backend whose producers check the payloads of tasks of type http. It returns an ErrInvalid if
// the webhook settings are invalid.
func Open(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*app.Backend, error) {
	deliver, err := NewWebhook(cfg, "")
	if err != nil {
		return nil, err
	}
	b, err := app.Open(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	b.Check = map[string]func([]byte) error{webhook.Type: deliver.Validate}
	return b, nil
}

// Options configures Serve. Backend is required.
type Options struct {
	Backend *app.Backend
	Version string
	// Handlers adds task types to the built-in type http; nil adds none.
	Handlers func(*consumer.Registry)
	// Registerer receives the metrics; nil means a new registry.
	Registerer *prometheus.Registry
	// Abort, when closed, ends a drain at once: the worker cancels its handlers and hands their tasks back.
	Abort <-chan struct{}
	// Listening, if set, is called with the address of the endpoints when they are served.
	Listening func(net.Addr)
}

// Serve is app.Serve with metrics and with the task type http. If the configuration has an address for them, it also
// serves health and metrics endpoints, until the worker and the janitor have ended. Errors are those of app.Serve, and
// an error with a hint if the address cannot be used.
func Serve(ctx context.Context, o Options) error {
	registry := o.Registerer
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	deliver, err := NewWebhook(o.Backend.Config, o.Version)
	if err != nil {
		return err
	}
	services := app.ServeOptions{
		Backend: o.Backend, Version: o.Version, Abort: o.Abort, Observer: newMetrics(registry),
		Handlers: func(r *consumer.Registry) {
			r.Add(webhook.Type, deliver)
			if o.Handlers != nil {
				o.Handlers(r)
			}
		},
	}
	if o.Backend.Config.Listen != "" {
		services.StartBeside = func(worker *consumer.Consumer, jan *janitor.Janitor) (stop func(context.Context) error, err error) {
			return serveEndpoints(o, endpoints(o.Backend, worker, jan, registry))
		}
	}
	return app.Serve(ctx, services)
}

// serveEndpoints serves handler until stop is called. It listens before it returns, so that a port in use is an error
// at the start.
func serveEndpoints(o Options, handler http.Handler) (stop func(context.Context) error, err error) {
	listener, err := net.Listen("tcp", o.Backend.Config.Listen)
	if err != nil {
		return nil, holdfast.WithHint(fmt.Errorf("listen on %s: %w", o.Backend.Config.Listen, err), holdfast.Hint{Kind: holdfast.HintListen})
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	o.Backend.Log.WithField("address", listener.Addr().String()).Info("serving health and metrics")
	if o.Listening != nil {
		o.Listening(listener.Addr())
	}
	return func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}
