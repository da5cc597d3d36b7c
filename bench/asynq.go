package main

import (
	"context"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const asynqQueueName = "bench"

// asynqCallers is how many goroutines store tasks, because a call of asynq stores only one task.
const asynqCallers = 32

var asynqSystem = system{
	name: "asynq", module: "github.com/hibiken/asynq", servers: []string{redisURL},
	settings: "Concurrency 100, task check interval 1 ms, delayed task check interval 10 ms, no retention. Tasks are stored from 32 " +
		"goroutines, because a call stores only one task. Redis writes to the disk once per second: a crash of the machine may " +
		"lose the tasks of the last second. Delays end on whole seconds: a task may run up to a second early.",
	// The reset deletes only the keys of this queue, because the server may have other users.
	reset: func(ctx context.Context) error {
		client, err := dialRedis()
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }()
		for cursor := uint64(0); ; {
			var keys []string
			if keys, cursor, err = client.Scan(ctx, cursor, "asynq:{"+asynqQueueName+"}:*", 1000).Result(); err != nil {
				return err
			}
			if len(keys) > 0 {
				if err := client.Unlink(ctx, keys...).Err(); err != nil {
					return err
				}
			}
			if cursor == 0 {
				return nil
			}
		}
	},
	open: func(_ context.Context, executors int) (queue, error) {
		client, err := dialRedis()
		if err != nil {
			return nil, err
		}
		return &asynqQueue{executors, client, asynq.NewClientFromRedisClient(client)}, nil
	},
}

func dialRedis() (*redis.Client, error) {
	options, err := redis.ParseURL(os.Getenv(redisURL))
	if err != nil {
		return nil, err
	}
	options.PoolSize = concurrency
	return redis.NewClient(options), nil
}

type asynqQueue struct {
	executors int
	redis     *redis.Client
	client    *asynq.Client
}

func (q *asynqQueue) Close() error { return q.redis.Close() }

func (q *asynqQueue) Fill(ctx context.Context, payloads [][]byte) error {
	return putConcurrently(ctx, asynqCallers, payloads, func(ctx context.Context, payload []byte) error { return q.Put(ctx, payload, 0) })
}

func (q *asynqQueue) Put(ctx context.Context, payload []byte, delay time.Duration) error {
	o := []asynq.Option{asynq.Queue(asynqQueueName)}
	if delay > 0 {
		o = append(o, asynq.ProcessIn(delay))
	}
	_, err := q.client.EnqueueContext(ctx, asynq.NewTask(taskType, payload), o...)
	return err
}

func (q *asynqQueue) Work(ctx context.Context, handle func([]byte) error) error {
	server := asynq.NewServerFromRedisClient(q.redis, asynq.Config{
		Concurrency: q.executors, Queues: map[string]int{asynqQueueName: 1}, LogLevel: asynq.ErrorLevel,
		// The defaults are 1 s and 5 s.
		TaskCheckInterval: time.Millisecond, DelayedTaskCheckInterval: 10 * time.Millisecond,
	})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error { return handle(t.Payload()) }))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}
