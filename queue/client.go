package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/producer"
)

// ErrClosed is returned by calls after Close.
var ErrClosed = producer.ErrClosed

// Client stores tasks and runs them. Make one with [Open]. It is safe for concurrent use.
type Client struct {
	backend  *app.Backend // its configuration has the settings that options of Handle set
	owned    bool         // Close also closes the backend
	producer *producer.Producer
	options  options
	settings atomic.Pointer[holdfast.SettingsSource] // of backend

	mu       sync.Mutex
	handlers map[string]typeHandler
	failed   []error // errors of Handle, which Run returns
	running  *running
	ran      bool
	closed   bool
}

type running struct {
	stop  context.CancelFunc
	ended chan struct{}
}

type typeHandler struct {
	handle  Handler
	payload reflect.Type // nil if the handler accepts any payload
}

// Open reads the settings, opens the store and starts to connect to the broker. It does not wait for the broker. If the
// tasks are in a file, Open creates and migrates the file. It migrates a database server only with [Migrate]. The
// caller must call Close.
//
// Open returns ErrInvalid if a setting or an option is wrong, and ErrUnavailable if the store cannot be reached. It
// returns store.ErrSchema if the store does not have the schema that this version needs.
func Open(ctx context.Context, opts ...Option) (*Client, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, fmt.Errorf("open queue: %w", err)
	}
	cfg, err := o.config()
	if err != nil {
		return nil, fmt.Errorf("open queue: %w", err)
	}
	if o.migrate {
		if _, err := app.Migrate(ctx, cfg, o.log); err != nil {
			return nil, fmt.Errorf("open queue: %w", err)
		}
	}
	backend, err := app.Open(ctx, cfg, o.log)
	if err != nil {
		return nil, fmt.Errorf("open queue: %w", err)
	}
	c := newClient(backend, o)
	c.owned = true
	return c, nil
}

// Over returns a Client that uses a backend of the caller. The caller must close the Client before the backend. The
// Client uses the settings of the backend, and also its logger unless the options have a Logger or Slog. Over returns
// ErrInvalid if an option changes a setting or if the backend lacks a store or a broker.
func Over(backend *app.Backend, opts ...Option) (*Client, error) {
	o, err := optionsOf(opts)
	switch {
	case err != nil:
	case backend == nil || backend.Store == nil || backend.Broker == nil:
		err = fmt.Errorf("%w: the backend needs a store and a broker", holdfast.ErrInvalid)
	case o.changesSettings():
		err = fmt.Errorf("%w: an option changes a setting, but the backend has its settings already", holdfast.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("queue over a backend: %w", err)
	}
	return newClient(backend, o), nil
}

func newClient(backend *app.Backend, o options) *Client {
	own := *backend
	if own.Log == nil || o.logChosen {
		own.Log = o.log
	}
	if o.tracer != nil {
		own.Tracer = o.tracer
	}
	c := &Client{backend: &own, options: o, handlers: make(map[string]typeHandler)}
	c.use(own.Config)
	c.producer = own.ProducerWith(withoutLimits{c}, o.observer)
	return c
}

func (c *Client) use(cfg configs.Config) {
	c.backend.Config = cfg
	c.settings.Store(new(c.backend.Settings()))
}

// withoutLimits has the settings for the client's producer. They have no limit of attempts, so a task gets a limit only
// from its own options. The settings of the worker limit all other tasks.
type withoutLimits struct{ c *Client }

// For implements holdfast.SettingsSource.
func (w withoutLimits) For(taskType string) *holdfast.TypeSettings {
	t := *(*w.c.settings.Load()).For(taskType)
	t.Policy.MaxAttempts = 0
	return &t
}

// Run runs the worker and the janitor until ctx is done, the process receives SIGTERM or SIGINT, or an operator drains
// the worker. Then the worker claims no more tasks, and handlers may finish within the drain timeout, 25 s by default.
// After that Run cancels their contexts with holdfast.ErrDraining and hands their tasks back. A second signal cancels
// the contexts at once. A third signal kills the process. Run returns when every goroutine that it started has ended.
// It returns nil after a clean stop.
//
// If a server cannot be reached, Run waits for it. Run returns ErrInvalid if a call of Handle failed or if there is no
// handler. It returns ErrConflict if another process runs the tasks of the file. Run must be called only once.
func (c *Client) Run(ctx context.Context) error {
	if err := c.run(ctx); err != nil {
		return fmt.Errorf("run queue: %w", err)
	}
	return nil
}

func (c *Client) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	call := &running{stop, make(chan struct{})}
	defer close(call.ended)
	handlers, backend, err := c.begin(call)
	if err != nil {
		return err
	}
	var abort <-chan struct{}
	if !c.options.noSignals {
		var done func()
		abort, done = c.onSignals(stop)
		defer done()
	}
	return app.Serve(ctx, app.ServeOptions{
		Backend: backend, Version: c.options.version, Observer: c.options.observer, Abort: abort,
		Handlers: func(r *consumer.Registry) {
			for name, h := range handlers {
				r.Add(name, consumer.HandlerFunc(h.handle))
				if h.payload != nil {
					r.Describe(name, h.payload)
				}
			}
		},
	})
}

// begin records the call of Run. It returns the handlers and the backend.
func (c *Client) begin(call *running) (map[string]typeHandler, *app.Backend, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, nil, ErrClosed
	case c.ran:
		return nil, nil, fmt.Errorf("%w: Run may be called only once", holdfast.ErrInvalid)
	case len(c.failed) > 0:
		return nil, nil, errors.Join(c.failed...)
	case len(c.handlers) == 0 && c.backend.Config.HasRole(configs.RoleWorker):
		return nil, nil, fmt.Errorf("%w: there is no handler; call Handle first", holdfast.ErrInvalid)
	}
	c.ran, c.running = true, call
	return maps.Clone(c.handlers), c.backend, nil
}

// onSignals calls stop at the first signal and closes abort at the second. The caller must call done, which stops the
// goroutine that waits for signals.
func (c *Client) onSignals(stop func()) (abort <-chan struct{}, done func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	now, ended := make(chan struct{}), make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-signals:
			c.log().WithField("limit", c.backend.Config.Worker.DrainTimeout).Info("draining: signal received")
			stop()
		case <-ended:
			return
		}
		select {
		case <-signals:
			c.log().Warn("stopping now: second signal received")
			signal.Stop(signals)
			close(now)
		case <-ended:
		}
	})
	return now, func() {
		signal.Stop(signals)
		close(ended)
		watch.Wait()
	}
}

func (c *Client) log() logrus.FieldLogger { return c.backend.Log }

// Close stops Run and waits for it. Then it waits until calls of Enqueue have returned and the broker has confirmed
// their messages. If the broker confirms no message for 5 s, Close stops waiting, and a janitor publishes the messages
// later. Finally Close closes the store and the broker that Open opened. Later calls of other methods return ErrClosed.
// Later calls of Close return nil.
func (c *Client) Close() error {
	c.mu.Lock()
	closed, running := c.closed, c.running
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	if running != nil {
		running.stop()
		<-running.ended
	}
	err := c.producer.Close()
	if c.owned {
		err = errors.Join(err, c.backend.Close())
	}
	if err != nil {
		return fmt.Errorf("close queue: %w", err)
	}
	logs.Flush(c.log())
	return nil
}
