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
)

// serveCommand is the command serve.
type serveCommand struct{ *tool }

func (t serveCommand) command() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "run tasks and look after them until told to stop",
		Description: `Runs a worker, which runs tasks; a janitor, which heals what crashes leave behind; and the
health and metrics endpoints.

With nothing configured the tasks are kept in a file, holdfast/holdfast.db in your data folder, and
the broker is part of this process. One process serves a file; enqueue, task, dead, queue and worker
reach it from anywhere on the machine. DATABASE_URL=sqlite:/path/to/file.db chooses another one.

With DATABASE_URL and AMQP_URL of PostgreSQL and RabbitMQ any number of processes share the work, and
--roles splits it. PostgreSQL must answer at the start and its schema be the right one; RabbitMQ may
be away, it is connected to when it is back. Later both are waited for, for ever.

SIGTERM or Ctrl-C drains: no new tasks, and running ones get --drain-timeout to finish. A second
signal hands them back at once, a third kills. What was handed back runs elsewhere, or later,
and no attempt is counted. SIGHUP is ignored: to load a changed configuration, restart the process.

Example:
  holdfast serve
  holdfast serve --migrate --concurrency 100 --lanes default,mail`,
		Flags: []cli.Flag{
			setting("roles", "roles", "ROLES"),
			setting("listen", "listen", "HOST:PORT"),
			settings("lanes", "worker.lanes", "LANE"),
			setting("concurrency", "worker.concurrency", "N"),
			setting("name", "worker.name", "NAME"),
			setting("drain-timeout", "worker.drain_timeout", "DURATION"),
			settings("allow-cidr", "webhook.allow_cidrs", "CIDR"),
			&cli.BoolFlag{Name: "migrate", Usage: "apply missing migrations first; to a file they always are"},
		},
		Action: t.run,
	}
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
	ctx, abort, stop := onSignals(c.Context, log, cfg)
	defer stop()
	b, err := openToServe(ctx, cfg, log, c.Bool("migrate"))
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	err = daemon.Serve(ctx, daemon.Options{Backend: b, Version: version, Abort: abort})
	if closeErr := b.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("close: %w", closeErr)
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// openToServe opens both servers, on a schema that is migrated first if that was asked for.
func openToServe(ctx context.Context, cfg configs.Config, log logrus.FieldLogger, migrate bool) (*app.Backend, error) {
	if migrate {
		if _, err := app.Migrate(ctx, cfg, log); err != nil {
			return nil, err
		}
	}
	return daemon.Open(ctx, cfg, log)
}

// onSignals turns the first SIGTERM or SIGINT into the end of the context and the second into the closing of abort; the
// third is the operating system's. SIGHUP is only logged: many daemons read their configuration again on it, and it
// ends a program that does not handle it. stop ends the watch.
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
				log.Warn("SIGHUP ignored: the configuration is read at the start only; restart the process to load it")
			case <-ended:
				return
			}
		}
	})
	watch.Go(func() {
		select {
		case <-signals:
			log.Infof("draining: running tasks have %s to finish; send the signal again to hand them back now", cfg.Worker.DrainTimeout)
			cancel()
		case <-ended:
			return
		}
		select {
		case <-signals:
			log.Warn("stopping now: running tasks are handed back; send the signal again to kill this process")
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
