package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
)

// holdfastServers is Holdfast on PostgreSQL and RabbitMQ, in holdfastPlace.
var (
	holdfastPlace   = place{"bench_holdfast", "bench"}
	holdfastServers = holdfastPlace.system("Holdfast")
)

// holdfastEmbedded is Holdfast in one process on a file.
var holdfastEmbedded = system{
	name: "Holdfast embedded", ours: true,
	settings: "One process on a file, without servers, 100 executors, all other settings at their defaults.",
	reset: func(ctx context.Context) error {
		if err := os.RemoveAll(embeddedFolder); err != nil {
			return err
		}
		return os.MkdirAll(embeddedFolder, 0o700)
	},
	open: func(ctx context.Context, executors int) (queue, error) {
		return newHoldfast(ctx, executors, embeddedSettings)
	},
}

var (
	embeddedFolder   = filepath.Join(os.TempDir(), "holdfast-bench")
	embeddedSettings = []string{"HOLDFAST_DATABASE_URL=sqlite:" + filepath.Join(embeddedFolder, "holdfast.db"), "HOLDFAST_AMQP_URLS=inproc:", "DATABASE_URL=", "AMQP_URL="}
)

// openHoldfast applies the migrations and opens a backend with the given environment variables.
func openHoldfast(ctx context.Context, executors int, settings []string) (*app.Backend, error) {
	cfg, err := configs.Load(configs.Options{Env: append(os.Environ(), settings...)})
	if err != nil {
		return nil, err
	}
	cfg.Listen, cfg.Worker.Concurrency = "", executors
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

func newHoldfast(ctx context.Context, executors int, settings []string) (queue, error) {
	b, err := openHoldfast(ctx, executors, settings)
	if err != nil {
		return nil, err
	}
	return app.NewBenchQueue(b, daemon.Metrics(nil)), nil
}
