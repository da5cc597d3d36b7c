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

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
)

// brokerPatience is how long a command waits for RabbitMQ before it says that it is away.
const brokerPatience = 3 * time.Second

// action is what a command does.
type action func(ctx context.Context, c *cli.Context) error

// do makes an action of the library's from a command: the number of arguments is checked against
// its ArgsUsage and -o before it starts, and the first Ctrl-C ends its context, the
// second the process.
func (t *tool) do(act action) cli.ActionFunc {
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
			return t.watch(ctx, commandName(c), func() error { return act(ctx, c) })
		}
		err := act(ctx, c)
		if err != nil && ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
}

// checkArguments compares the arguments with ArgsUsage, which is empty, ID, ID... or
// [ID...].
func checkArguments(c *cli.Context) error {
	want, got, name := c.Command.ArgsUsage, c.NArg(), strings.TrimPrefix(commandName(c), "holdfast ")
	many, optional := strings.Contains(want, "..."), strings.HasPrefix(want, "[")
	switch {
	case want == "" && got > 0:
		return usageOf(commandName(c), "%s takes no argument, but got %q", name, c.Args().First())
	case want != "" && !optional && got == 0:
		return usageOf(commandName(c), "%s needs an argument: %s", name, want)
	case want != "" && !many && got > 1:
		return usageOf(commandName(c), "%s takes one argument, but got %d", name, got)
	}
	return nil
}

// commandName is the command as it is typed.
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

// withStore loads the configuration, opens the store and checks its schema.
func (t *tool) withStore(ctx context.Context, c *cli.Context, use func(*app.Backend) error) error {
	return t.withBackend(ctx, c, openCheckedStore, use)
}

// withServers opens the store and the broker, which need not answer.
func (t *tool) withServers(ctx context.Context, c *cli.Context, use func(*app.Backend) error) error {
	return t.withBackend(ctx, c, app.Attach, use)
}

type opener func(context.Context, configs.Config, logrus.FieldLogger) (*app.Backend, error)

func (t *tool) withBackend(ctx context.Context, c *cli.Context, open opener, use func(*app.Backend) error) error {
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	return t.opened(ctx, cfg, open, use)
}

// opened opens a backend, uses it and closes it.
func (t *tool) opened(ctx context.Context, cfg configs.Config, open opener, use func(*app.Backend) error) (err error) {
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

func openCheckedStore(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*app.Backend, error) {
	b, err := app.OpenStore(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	if err := b.Store.CheckSchema(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// logger writes to stderr as configured, in UTC.
func (t *tool) logger(cfg configs.Config) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(t.stderr)
	log.AddHook(hints{})
	if level, err := logrus.ParseLevel(cfg.Log.Level); err == nil { // configs has judged it
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

// quietLogger is for commands that end: they say themselves what matters, unless
// somebody asks for more.
func (t *tool) quietLogger(cfg configs.Config) *logrus.Logger {
	log := t.logger(cfg)
	if cfg.Origin("log.level") == "default" {
		log.SetLevel(logrus.ErrorLevel)
	}
	return log
}

// utc is a formatter that writes times in UTC.
type utc struct{ logrus.Formatter }

func (u utc) Format(entry *logrus.Entry) ([]byte, error) {
	entry.Time = entry.Time.UTC()
	return u.Formatter.Format(entry)
}
