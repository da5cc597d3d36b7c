// Package daemon is the daemon of `holdfast serve`: it adds Prometheus metrics, health endpoints, the HTTP API and the
// task type http to the worker and the janitor of package app. A program that uses only package queue links none of
// them and opens no port.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/console"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/consumer/webhook"
	"github.com/holdfastq/holdfast/internal/logs"
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
	return webhook.New(webhookOptions(c, version))
}

func webhookOptions(c configs.Config, version string) webhook.Options {
	secrets := make(map[string]webhook.Secret)
	for name, hosts := range c.Webhook.SecretHosts {
		secrets[name] = webhook.Secret{Keys: c.Webhook.Secrets[name], Hosts: hosts}
	}
	return webhook.Options{
		Version: version, AllowCIDRs: c.Webhook.AllowCIDRs, Timeout: c.Webhook.Timeout, MaxRetryAfter: c.Webhook.MaxRetryAfter,
		MaxResponse: c.Webhook.MaxResponse, RetryStatuses: c.Webhook.RetryStatuses, Secrets: secrets,
	}
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
//
// If the environment names an endpoint of OpenTelemetry, Serve exports the traces of tasks to it; see docs/tracing.md.
func Serve(ctx context.Context, o Options) error {
	registry := o.Registerer
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	stopTracing := startTracing(ctx, o, os.Getenv)
	defer stopTracing()
	delivery := webhookOptions(o.Backend.Config, o.Version)
	if o.Backend.Tracer != nil {
		delivery.Propagate = propagate
	}
	deliver, err := webhook.New(delivery)
	if err != nil {
		return err
	}
	notify, err := newNotify(o.Backend.Config.Notify, deliver)
	if err != nil {
		return err
	}
	observer := newMetrics(registry)
	registerCollectors(registry, o.Backend, o.Backend.Config.HasRole(configs.RoleJanitor))
	watching, stopWatching := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { watchWAL(watching, o.Backend) })
	defer func() { stopWatching(); watch.Wait() }()
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
			c := o.Backend.Config
			if !c.HasRole(configs.RoleAPI) && !c.HasRole(configs.RoleConsole) {
				return serveEndpoints(ctx, o, mux, nil)
			}
			return serveEndpoints(ctx, o, mux, newSurfaces(o, registry, observer))
		}
	}
	return app.Serve(ctx, services)
}

// newAPI returns the HTTP API. The API and the console use a quarter of the connections to the database, so that their
// readers do not delay the worker and the janitor. They use at least two connections, because the console leaves one to
// the API.
func newAPI(o Options, registry prometheus.Registerer, observer holdfast.Observer) *api.API {
	requests := newRequestMetrics(registry)
	return api.New(api.Options{
		Backend: o.Backend, Version: o.Version, Hint: o.Hint, Concurrency: max(2, o.Backend.Config.Database.MaxConns/4),
		Observer: observer, Observe: requests.observe, Log: o.Backend.Log,
	})
}

// surfaces are the HTTP API and the console, or one of them.
type surfaces struct {
	api     *api.API         // the console makes its changes with it
	console *console.Console // nil if it is not served
}

func newSurfaces(o Options, registry prometheus.Registerer, observer holdfast.Observer) *surfaces {
	s := &surfaces{api: newAPI(o, registry, observer)}
	if c := o.Backend.Config; c.HasRole(configs.RoleConsole) {
		s.console = console.New(console.Options{Backend: o.Backend, API: s.api, Prefix: c.Console.Prefix, Version: o.Version, Hint: o.Hint})
	}
	return s
}

// bind adds the surfaces to the mux of a server at an address, and returns what they are. The console is a default. So
// if other machines can reach the address, and the configuration does not name the console, the process starts without
// the console and returns no error.
func (s *surfaces) bind(ctx context.Context, o Options, mux *http.ServeMux, address net.Addr) (what string, err error) {
	c := o.Backend.Config
	if err := s.api.Bind(ctx, address); err != nil {
		if !errors.Is(err, holdfast.ErrInvalid) || c.HasRole(configs.RoleAPI) || c.Origin("roles") != "default" {
			return "", err
		}
		o.Backend.Log.WithField("address", address.String()).Info("not serving the console, because other machines can reach the address and there is no token")
		s.console = nil
	}
	if c.HasRole(configs.RoleAPI) {
		mux.Handle(api.Prefix+"/", traced(o.Backend, s.api))
		what += ", the HTTP API"
	}
	if s.console != nil {
		mux.Handle(c.Console.Prefix+"/", s.console)
		what += ", the console"
	}
	return what, nil
}

