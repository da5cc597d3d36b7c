package queue

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/logs"
)

// Option is an option of Open.
type Option interface{ applyToClient(*options) error }

// options are the options of a Client. Use optionsOf: the zero value lacks defaults.
type options struct {
	environment []string
	set         map[string]string // settings by key
	change      []func(*configs.Config)
	migrate     bool

	log        logrus.FieldLogger
	logChosen  bool // an option has set log
	observer   holdfast.Observer
	tracer     holdfast.Tracer
	middleware []Middleware
	noSignals  bool
	version    string
}

// changesSettings reports whether an option changes a setting or applies migrations.
func (o *options) changesSettings() bool {
	return o.environment != nil || len(o.set) > 0 || len(o.change) > 0 || o.migrate
}

type clientOption func(*options) error

func (f clientOption) applyToClient(o *options) error { return f(o) }

// clientField is an option that cannot fail.
type clientField func(*options)

func (f clientField) applyToClient(o *options) error {
	f(o)
	return nil
}

func optionsOf(opts []Option) (options, error) {
	o := options{set: make(map[string]string), log: logs.FromSlog(slog.New(warnings{slog.Default().Handler()}))}
	for _, option := range opts {
		if option == nil {
			continue
		}
		if err := option.applyToClient(&o); err != nil {
			return options{}, err
		}
	}
	o.log = logs.Limited(o.log)
	return o, nil
}

// config reads and validates the settings.
func (o *options) config() (configs.Config, error) {
	environment := o.environment
	if environment == nil {
		environment = os.Environ()
	}
	cfg, err := configs.Load(configs.Options{Env: environment, Flags: o.set})
	if err != nil {
		return configs.Config{}, err
	}
	for _, change := range o.change {
		change(&cfg)
	}
	return cfg, cfg.Validate()
}

// warnings is a handler that drops records below the level of a warning.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// Logger sets the logger; nil discards all messages. Without Logger and Slog, warnings and errors go to slog.Default.
func Logger(log logrus.FieldLogger) Option {
	return clientField(func(o *options) { o.log, o.logChosen = log, true })
}

// Slog is Logger for package log/slog; nil discards all messages.
func Slog(log *slog.Logger) Option { return Logger(logs.FromSlog(log)) }

// Observer sets the receiver of events, for metrics and tests; nil discards them.
func Observer(observer holdfast.Observer) Option {
	return clientField(func(o *options) { o.observer = observer })
}

// Tracer traces tasks from Enqueue through every attempt; nil turns tracing off, as by default. Package tracing makes a
// Tracer from a TracerProvider of OpenTelemetry.
func Tracer(tracer holdfast.Tracer) Option {
	return clientField(func(o *options) { o.tracer = tracer })
}

// Set sets one setting by its key, for example "worker.lease" to "10s". It overrides the environment. The file
// configs/holdfast.example.yaml lists all keys with their units, ranges and defaults.
func Set(key, value string) Option {
	return clientField(func(o *options) { o.set[key] = value })
}

// Environment replaces the environment from which Open reads settings. The variables have the form of os.Environ.
func Environment(variables []string) Option {
	return clientField(func(o *options) { o.environment = append([]string{}, variables...) })
}

// File keeps the tasks in the file at path. It overrides the environment.
func File(path string) Option {
	return clientOption(func(o *options) error {
		if path == "" {
			return fmt.Errorf("%w: the path of the file is empty", holdfast.ErrInvalid)
		}
		o.change = append(o.change, func(cfg *configs.Config) {
			cfg.Database.URL, cfg.AMQP.URLs = configs.EmbeddedDatabase+path, []string{configs.EmbeddedBroker}
		})
		return nil
	})
}

// Servers keeps the tasks in a PostgreSQL database (postgres://…) and uses RabbitMQ (amqp://…), with one URL for each
// node. It overrides the environment.
func Servers(database string, brokers ...string) Option {
	return clientField(func(o *options) {
		o.change = append(o.change, func(cfg *configs.Config) {
			cfg.Database.URL, cfg.AMQP.URLs = database, slices.Clone(brokers)
		})
	})
}

// Migrate makes Open apply missing migrations to a database server. The database user needs the rights to change the
// schema. If several processes migrate at the same time, they wait for each other.
func Migrate() Option {
	return clientField(func(o *options) { o.migrate = true })
}

// Concurrency sets how many handlers Run executes at the same time. The default is 50; n must be at least 1.
func Concurrency(n int) Option {
	return clientOption(func(o *options) error {
		if n < 1 {
			return fmt.Errorf("%w: the concurrency %d must be at least 1", holdfast.ErrInvalid, n)
		}
		o.change = append(o.change, func(cfg *configs.Config) { cfg.Worker.Concurrency = n })
		return nil
	})
}

// Queues sets the queues from which Run takes tasks. The default is all queues.
func Queues(names ...string) Option {
	return clientOption(func(o *options) error {
		for _, name := range names {
			if err := checkQueue(name); err != nil {
				return err
			}
		}
		o.change = append(o.change, func(cfg *configs.Config) { cfg.Worker.Queues = slices.Clone(names) })
		return nil
	})
}

// Version sets the version of the program. The list of workers shows it.
func Version(version string) Option {
	return clientField(func(o *options) { o.version = version })
}

// NoSignals makes Run ignore signals. Run then stops when its context ends or an operator drains the worker.
func NoSignals() Option {
	return clientField(func(o *options) { o.noSignals = true })
}

// checkQueue returns ErrInvalid if name is not a valid name of a queue.
func checkQueue(name string) error {
	if name == "" {
		return fmt.Errorf("%w: the name of the queue is empty", holdfast.ErrInvalid)
	}
	return holdfast.NewTask{Type: "any", Queue: name}.Validate(0)
}
