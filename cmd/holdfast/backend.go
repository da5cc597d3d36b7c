package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
)

// brokerTimeout is how long a command waits for RabbitMQ before it reports that RabbitMQ is unavailable. Only tests
// change it.
var brokerTimeout = 3 * time.Second

// do converts a function to an action of the library. Before it calls run, it checks the number of arguments against
// ArgsUsage, and the value of -o. The first Ctrl-C cancels the context of run, and the second one kills the process.
func (t *tool) do(run func(context.Context, *cli.Context) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := checkArguments(c); err != nil {
			return err
		}
		if _, err := format(c); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		if c.Bool("watch") {
			return t.watch(ctx, commandName(c), func() error { return run(ctx, c) })
		}
		err := run(ctx, c)
		if err != nil && ctx.Err() != nil && exitCode(err) != exitInterrupted {
			return errInterrupted
		}
		return err
	}
}

// checkArguments compares the number of arguments with ArgsUsage, which has one of the forms "", ID, ID..., [ID...] and
// GROUP TEXT.
func checkArguments(c *cli.Context) error {
	want, got, name := c.Command.ArgsUsage, c.NArg(), strings.TrimPrefix(commandName(c), "holdfast ")
	many, optional, words := strings.Contains(want, "..."), strings.HasPrefix(want, "["), len(strings.Fields(want))
	switch {
	case want == "" && got > 0:
		return usageOf(commandName(c), "%s takes no argument, but got %q", name, c.Args().First())
	case want != "" && !optional && got == 0:
		return usageOf(commandName(c), "%s needs an argument: %s", name, want)
	case words > 1 && got != words:
		return usageOf(commandName(c), "%s takes %d arguments, but got %d: %s", name, words, got, want)
	case words == 1 && !many && got > 1:
		return usageOf(commandName(c), "%s takes one argument, but got %d", name, got)
	}
	return nil
}

// commandName returns the full name of the command, such as "holdfast task list".
func commandName(c *cli.Context) string {
	var names []string
	for _, level := range c.Lineage() {
		if level.Command != nil && level.Command.Name != "" {
			names = append([]string{level.Command.Name}, names...)
		}
	}
	if len(names) == 0 || names[0] != "holdfast" {
		names = append([]string{"holdfast"}, names...)
	}
	return strings.Join(names, " ")
}

// withStore loads the configuration, opens the store, checks its schema and calls use.
func (t *tool) withStore(ctx context.Context, c *cli.Context, use func(*app.Backend) error) error {
	return t.withBackend(ctx, c, openCheckedStore, use)
}

// opener opens a backend. [app.Attach] opens the store and the broker, and does not wait for the broker.
type opener func(context.Context, configs.Config, logrus.FieldLogger) (*app.Backend, error)

// withBackend loads the configuration, opens a backend, calls use and closes the backend.
func (t *tool) withBackend(ctx context.Context, c *cli.Context, open opener, use func(*app.Backend) error) error {
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	return t.useBackend(ctx, cfg, open, use)
}

// useBackend opens a backend, calls use and closes the backend.
func (t *tool) useBackend(ctx context.Context, cfg configs.Config, open opener, use func(*app.Backend) error) (err error) {
	b, err := open(ctx, cfg, t.quietLogger(cfg))
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := b.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("close: %w", closeErr)
		}
	}()
	return use(b)
}

// openCheckedStore opens the store and checks its schema.
func openCheckedStore(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*app.Backend, error) {
	b, err := app.OpenStore(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	if err := b.Store.CheckSchema(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if b.Check, err = daemon.Checks(cfg); err != nil { // for edits
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// openNewStore is like openCheckedStore, but creates and migrates the file if it does not exist, as serve and enqueue do.
// It is for commands that a person may run before any other.
func openNewStore(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*app.Backend, error) {
	b, err := openCheckedStore(ctx, cfg, log)
	if holdfast.HintOf(err).Kind != holdfast.HintCreateDatabase {
		return b, err
	}
	if _, err := app.Migrate(ctx, cfg, log); err != nil {
		return nil, err
	}
	return openCheckedStore(ctx, cfg, log)
}

// logger returns a logger to stderr with the configured level and format. Times are in UTC.
func (t *tool) logger(cfg configs.Config) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(t.stderr)
	log.AddHook(logHook{})
	if level, err := logrus.ParseLevel(cfg.Log.Level); err == nil { // package configs has validated it
		log.SetLevel(level)
	}
	log.SetFormatter(utc{&logrus.TextFormatter{
		FullTimestamp: true, TimestampFormat: time.RFC3339, DisableColors: !t.colors(t.stderr),
	}})
	if cfg.Log.Format == "json" {
		log.SetFormatter(utc{&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano}})
	}
	return log
}

// quietLogger returns a logger for commands that are not daemons. They print their results themselves, so the logger
// writes only errors unless a log level is configured.
func (t *tool) quietLogger(cfg configs.Config) *logrus.Logger {
	log := t.logger(cfg)
	if cfg.Origin("log.level") == "default" {
		log.SetLevel(logrus.ErrorLevel)
	}
	return log
}

// warnUnavailable prints a warning that the broker is unavailable. about is the state of the tasks, for example "task
// stored".
func (t *tool) warnUnavailable(b *app.Backend, about string, err error) {
	if path, embedded := b.Embedded(); embedded && errors.Is(err, holdfast.ErrUnavailable) {
		t.say("warning: %s, but no process is serving %s; start one with: holdfast serve", about, path)
		return
	}
	t.sayError("warning: "+about+", but the broker is unavailable", err)
}

// utc is a formatter that writes times in UTC.
type utc struct{ logrus.Formatter }

func (u utc) Format(entry *logrus.Entry) ([]byte, error) {
	entry.Time = entry.Time.UTC()
	return u.Formatter.Format(entry)
}
