// Package daemon is the daemon of `holdfast serve`: it adds Prometheus metrics, health endpoints, the HTTP API and the
// task type http to the worker and the janitor of package app. A program that uses only package queue links none of
// them and opens no port.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/consumer/webhook"
	"github.com/holdfastq/holdfast/janitor"
)

// Open is app.Open for a backend that checks the payloads of tasks of type http. It returns an ErrInvalid if
// the webhook settings are invalid.
func Open(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*app.Backend, error) {
	checks, err := Checks(cfg)
	if err != nil {
		return nil, err
	}
	b, err := app.Open(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	b.Check = checks
	return b, nil
}

// Checks returns the functions that check the payloads of tasks, by type, for app.Backend. It returns an ErrInvalid if
// the webhook settings are invalid.
func Checks(cfg configs.Config) (map[string]func(payload []byte) error, error) {
	deliver, err := NewWebhook(cfg, "")
	if err != nil {
		return nil, err
	}
	return map[string]func([]byte) error{webhook.Type: deliver.Validate}, nil
}

// NewWebhook returns the handler of the task type http for a configuration. Producers also use it to check payloads. It
// returns an ErrInvalid if the webhook settings are invalid.
func NewWebhook(c configs.Config, version string) (*webhook.Handler, error) {
	secrets := make(map[string]webhook.Secret)
	for name, hosts := range c.Webhook.SecretHosts {
		secrets[name] = webhook.Secret{Keys: c.Webhook.Secrets[name], Hosts: hosts}
	}
	return webhook.New(webhook.Options{
		Version: version, AllowCIDRs: c.Webhook.AllowCIDRs, Timeout: c.Webhook.Timeout, MaxRetryAfter: c.Webhook.MaxRetryAfter,
		MaxResponse: c.Webhook.MaxResponse, RetryStatuses: c.Webhook.RetryStatuses, Secrets: secrets,
	})
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
	// Hint returns the text of a hint, for problems of the HTTP API. If it is nil, they have no hints.
	Hint func(holdfast.Hint) string
	// Serve calls Listening, if it is set, with the address of the endpoints when it serves them.
	Listening func(net.Addr)
}

// Serve is app.Serve with metrics and with the task type http. If the configuration has an address to listen on, Serve
// also serves health and metrics there, and with the role api the HTTP API, until the worker and the janitor have
// ended. It returns the errors of app.Serve, and an error with a hint if it cannot use the address.
func Serve(ctx context.Context, o Options) error {
	registry := o.Registerer
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	deliver, err := NewWebhook(o.Backend.Config, o.Version)
	if err != nil {
		return err
	}
	notify, err := newNotify(o.Backend.Config.Notify, deliver)
	if err != nil {
		return err
	}
	observer := newMetrics(registry)
	registerCollectors(registry, o.Backend)
	services := app.ServeOptions{
		Backend: o.Backend, Version: o.Version, Abort: o.Abort, Observer: observer, Notify: notify,
		Handlers: func(r *consumer.Registry) {
			r.Add(webhook.Type, deliver)
			r.Describe(webhook.Type, reflect.TypeFor[webhook.Payload]())
			if o.Handlers != nil {
				o.Handlers(r)
			}
		},
	}
	if o.Backend.Config.Listen != "" {
		services.StartBeside = func(worker *consumer.Consumer, jan *janitor.Janitor) (stop func(context.Context) error, err error) {
			mux := endpoints(o.Backend, worker, jan, registry)
			if !o.Backend.Config.HasRole(configs.RoleAPI) {
				return serveEndpoints(ctx, o, mux, nil)
			}
			served := newAPI(o, registry, observer)
			mux.Handle(api.Prefix+"/", served)
			return serveEndpoints(ctx, o, mux, served)
		}
	}
	return app.Serve(ctx, services)
}

// newAPI returns the HTTP API. The API uses at most a quarter of the connections to the database, so that its readers
// do not delay the worker and the janitor.
func newAPI(o Options, registry prometheus.Registerer, observer holdfast.Observer) *api.API {
	requests := newRequestMetrics(registry)
	return api.New(api.Options{
		Backend: o.Backend, Version: o.Version, Hint: o.Hint, Concurrency: max(1, o.Backend.Config.Database.MaxConns/4),
		Observer: observer, Observe: requests.observe, Log: o.Backend.Log,
	})
}

// serveEndpoints serves handler until stop is called. It listens before it returns, so that a port in use is an error
// at the start. When the context of stop ends, stop closes the connections of requests that are still in progress. served
// is the HTTP API of the handler, or nil.
func serveEndpoints(ctx context.Context, o Options, handler http.Handler, served *api.API) (stop func(context.Context) error, err error) {
	listener, err := net.Listen("tcp", o.Backend.Config.Listen)
	if err != nil {
		return nil, holdfast.WithHint(fmt.Errorf("listen on %s: %w", o.Backend.Config.Listen, err), holdfast.Hint{Kind: holdfast.HintListen})
	}
	address, what := listener.Addr(), "serving health and metrics"
	if served != nil {
		if err := served.Bind(ctx, address); err != nil {
			return nil, errors.Join(err, listener.Close(), served.Close())
		}
		what = "serving health, metrics and the HTTP API"
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: time.Minute,
	}
	if served != nil {
		server.RegisterOnShutdown(served.Stop)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	o.Backend.Log.WithField("address", address.String()).Info(what)
	if o.Listening != nil {
		o.Listening(address)
	}
	return func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if ctx.Err() != nil { // a client is slow
			err = server.Close()
		}
		if ended := <-done; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
		if served != nil {
			err = errors.Join(err, served.Close())
		}
		return err
	}, nil
}