// stop ends what would delay the shutdown of the server.
func (s *surfaces) stop() {
	s.api.Stop()
	if s.console != nil {
		s.console.Stop()
	}
}

// serveEndpoints serves mux until stop is called. It listens before it returns, so that a port in use is an error at the
// start. When the context of stop ends, stop closes the connections of requests that are still in progress. served are
// the HTTP API and the console, or nil.
func serveEndpoints(ctx context.Context, o Options, mux *http.ServeMux, served *surfaces) (stop func(context.Context) error, err error) {
	listener, err := net.Listen("tcp", o.Backend.Config.Listen)
	if err != nil {
		return nil, holdfast.WithHint(fmt.Errorf("listen on %s: %w", o.Backend.Config.Listen, err), holdfast.Hint{Kind: holdfast.HintListen})
	}
	address, what := listener.Addr(), "serving health and metrics"
	if served != nil {
		more, err := served.bind(ctx, o, mux, address)
		if err != nil {
			return nil, errors.Join(err, listener.Close(), served.api.Close())
		}
		what += more
	}
	slow := newSlowClients()
	server := &http.Server{
		Handler: slow.handler(mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: time.Minute,
		ErrorLog: stdlog.New(logs.Lines(o.Backend.Log), "", 0), ConnState: slow.note,
	}
	if served != nil {
		server.RegisterOnShutdown(served.stop)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	o.Backend.Log.WithField("address", address.String()).Info(what)
	if o.Listening != nil {
		o.Listening(address)
	}
	return func(ctx context.Context) error {
		slow.close()
		err := server.Shutdown(ctx)
		if ctx.Err() != nil { // a client is slow
			err = server.Close()
		}
		if ended := <-done; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
		if served != nil {
			err = errors.Join(err, served.api.Close())
		}
		return err
	}, nil
}

// slowClients are the connections that have not sent all of their first header, and the requests that have not sent all
// of their body. A shutdown would wait for them as long as it may.
type slowClients struct {
	mu      sync.Mutex
	silent  map[net.Conn]bool
	sending map[*http.ResponseController]bool
	closing bool
}

func newSlowClients() *slowClients {
	return &slowClients{silent: make(map[net.Conn]bool), sending: make(map[*http.ResponseController]bool)}
}

// note is the hook http.Server.ConnState.
func (s *slowClients) note(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateNew {
		delete(s.silent, conn)
		return
	}
	if s.silent[conn] = true; s.closing {
		_ = conn.Close()
	}
}

// handler returns a handler that notes which requests send a body.
func (s *slowClients) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			sender := http.NewResponseController(w)
			s.begin(sender)
			defer s.end(sender, false)
			r.Body = receivedBody{r.Body, func() { s.end(sender, true) }}
		}
		next.ServeHTTP(w, r)
	})
}

// bodyTime is how long a request may send its body after the shutdown has begun.
const bodyTime = time.Second

func (s *slowClients) begin(sender *http.ResponseController) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sending[sender] = true; s.closing {
		_ = sender.SetReadDeadline(time.Now().Add(bodyTime))
	}
}

// end notes that the whole body was received, or that its request has ended.
func (s *slowClients) end(sender *http.ResponseController, received bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sending[sender] && s.closing && received { // net/http reads on, to see the end of the connection
		_ = sender.SetReadDeadline(time.Time{})
	}
	delete(s.sending, sender)
}

// close ends the connections without a request, and limits the time of the bodies.
func (s *slowClients) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for conn := range s.silent {
		_ = conn.Close()
	}
	for sender := range s.sending {
		_ = sender.SetReadDeadline(time.Now().Add(bodyTime))
	}
}

// receivedBody calls received when the whole body was read.
type receivedBody struct {
	io.ReadCloser
	received func()
}

// Read implements io.Reader.
func (b receivedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.received()
	}
	return n, err
}
