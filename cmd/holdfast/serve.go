package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/logs"
)

type serveCommand struct{ *tool }

func (t serveCommand) command() *cli.Command {
	command := t.verb("serve", "run tasks until a signal stops the process",
		`Runs three components: a worker, which runs tasks; a janitor, which recovers the tasks of crashed
workers; and the health and metrics endpoints.

Without configuration, the tasks are in a file, holdfast/holdfast.db in your data folder, and the broker is part of this
process. Only one process can serve a file. The commands enqueue, task, dead, queue and worker can use the file at the
same time. DATABASE_URL=sqlite:/path/to/file.db sets another file.

The role api adds the HTTP API under /api/v1 at the address of --listen; see docs/api.md.

If OTEL_EXPORTER_OTLP_ENDPOINT is set, such as http://localhost:4318, the process sends the traces of tasks there; see
docs/tracing.md.

With DATABASE_URL and AMQP_URL of PostgreSQL and RabbitMQ, any number of processes share the work, and --roles splits
it. At the start PostgreSQL must be available and its schema must be current. RabbitMQ may be unavailable; the process
connects as soon as it can. Later the process waits for either server without a time limit.

SIGTERM or Ctrl-C starts a drain: the worker takes no new tasks, and running tasks have the --drain-timeout to finish. A
second signal hands running tasks back at once, and a third one kills the process. A task that was handed back runs in
another process, or later, and the attempt is not counted. SIGHUP is ignored. To load a changed configuration, restart
the process. If the reader of the log goes away, the process continues without a log.

Example:
  holdfast serve
  holdfast serve --roles worker,janitor,api
  holdfast serve --migrate --concurrency 100 --queues default,mail`,
		action{flags: []cli.Flag{
			setting("roles", "roles", "ROLES"),
			setting("listen", "listen", "HOST:PORT"),
			settings("queues", "worker.queues", "QUEUE"),
			setting("concurrency", "worker.concurrency", "N"),
			setting("name", "worker.name", "NAME"),
			setting("drain-timeout", "worker.drain_timeout", "DURATION"),
			settings("allow-cidr", "webhook.allow_cidrs", "CIDR"),
			&cli.BoolFlag{Name: "migrate", Usage: "apply missing migrations to the servers first; a file is always migrated"},
		}})
	command.Action = t.run // run handles signals itself
	return command
}

func (t serveCommand) run(c *cli.Context) error {
	if err := checkArguments(c); err != nil {
		return err
	}
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	log := t.logger(cfg)
	logs.RouteStandard(log)
	ctx, abort, stop := onSignals(c.Context, log, cfg)
	defer stop()
	b, err := openToServe(ctx, cfg, log, c.Bool("migrate"))
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	err = daemon.Serve(ctx, daemon.Options{Backend: b, Version: version, Abort: abort, Hint: hintText})
	if closeErr := b.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("close: %w", closeErr)
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// openToServe opens the store and the broker. If migrate is set, it first applies missing migrations.
func openToServe(ctx context.Context, cfg configs.Config, log logrus.FieldLogger, migrate bool) (*app.Backend, error) {
	if migrate {
		if _, err := app.Migrate(ctx, cfg, log); err != nil {
			return nil, err
		}
	}
	return daemon.Open(ctx, cfg, log)
}

// onSignals cancels ctx at the first SIGTERM or SIGINT and closes abort at the second one. The operating system handles
// the third one. SIGHUP is only logged: it would end a program that does not handle it, and many daemons use it to
// reload their configuration. The caller must call stop, which stops the goroutines that wait for signals.
func onSignals(parent context.Context, log logrus.FieldLogger, cfg configs.Config) (ctx context.Context, abort <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	now, ended := make(chan struct{}), make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-hangups:
				log.Warn("SIGHUP ignored: restart the process to load a changed configuration")
			case <-ended:
				return
			}
		}
	})
	watch.Go(func() {
		select {
		case <-signals:
			log.WithField("limit", cfg.Worker.DrainTimeout.String()).Info("draining: send the signal again to hand running tasks back now")
			cancel()
		case <-ended:
			return
		}
		select {
		case <-signals:
			log.Warn("stopping: handing running tasks back; send the signal again to kill this process")
			signal.Stop(signals)
			close(now)
		case <-ended:
		}
	})
	return ctx, now, func() {
		close(ended)
		watch.Wait()
		signal.Stop(signals)
		signal.Stop(hangups)
		cancel()
	}
}
