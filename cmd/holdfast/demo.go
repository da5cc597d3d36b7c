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
)

// demoCommand is the command demo.
type demoCommand struct{ *tool }

func (t demoCommand) command() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "a tour: a flaky target, retries, a process killed in the middle, dead letters",
		Description: `Starts a flaky HTTP target and holdfast serve on a new file in a temporary folder, enqueues messages,
kills the server with kill -9 in the middle, starts it again, and ends with a table of facts counted
at the target. Nothing needs to be installed or configured, and nothing configured is touched.
--keep leaves the file, and holdfast serve running on it, with the commands to look around.

With --servers the tour is on the configured PostgreSQL and RabbitMQ: two workers and a janitor, each a
process, of which one worker is killed. It migrates the schema up first and uses a lane of its own,
demo. Its dead messages stay, to look around.

Example:
  holdfast demo --keep
  holdfast demo --servers --messages 5000`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "messages", Usage: "how many messages to enqueue, at least 100", Value: 2000},
			&cli.BoolFlag{Name: "keep", Usage: "leave holdfast serve running on what the tour leaves"},
			&cli.BoolFlag{Name: "servers", Usage: "give the tour on the configured PostgreSQL and RabbitMQ"},
		},
		Action: t.do(t.run),
	}
}

func (t demoCommand) run(ctx context.Context, c *cli.Context) error {
	switch {
	case c.Int("messages") < 100:
		return usageOf(commandName(c), "--messages %d is too few for a tour; at least 100", c.Int("messages"))
	case c.Bool("keep") && c.Bool("servers"):
		return usageOf(commandName(c), "--keep is for the tour without servers; with --servers the messages stay in the database anyway")
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
		Binary: self, Logs: folder, Messages: c.Int("messages"), Keep: c.Bool("keep"), Out: t.stdout, Terminal: isTerminal(t.stdout),
	}
	err = t.tour(ctx, c, o)
	if err == nil && !o.Keep || ctx.Err() != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	_ = os.Remove(folder) // which fails if logs are in it: they are left where the error says
	return err
}

// tour opens what the tour is on, and gives it.
func (t demoCommand) tour(ctx context.Context, c *cli.Context, o demo.Options) error {
	cfg := configs.Default()
	cfg.Database.URL = configs.EmbeddedDatabase + filepath.Join(o.Logs, "holdfast.db")
	if c.Bool("servers") {
		var err error
		if cfg, err = t.load(c); err != nil {
			return err
		}
		if cfg.Embedded() {
			return &failure{errors.New("--servers needs PostgreSQL and RabbitMQ, and none is configured"), exitUsage, "set DATABASE_URL and AMQP_URL, or: make demo-servers"}
		}
	}
	cfg.Webhook.AllowCIDRs = []netip.Prefix{demo.TargetNetwork}
	log := t.quietLogger(cfg)
	if _, err := app.Migrate(ctx, cfg, log); err != nil {
		return err
	}
	return t.opened(ctx, cfg, daemon.Open, func(b *app.Backend) error {
		if !cfg.Embedded() {
			if err := b.Ping(ctx, brokerPatience); err != nil {
				return err
			}
		}
		o.Backend = b
		return demo.Run(ctx, o)
	})
}
