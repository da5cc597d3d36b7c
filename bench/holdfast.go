package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/producer"
)

// On PostgreSQL and RabbitMQ, with all promises: claims, the holding queue, fencing, the outbox.
var holdfastServers = system{
	name: "Holdfast", servers: []string{databaseURL, amqpURL},
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
	name: "Holdfast embedded",
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
	env := append(os.Environ(), append(settings, "HOLDFAST_LISTEN=")...)
	cfg, err := configs.Load(configs.Options{Env: env})
	if err != nil {
		return nil, err
	}
	cfg.Worker.Concurrency = concurrency
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

type holdfastQueue struct {
	backend  *app.Backend
	producer *producer.Producer
}

func newHoldfast(ctx context.Context, settings []string) (queue, error) {
	b, err := openHoldfast(ctx, settings)
	if err != nil {
		return nil, err
	}
	return &holdfastQueue{b, b.Producer(nil)}, nil
}

const taskType = "bench"

func (q *holdfastQueue) Fill(ctx context.Context, payloads [][]byte) error {
	tasks := make([]holdfast.NewTask, len(payloads))
	for i, payload := range payloads {
		tasks[i] = holdfast.NewTask{Type: taskType, Payload: payload}
	}
	_, err := q.producer.EnqueueMany(ctx, tasks)
	return err
}

func (q *holdfastQueue) Put(ctx context.Context, payload []byte, delay time.Duration) error {
	_, err := q.producer.Enqueue(ctx, holdfast.NewTask{Type: taskType, Payload: payload, Delay: delay})
	return err
}

// Work runs the roles of `holdfast serve`.
func (q *holdfastQueue) Work(ctx context.Context, handle func([]byte) error) error {
	return app.Serve(ctx, app.ServeOptions{Backend: q.backend, Handlers: func(r *consumer.Registry) {
		r.Add(taskType, consumer.HandlerFunc(func(_ context.Context, t holdfast.Task) error { return handle(t.Payload) }))
	}})
}

func (q *holdfastQueue) Close() error {
	if err := q.producer.Close(); err != nil {
		return err
	}
	return q.backend.Close()
}
