package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/demo"
)

func (t *tool) demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "a tour on the configured servers: a flaky target, retries, a killed worker, dead letters",
		Description: `Starts a flaky HTTP target, two worker processes and a janitor process, enqueues messages,
kills one worker with kill -9 in the middle, and ends with a table of facts counted at the
target. It migrates the schema up first and uses a lane of its own, demo. Its dead messages
stay, to look around.

Example:
  make demo                            # starts servers first, if need be
  holdfast demo --messages 5000`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "messages", Usage: "how many messages to enqueue, at least 100", Value: 2000},
		},
		Action: t.do(t.demo),
	}
}

func (t *tool) demo(ctx context.Context, c *cli.Context) error {
	if c.Int("messages") < 100 {
		return usageOf(commandName(c), "--messages %d is too few for a tour; at least 100", c.Int("messages"))
	}
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	if err := migrateFirst(ctx, cfg, t.quietLogger(cfg)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return t.withBroker(ctx, c, func(b *app.Backend) error {
		return demo.Run(ctx, demo.Options{
			Backend: b, Binary: self, Messages: c.Int("messages"), Out: t.stdout, Terminal: isTerminal(t.stdout),
		})
	})
}
