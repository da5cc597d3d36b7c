package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
)

// On PostgreSQL and RabbitMQ, with all promises: claims, the holding queue, fencing, the outbox.
var holdfastServers = system{
	name: "Holdfast", ours: true, servers: []string{databaseURL, amqpURL},
	settings: "Rows in PostgreSQL and quorum queues in RabbitMQ, 100 executors, everything else by default.",
	fresh: func(ctx context.Context) error {
		if err := execute(ctx, "drop schema if exists "+holdfastSchema+" cascade"); err != nil {
			return err
		}
		b, err := openHoldfast(ctx, nil)
		if err != nil {
			return err
		}
		defer b.Close()
		if err := b.Topology.Delete(ctx, b.Broker, []string{"default"}); err != nil {
			return err
		}
		_, err = b.Rebuild(ctx)
		return err
	},
	open:    func(ctx context.Context) (queue, error) { return newHoldfast(ctx, nil) },
	analyze: func(ctx context.Context) error { return execute(ctx, "vacuum analyze "+holdfastSchema+".tasks") },
}

// In one process, on a file.
var holdfastEmbedded = system{
	name: "Holdfast embedded", ours: true,
	settings: "The same in one process on a file, without servers.",
	fresh: func(ctx context.Context) error {
		if err := os.RemoveAll(embeddedFolder); err != nil {
			return err
		}
		return os.MkdirAll(embeddedFolder, 0o700)
	},
	open: func(ctx context.Context) (queue, error) {
		return newHoldfast(ctx, []string{"HOLDFAST_DATABASE_URL=sqlite:" + filepath.Join(embeddedFolder, "holdfast.db"), "HOLDFAST_AMQP_URLS=inproc:", "DATABASE_URL=", "AMQP_URL="})
	},
}

const holdfastSchema = "bench_holdfast"

var embeddedFolder = filepath.Join(os.TempDir(), "holdfast-bench")

func openHoldfast(ctx context.Context, settings []string) (*app.Backend, error) {
	if settings == nil {
		settings = []string{"HOLDFAST_DATABASE_SCHEMA=" + holdfastSchema, "HOLDFAST_AMQP_PREFIX=bench"}
	}
	cfg, err := configs.Load(configs.Options{Env: append(os.Environ(), settings...)})
	if err != nil {
		return nil, err
	}
	cfg.Listen, cfg.Worker.Concurrency = "", concurrency
	log := logrus.New()
	log.SetOutput(io.Discard)
	if os.Getenv("BENCH_LOG") != "" {
		log.SetOutput(os.Stderr)
	}
	if _, err := app.Migrate(ctx, cfg, log); err != nil {
		return nil, err
	}
	return app.Open(ctx, cfg, log)
}

func newHoldfast(ctx context.Context, settings []string) (queue, error) {
	b, err := openHoldfast(ctx, settings)
	if err != nil {
		return nil, err
	}
	return app.NewBenchQueue(b), nil
}
