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

// options are those of a Client. The zero value is not complete: see optionsOf.
type options struct {
	environment []string
	set         map[string]string // settings by key
	change      []func(*configs.Config)
	migrate     bool

	log        logrus.FieldLogger
	logChosen  bool // by an option
	observer   holdfast.Observer
	middleware []Middleware
	noSignals  bool
	version    string
}

// changesSettings reports whether an option changes what Open reads.
func (o *options) changesSettings() bool {
	return o.environment != nil || len(o.set) > 0 || len(o.change) > 0 || o.migrate
}

type clientOption func(*options) error

func (f clientOption) applyToClient(o *options) error { return f(o) }

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

// config reads the settings.
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

// warnings leaves out what is less than a warning.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// Logger chooses where messages go; nil discards them. Without Logger and Slog, warnings and errors go to slog.Default.
func Logger(log logrus.FieldLogger) Option {
	return clientOption(func(o *options) error {
		o.log, o.logChosen = log, true
		return nil
	})
}

// Slog is Logger for package log/slog; nil discards all messages.
func Slog(log *slog.Logger) Option { return Logger(logs.FromSlog(log)) }

// Observer receives what happens, for metrics and tests; nil discards it.
func Observer(observer holdfast.Observer) Option {
	return clientOption(func(o *options) error {
		o.observer = observer
		return nil
	})
}

// Set sets one setting by its key, for example "worker.lease" to "10s". It wins over the environment. The file
// configs/holdfast.example.yaml has all keys with their units, ranges and defaults.
func Set(key, value string) Option {
	return clientOption(func(o *options) error {
		o.set[key] = value
		return nil
	})
}

// Environment replaces the environment from which Open reads settings. It has the form of os.Environ.
func Environment(variables []string) Option {
	return clientOption(func(o *options) error {
		o.environment = append([]string{}, variables...)
		return nil
	})
}

// File keeps the tasks in the file of that path, whatever the environment says.
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

// Servers keeps the tasks in a PostgreSQL database, postgres://…, and uses RabbitMQ, amqp://… with one URL for each node,
// whatever the environment says.
func Servers(database string, brokers ...string) Option {
	return clientOption(func(o *options) error {
		o.change = append(o.change, func(cfg *configs.Config) {
			cfg.Database.URL, cfg.AMQP.URLs = database, slices.Clone(brokers)
		})
		return nil
	})
}

// Migrate makes Open apply the migrations that a server lacks. The user of the database then needs the rights for that.
// Processes that do so at the same time wait for each other.
func Migrate() Option {
	return clientOption(func(o *options) error {
		o.migrate = true
		return nil
	})
}

// Concurrency is how many handlers Run runs at the same time; 50 by default.
func Concurrency(n int) Option {
	return clientOption(func(o *options) error {
		if n < 1 {
			return fmt.Errorf("%w: the concurrency %d must be at least 1", holdfast.ErrInvalid, n)
		}
		o.change = append(o.change, func(cfg *configs.Config) { cfg.Worker.Concurrency = n })
		return nil
	})
}

// Queues chooses the queues whose tasks Run runs; by default all.
func Queues(names ...string) Option {
	return clientOption(func(o *options) error {
		for _, name := range names {
			if err := checkQueue(name); err != nil {
				return err
			}
		}
		o.change = append(o.change, func(cfg *configs.Config) { cfg.Worker.Lanes = slices.Clone(names) })
		return nil
	})
}

// Version is the version of the program, which the list of workers shows.
func Version(version string) Option {
	return clientOption(func(o *options) error {
		o.version = version
		return nil
	})
}

// NoSignals makes Run ignore signals. It then stops when its context ends.
func NoSignals() Option {
	return clientOption(func(o *options) error {
		o.noSignals = true
		return nil
	})
}

// checkQueue returns an ErrInvalid if no queue can have that name.
func checkQueue(name string) error {
	if name == "" {
		return fmt.Errorf("%w: the name of the queue is empty", holdfast.ErrInvalid)
	}
	return holdfast.NewTask{Type: "any", Lane: name}.Validate(0)
}
