// Package app is the composition root: from a configuration it opens a store and a broker, runs the worker and the
// janitor over them, and stops everything in order.
//
// It has the only switch on the backend in the module. It has no metrics, no endpoints and no task type; package daemon
// adds these. Package queue, package daemon, the command line and tests use it. It never parses flags and never exits
// the process.
package app

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// Backend is a store with its broker and topology.
type Backend struct {
	Config   configs.Config
	Store    desk.Store
	Broker   broker.Broker // nil after OpenStore
	Topology broker.Topology
	Log      logrus.FieldLogger

	// Check, if set, has for some task types a function that returns an error if a payload is invalid. Producers and
	// edits return that error.
	Check map[string]func(payload []byte) error

	// Tracer, if set, traces the tasks of producers and the attempts of workers.
	Tracer holdfast.Tracer

	file *file         // the file of the embedded backend; nil with servers
	live *liveSettings // nil after OpenStore

	janitor *atomic.Pointer[janitor.Janitor] // of this process, if it has one
}

// OpenStore opens the store without a broker, and does not check its schema. It returns an ErrInvalid if the
// configuration has no valid database, an ErrUnavailable that names the server if the server does not answer, and an
// ErrNotFound if the database file does not exist.
func OpenStore(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*Backend, error) {
	return openStore(ctx, cfg, log, false)
}

func openStore(ctx context.Context, cfg configs.Config, log logrus.FieldLogger, create bool) (*Backend, error) {
	log = logs.Limited(log) // all parts share one limit
	chosen, err := choose(cfg, log)
	if err != nil {
		return nil, err
	}
	b := &Backend{Config: cfg, Log: log, janitor: new(atomic.Pointer[janitor.Janitor])}
	if b.Store, b.file, err = chosen.store(ctx, create); err != nil {
		return nil, err
	}
	return b, nil
}

// openChecked opens the store and checks its schema. With create, it creates and migrates the file of the embedded
// backend if necessary.
func openChecked(ctx context.Context, cfg configs.Config, log logrus.FieldLogger, create bool) (*Backend, error) {
	b, err := openStore(ctx, cfg, log, create)
	if err != nil {
		return nil, err
	}
	if create && b.file != nil {
		_, err = b.migrate(ctx) // it checks the schema, too
	} else {
		err = b.Store.CheckSchema(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Open opens the store, checks its schema, and starts to connect to the broker. If the broker is unavailable, Open
// returns no error, and the backend connects when the broker is back; see Ping. Open creates and migrates the file of
// the embedded backend if necessary. It never migrates a database on a server; see Migrate. Open returns
// store.ErrSchema if this build cannot run on the version of the schema, an ErrInvalid if the store and the broker do
// not fit together, and the errors of OpenStore.
func Open(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*Backend, error) {
	return open(ctx, cfg, log, true)
}

// Attach is like Open, but creates no file and migrates nothing.
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
	b, err := openChecked(ctx, cfg, log, create)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	incarnation, err := b.Store.Incarnation(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.watchSettings(ctx); err != nil {
		return nil, err
	}
	b.Topology = broker.NewTopology(cfg.AMQP.Prefix, broker.HoldingQueues, incarnation)
	if b.Broker, err = chosen.broker(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// Migrate migrates the schema to the version of this build and returns the applied migrations. It creates the file of
// the embedded backend if necessary. Errors are those of OpenStore and store.Migrations.
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
		b.Log.WithField("version", m.Version).WithField("name", m.Name).Info("migration applied")
	}
	return applied, err
}

// Ping returns nil if the broker can take tickets within limit. Otherwise it returns an ErrUnavailable that names the
// broker. Ping always waits for the end of the first attempt to connect, because RabbitMQ refuses a wrong password only
// after some seconds. The embedded broker can take tickets if any process serves the file.
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

// Embedded returns the path of the database file, and true, if the backend is the embedded one: a file that one process
// serves, with the broker inside that process.
func (b *Backend) Embedded() (path string, ok bool) {
	if b.file == nil {
		return "", false
	}
	return b.file.store.Path(), true
}

// Producer returns a producer over the backend, with the settings of the backend. observer may be nil. Producer panics
// if the backend has no broker, as after OpenStore: that is a mistake in the program.
func (b *Backend) Producer(observer holdfast.Observer) *producer.Producer {
	return b.ProducerWith(b.Settings(), observer)
}

// ProducerWith is Producer with the given settings.
func (b *Backend) ProducerWith(settings holdfast.SettingsSource, observer holdfast.Observer) *producer.Producer {
	var inserter store.Inserter = b.Store
	if b.file != nil {
		inserter = b.file.inserter()
	}
	p, err := producer.New(producer.Options{
		Check: b.Check, Store: inserter, Broker: b.Broker, Topology: b.Topology, Settings: settings,
		MaxPayload: b.Config.Producer.MaxPayload, Log: b.Log, Observer: observer,
		OneWriter: b.file != nil, OnTopic: b.topicStored, Tracer: b.Tracer,
	})
	if err != nil {
		panic(err)
	}
	return p
}

// topicStored notifies the janitor of this process, if there is one, that tasks with topics are stored.
func (b *Backend) topicStored() {
	if j := b.localJanitor(); j != nil {
		j.Blocked()
	}
}

// tasksStored notifies the janitor of this process, if there is one, that tasks are stored whose tickets no producer
// publishes. Other janitors find them within 200 ms.
func (b *Backend) tasksStored() {
	if j := b.localJanitor(); j != nil {
		j.Nudge(0)
	}
}

// batchStored notifies the janitor of this process, if there is one, that a batch has begun. Its first check is due
// soon, and other janitors find it within a second.
func (b *Backend) batchStored() {
	b.tasksStored()
	if j := b.localJanitor(); j != nil {
		j.Planned()
	}
}

// localJanitor returns the janitor of this process, or nil.
func (b *Backend) localJanitor() *janitor.Janitor {
	if b.janitor == nil {
		return nil
	}
	return b.janitor.Load()
}

// CheckTask returns an error if a producer of the backend would refuse the task. It needs no server.
func (b *Backend) CheckTask(task holdfast.NewTask) error {
	if err := task.Validate(b.Config.Producer.MaxPayload); err != nil {
		return err
	}
	if check := b.Check[task.Type]; check != nil {
		return check(task.Payload)
	}
	return nil
}

// Close stops the reads of settings, and closes the broker, then the store.
func (b *Backend) Close() error {
	var err error
	if b.live != nil {
		b.live.close()
	}
	if b.Broker != nil {
		err = b.Broker.Close()
	}
	err = errors.Join(err, b.Store.Close())
	logs.Flush(b.Log)
	return err
}
