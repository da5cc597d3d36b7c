// Package app is the composition root: it turns a configuration into a store, a
// broker and the services over them, runs them, and stops them in order.
//
// It holds the only switch on backend in the module. It has no metrics, no endpoints and no task type of its own: package
// daemon adds those. Package queue, the daemon, the command line and tests share it; none of it parses flags or exits the
// process.
package app

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
)

// Backend is a store with the broker and topology that belong to it.
type Backend struct {
	Config   configs.Config
	Store    store.Store
	Broker   broker.Broker // nil from OpenStore
	Topology broker.Topology
	Log      logrus.FieldLogger

	// Check, if set, returns what is wrong with a payload of a type. Producers return that error.
	Check map[string]func(payload []byte) error

	file *file // of the embedded default; nil with servers
}

// OpenStore opens the store alone, as it is, and does not look at its schema. The error is an
// ErrInvalid if the configuration names none, an ErrUnavailable that names the server
// if it cannot be reached, and an ErrNotFound if there is no file yet.
func OpenStore(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*Backend, error) {
	return openStore(ctx, cfg, log, false)
}

func openStore(ctx context.Context, cfg configs.Config, log logrus.FieldLogger, create bool) (*Backend, error) {
	log = logs.Limited(log) // one limit for all parts
	chosen, err := choose(cfg, log)
	if err != nil {
		return nil, err
	}
	b := &Backend{Config: cfg, Log: log}
	if b.Store, b.file, err = chosen.store(ctx, create); err != nil {
		return nil, err
	}
	return b, nil
}

// Open opens the store, checks that its schema is the one this build needs, and starts to connect to the broker. A
// broker that is away is no error here: it is connected to when it is back; see Ping. The file of the embedded default
// is made and migrated if need be, because no other call does; it never migrates a database on a server: see Migrate.
func Open(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*Backend, error) {
	return open(ctx, cfg, log, true)
}

// Attach is Open for a look at what is there: it makes no file and migrates nothing.
func Attach(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*Backend, error) {
	return open(ctx, cfg, log, false)
}

func open(ctx context.Context, cfg configs.Config, log logrus.FieldLogger, create bool) (_ *Backend, err error) {
	log = logs.Limited(log)
	chosen, err := choose(cfg, log)
	if err != nil {
		return nil, err
	}
	if chosen.mismatch != nil {
		return nil, chosen.mismatch
	}
	b, err := openStore(ctx, cfg, log, create)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if create && b.file != nil {
		if _, err := b.migrate(ctx); err != nil {
			return nil, err
		}
	}
	if err := b.Store.CheckSchema(ctx); err != nil {
		return nil, err
	}
	incarnation, err := b.Store.Incarnation(ctx)
	if err != nil {
		return nil, err
	}
	b.Topology = broker.NewTopology(cfg.AMQP.Prefix, cfg.AMQP.Shards, incarnation)
	if b.Broker, err = chosen.broker(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// Migrate brings the schema up to date, makes the file of the embedded default if need be, and
// returns what it applied. Errors are those of OpenStore and store.Migrations.
func Migrate(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (applied []store.Migration, err error) {
	b, err := openStore(ctx, cfg, log, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return b.migrate(ctx)
}

func (b *Backend) migrate(ctx context.Context) ([]store.Migration, error) {
	applied, err := b.Store.MigrateUp(ctx)
	for _, m := range applied {
		b.Log.WithField("version", m.Version).WithField("name", m.Name).Info("applied migration")
	}
	return applied, err
}

// Ping returns nil if a broker can take tickets within the limit, else an ErrUnavailable that
// names it. It waits for the end of the first attempt to connect even if that takes longer, because RabbitMQ
// refuses a wrong password only after some seconds. The embedded broker can if some process serves the file, this one or
// another.
func (b *Backend) Ping(ctx context.Context, limit time.Duration) error {
	if b.file != nil {
		return b.file.served()
	}
	if p, ok := b.Broker.(interface {
		Ping(context.Context, time.Duration) error
	}); ok {
		return p.Ping(ctx, limit)
	}
	return nil
}

// Embedded returns the path of the file if the backend is the embedded default: a file that one
// process serves, with the broker inside that process.
func (b *Backend) Embedded() (path string, ok bool) {
	if b.file == nil {
		return "", false
	}
	return b.file.store.Path(), true
}

// Producer returns a producer over the backend. observer may be nil. It panics if the backend has no broker, as OpenStore
// leaves it: the settings have been validated, so only the program can be wrong.
func (b *Backend) Producer(observer holdfast.Observer) *producer.Producer {
	var inserter store.Inserter = b.Store
	if b.file != nil {
		inserter = b.file.inserter()
	}
	p, err := producer.New(producer.Options{
		Check: b.Check, Store: inserter, Broker: b.Broker, Topology: b.Topology, Settings: b.Config.Settings(),
		MaxPayload: b.Config.Producer.MaxPayload, ConfirmTimeout: b.Config.Producer.ConfirmTimeout,
		OutboxGrace: b.Config.Janitor.OutboxGrace, Log: b.Log, Observer: observer,
	})
	if err != nil {
		panic(err)
	}
	return p
}

// Close closes the broker, then the store.
func (b *Backend) Close() error {
	var err error
	if b.Broker != nil {
		err = b.Broker.Close()
	}
	err = errors.Join(err, b.Store.Close())
	logs.Flush(b.Log)
	return err
}
