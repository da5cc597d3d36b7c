// Package app is the composition root: it turns a configuration into a store, a
// broker and the services over them, runs them, and stops them in order.
//
// It holds the only switch on backend in the module, and everything that is
// linked into the daemon but not into a program that uses the library: metrics,
// health endpoints, the HTTP delivery handler. The command line, tests and
// other programs share it; none of it parses flags or exits the process.
package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
)

// Backend is a store with the broker and topology that belong to it.
type Backend struct {
	Config   configs.Config
	Store    store.Store
	Broker   broker.Broker // nil from OpenStore
	Topology broker.Topology
	Log      logrus.FieldLogger
}

// OpenStore opens the store alone and does not look at its schema. The error is an
// ErrInvalid if no database is configured and an ErrUnavailable that names the server
// if it cannot be reached.
func OpenStore(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*Backend, error) {
	if cfg.Database.URL == "" {
		return nil, fmt.Errorf("%w: no database is configured; set DATABASE_URL, for example postgres://user:password@localhost:5432/app", holdfast.ErrInvalid)
	}
	scheme, _, _ := strings.Cut(cfg.Database.URL, ":")
	switch scheme {
	case "postgres", "postgresql":
		st, err := postgres.Open(ctx, postgres.Options{
			URL: cfg.Database.URL, Schema: cfg.Database.Schema, MaxConns: cfg.Database.MaxConns, Log: log,
		})
		if err != nil {
			return nil, err
		}
		return &Backend{Config: cfg, Store: st, Log: log}, nil
	default:
		return nil, fmt.Errorf("%w: database URLs begin with postgres://, this one with %q", holdfast.ErrInvalid, scheme)
	}
}

// Open opens the store, checks that its schema is the one this build needs, and
// starts to connect to the broker. A broker that is away is no error here: it is
// connected to when it is back; see Ping.
func Open(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*Backend, error) {
	if len(cfg.AMQP.URLs) == 0 {
		return nil, fmt.Errorf("%w: no broker is configured; set AMQP_URL, for example amqp://guest:guest@localhost:5672/", holdfast.ErrInvalid)
	}
	b, err := OpenStore(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	if err := b.openBroker(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Backend) openBroker(ctx context.Context) error {
	if err := b.Store.CheckSchema(ctx); err != nil {
		return err
	}
	incarnation, err := b.Store.Incarnation(ctx)
	if err != nil {
		return err
	}
	b.Topology = broker.NewTopology(b.Config.AMQP.Prefix, b.Config.AMQP.Shards, incarnation)
	b.Broker, err = rabbitmq.Open(ctx, rabbitmq.Options{
		URLs: b.Config.AMQP.URLs, ConfirmTimeout: b.Config.Producer.ConfirmTimeout, Log: b.Log,
		// Tickets that were delivered to a process that hangs or is cut off come back when the
		// broker misses its heartbeats; that should not take much longer than its lease.
		Heartbeat: max(time.Second, b.Config.Worker.Lease*3/5),
	})
	return err
}

// Ping returns nil if the broker can be reached within the limit, else an ErrUnavailable that
// names it.
func (b *Backend) Ping(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if p, ok := b.Broker.(interface{ Ping(context.Context) error }); ok {
		return p.Ping(ctx)
	}
	return nil
}

// Producer returns a producer over the backend. observer may be nil.
func (b *Backend) Producer(observer holdfast.Observer) *producer.Producer {
	return producer.New(producer.Options{
		Store: b.Store, Broker: b.Broker, Topology: b.Topology, Settings: b.Config.Settings(),
		MaxPayload: b.Config.Producer.MaxPayload, ConfirmTimeout: b.Config.Producer.ConfirmTimeout,
		OutboxGrace: b.Config.Janitor.OutboxGrace, Log: b.Log, Observer: observer,
	})
}

// Close closes the broker, then the store.
func (b *Backend) Close() error {
	var err error
	if b.Broker != nil {
		err = b.Broker.Close()
	}
	return errors.Join(err, b.Store.Close())
}
