package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/demo"
	"github.com/holdfastq/holdfast/internal/logs"
)

type demoCommand struct{ *tool }

func (t demoCommand) command() *cli.Command {
	return t.verb("demo", "show retries, recovery after kill -9, and dead letters",
		`Starts a flaky HTTP target, and holdfast serve on a new file in a temporary folder. Enqueues messages, kills
the server with kill -9 while it delivers them, and starts it again. At the end it prints a table of facts counted at
the target. The demo needs no installation and no configuration, and it does not touch configured servers. With --keep,
holdfast serve keeps running on the file, and the demo prints commands to explore it.

With --servers the demo uses the configured PostgreSQL and RabbitMQ. It runs two workers and a janitor, each in a
process of its own, and kills one worker. It first applies missing migrations. It uses the queue demo, and its dead
tasks stay in the store.

Example:
  holdfast demo --keep
  holdfast demo --servers --messages 5000`,
		action{run: t.run, flags: requestFlags[demoRequest]()})
}

// demoRequest is the request of demo.
type demoRequest struct {
	Messages int  `json:"messages" flag:"N" default:"2000" minimum:"100" doc:"How many messages to enqueue, at least 100."`
	Keep     bool `json:"keep" flag:"-" doc:"Keep holdfast serve running on the file of the demo."`
	Servers  bool `json:"servers" flag:"-" doc:"Use the configured PostgreSQL and RabbitMQ."`
}

func (t demoCommand) run(ctx context.Context, c *cli.Context) error {
	var r demoRequest
	if err := readRequest(c, &r); err != nil {
		return err
	}
	if r.Keep && r.Servers {
		return usageOf(commandName(c), "give --keep or --servers, not both; with --servers the tasks stay in the database")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return err
	}
	o := demo.Options{
		Binary: self, Logs: folder, Messages: r.Messages, Prune: r.Keep, Out: t.stdout, Terminal: isTerminal(t.stdout),
	}
	err = t.runOn(ctx, c, o)
	if err == nil && !o.Prune || ctx.Err() != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	_ = os.Remove(folder) // fails if the folder has logs, which the error refers to
	return err
}

// runOn opens the file or the servers, and runs the demo on them.
func (t demoCommand) runOn(ctx context.Context, c *cli.Context, o demo.Options) error {
	cfg := configs.Default()
	cfg.Database.URL = configs.EmbeddedDatabase + filepath.Join(o.Logs, "holdfast.db")
	if c.Bool("servers") {
		var err error
		if cfg, err = t.load(c); err != nil {
			return err
		}
		if cfg.Embedded() {
			return &failure{err: errors.New("--servers needs PostgreSQL and RabbitMQ, but they are not configured"), code: exitUsage, hint: "set DATABASE_URL and AMQP_URL, or: make demo-servers"}
		}
	}
	cfg.Webhook.AllowCIDRs = []netip.Prefix{demo.TargetNetwork}
	log := t.quietLogger(cfg)
	logs.RouteStandard(log)
	if _, err := app.Migrate(ctx, cfg, log); err != nil {
		return err
	}
	return t.useBackend(ctx, cfg, daemon.Open, func(b *app.Backend) error {
		if !cfg.Embedded() {
			if err := b.Ping(ctx, brokerTimeout); err != nil {
				return err
			}
		}
		o.Backend = b
		return demo.Run(ctx, o)
	})
}
