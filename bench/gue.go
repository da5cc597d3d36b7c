package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"
)

const gueSchema = "bench_gue"

var gueSystem = system{
	name: "gue", module: "github.com/vgarvardt/gue/v5", servers: []string{databaseURL},
	settings: "20 workers, each with an open transaction while its task runs; tasks taken in the order of run_at, for which there is an " +
		"index; poll interval 10 ms, 40 connections; tasks stored with EnqueueBatch.",
	executors: 20, // a worker has an open transaction while its task runs; more workers would only wait for each other
	reset: func(ctx context.Context) error {
		return execute(ctx, "drop schema if exists "+gueSchema+" cascade", "create schema "+gueSchema,
			`create table `+gueSchema+`.gue_jobs (
				job_id text primary key, priority smallint not null, run_at timestamptz not null, job_type text not null,
				args bytea not null, error_count integer not null default 0, last_error text, queue text not null,
				created_at timestamptz not null, updated_at timestamptz not null
			)`,
			"create index idx_gue_jobs_selector on "+gueSchema+".gue_jobs (queue, run_at, priority)")
	},
	open: func(ctx context.Context, executors int) (queue, error) {
		pool, err := pool(ctx, gueSchema, int32(2*executors))
		if err != nil {
			return nil, err
		}
		client, err := gue.NewClient(pgxv5.NewConnPool(pool))
		return &gueQueue{executors, pool, client}, err
	},
	analyze: func(ctx context.Context) error { return execute(ctx, "vacuum analyze "+gueSchema+".gue_jobs") },
}

type gueQueue struct {
	executors int
	pool      *pgxpool.Pool
	client    *gue.Client
}

func (q *gueQueue) Close() error {
	q.pool.Close()
	return nil
}

func (q *gueQueue) Fill(ctx context.Context, payloads [][]byte) error {
	jobs := make([]*gue.Job, len(payloads))
	for i, p := range payloads {
		jobs[i] = &gue.Job{Type: taskType, Args: p}
	}
	return q.client.EnqueueBatch(ctx, jobs)
}

func (q *gueQueue) Put(ctx context.Context, payload []byte, delay time.Duration) error {
	job := &gue.Job{Type: taskType, Args: payload}
	if delay > 0 {
		job.RunAt = time.Now().Add(delay)
	}
	return q.client.Enqueue(ctx, job)
}

func (q *gueQueue) Work(ctx context.Context, handle func([]byte) error) error {
	jobs := gue.WorkMap{taskType: func(_ context.Context, j *gue.Job) error { return handle(j.Args) }}
	workers, err := gue.NewWorkerPool(q.client, jobs, q.executors,
		// The default is 5 s.
		gue.WithPoolPollInterval(10*time.Millisecond),
		// The index has this order. With the default order, the server sorts all due tasks for each task.
		gue.WithPoolPollStrategy(gue.RunAtPollStrategy),
		// Running tasks finish and are stored after ctx is done.
		gue.WithPoolWorkerContextFactory(context.WithoutCancel))
	if err != nil {
		return err
	}
	return workers.Run(ctx)
}
