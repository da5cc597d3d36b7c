package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const riverSchema = "bench_river"

// riverCooldown is the shortest time that River allows between two fetches.
const riverCooldown = time.Millisecond

var riverSystem = system{
	name: "River", module: "github.com/riverqueue/river", servers: []string{databaseURL},
	settings: "2,000 workers, so that it fetches large batches, and 100 while memory is measured; fetch cooldown 1 ms, poll interval " +
		"100 ms, 20 connections; tasks stored with InsertManyFast.",
	executors: 2000, schema: riverSchema,
	reset: func(ctx context.Context) error {
		if err := execute(ctx, "drop schema if exists "+riverSchema+" cascade", "create schema "+riverSchema); err != nil {
			return err
		}
		pool, err := pgxpool.New(ctx, schemaURL(riverSchema))
		if err != nil {
			return err
		}
		defer pool.Close()
		migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: riverSchema, Logger: discardLog})
		if err != nil {
			return err
		}
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	},
	open: func(ctx context.Context, executors int) (queue, error) {
		pool, err := pool(ctx, riverSchema, databaseConnections)
		if err != nil {
			return nil, err
		}
		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
			Schema: riverSchema, Logger: discardLog,
			FetchCooldown: riverCooldown, // also the minimum time between two notifications of the workers
		})
		return &riverQueue{executors, pool, client}, err
	},
	analyze: func(ctx context.Context) error { return execute(ctx, "vacuum analyze "+riverSchema+".river_job") },
}

var discardLog = slog.New(slog.NewTextHandler(io.Discard, nil))

type riverQueue struct {
	executors int
	pool      *pgxpool.Pool
	client    *river.Client[pgx.Tx]
}

func (q *riverQueue) Close() error {
	q.pool.Close()
	return nil
}

type riverArgs struct {
	Payload json.RawMessage `json:"payload"`
}

func (riverArgs) Kind() string { return "bench" }

func (q *riverQueue) Fill(ctx context.Context, payloads [][]byte) error {
	jobs := make([]river.InsertManyParams, len(payloads))
	for i, p := range payloads {
		jobs[i] = river.InsertManyParams{Args: riverArgs{p}}
	}
	_, err := q.client.InsertManyFast(ctx, jobs)
	return err
}

func (q *riverQueue) Put(ctx context.Context, payload []byte, delay time.Duration) error {
	var o *river.InsertOpts
	if delay > 0 {
		o = &river.InsertOpts{ScheduledAt: time.Now().Add(delay)}
	}
	_, err := q.client.Insert(ctx, riverArgs{payload}, o)
	return err
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	handle func([]byte) error
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	return w.handle(job.Args.Payload)
}

func (q *riverQueue) Work(ctx context.Context, handle func([]byte) error) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handle: handle})
	client, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		Schema: riverSchema, Logger: discardLog, Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: q.executors}},
		// The shortest times that River allows. The defaults are 100 ms and 1 s.
		FetchCooldown: riverCooldown, FetchPollInterval: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}
