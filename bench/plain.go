package main

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"
)

// plain is a worker that a team could write by hand. A row records a task, a message carries the payload, and results
// and acks are batched. It promises less than Holdfast: after a crash between insert and publish, no process publishes
// the message. A task may run twice at the same time. There are no delays and no count of attempts.
var plain = system{
	name: "plain RabbitMQ worker", servers: []string{databaseURL, amqpURL},
	settings: "A worker that a team could write by hand: a row for each task, a message with the payload in a quorum queue, prefetch " +
		"2,000, 100 handlers, 20 connections to PostgreSQL, results and acks in batches. After a crash between insert and publish, no " +
		"process publishes the message. A task may run twice at the same time. There are no delays and no count of attempts.",
	reset: func(ctx context.Context) error {
		err := execute(ctx, "drop schema if exists bench_plain cascade", "create schema bench_plain",
			`create table bench_plain.tasks (
				id bigint generated always as identity primary key, state text not null default 'ready',
				payload json not null, created_at timestamptz not null default now(), finished_at timestamptz
			) with (fillfactor = 70)`)
		if err != nil {
			return err
		}
		conn, channel, err := dialPlain()
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err = channel.QueueDelete(plainQueueName, false, false, false); err != nil {
			return err
		}
		_, err = channel.QueueDeclare(plainQueueName, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
		return err
	},
	open: func(ctx context.Context, executors int) (queue, error) {
		pool, err := pool(ctx, "bench_plain", databaseConnections)
		if err != nil {
			return nil, err
		}
		conn, channel, err := dialPlain()
		if err != nil {
			return nil, err
		}
		q := &plainQueue{executors: executors, pool: pool, conn: conn, channel: channel, channels: make(chan *amqp.Channel, plainGroups)}
		for range plainGroups {
			groupChannel, err := conn.Channel()
			if err == nil {
				err = groupChannel.Confirm(false)
			}
			if err != nil {
				return nil, err
			}
			q.channels <- groupChannel
		}
		return q, channel.Confirm(false)
	},
	analyze: func(ctx context.Context) error { return execute(ctx, "vacuum analyze bench_plain.tasks") },
}

const plainQueueName = "bench.plain"

// While the broker confirms one publish group, Fill publishes the next one on another channel. A group must not be too
// large, because for each confirm the client scans all outstanding confirms of the channel.
const (
	plainGroups    = 3
	plainGroupSize = 500
)

func dialPlain() (*amqp.Connection, *amqp.Channel, error) {
	conn, err := amqp.Dial(os.Getenv(amqpURL))
	if err != nil {
		return nil, nil, err
	}
	channel, err := conn.Channel()
	return conn, channel, err
}

type plainQueue struct {
	executors int
	pool      *pgxpool.Pool
	conn      *amqp.Connection
	channel   *amqp.Channel // channel for single tasks
	channels  chan *amqp.Channel
}

func (q *plainQueue) Close() error {
	q.pool.Close()
	return q.conn.Close()
}

func (q *plainQueue) Fill(ctx context.Context, payloads [][]byte) error {
	filling, ctx := errgroup.WithContext(ctx)
	for group := range slices.Chunk(payloads, plainGroupSize) {
		filling.Go(func() error { return q.fill(ctx, group) })
	}
	return filling.Wait()
}

func (q *plainQueue) fill(ctx context.Context, payloads [][]byte) error {
	channel := <-q.channels
	defer func() { q.channels <- channel }()
	texts := make([]string, len(payloads))
	for i, p := range payloads {
		texts[i] = string(p)
	}
	rows, err := q.pool.Query(ctx, "insert into tasks (payload) select p::json from unnest($1::text[]) as p returning id", texts)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uint64])
	if err != nil {
		return err
	}
	confirms := make([]*amqp.DeferredConfirmation, len(ids))
	for i, id := range ids {
		if confirms[i], err = publishPlain(ctx, channel, id, payloads[i]); err != nil {
			return err
		}
	}
	for _, confirm := range confirms {
		if err := confirmed(ctx, confirm); err != nil {
			return err
		}
	}
	return nil
}

func confirmed(ctx context.Context, confirm *amqp.DeferredConfirmation) error {
	ok, err := confirm.WaitContext(ctx)
	if err == nil && !ok {
		err = errors.New("RabbitMQ refused a message")
	}
	return err
}

func publishPlain(ctx context.Context, channel *amqp.Channel, id uint64, payload []byte) (*amqp.DeferredConfirmation, error) {
	return channel.PublishWithDeferredConfirmWithContext(ctx, "", plainQueueName, false, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: binary.BigEndian.AppendUint64(slices.Clone(payload), id)})
}

func (q *plainQueue) Put(ctx context.Context, payload []byte, delay time.Duration) error {
	if delay > 0 {
		return errUnsupported
	}
	var id uint64
	if err := q.pool.QueryRow(ctx, "insert into tasks (payload) values ($1::json) returning id", string(payload)).Scan(&id); err != nil {
		return err
	}
	confirm, err := publishPlain(ctx, q.channel, id, payload)
	if err != nil {
		return err
	}
	return confirmed(ctx, confirm)
}

type plainResult struct {
	id  uint64
	tag uint64
}

func (q *plainQueue) Work(ctx context.Context, handle func([]byte) error) error {
	channel, err := q.conn.Channel()
	if err != nil {
		return err
	}
	defer channel.Close()
	if err := channel.Qos(2000, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.ConsumeWithContext(ctx, plainQueueName, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	results := make(chan plainResult, 2000)
	var handlers sync.WaitGroup
	for range q.executors {
		handlers.Go(func() {
			for d := range deliveries {
				at := len(d.Body) - 8
				if handle(d.Body[:at]) == nil {
					results <- plainResult{binary.BigEndian.Uint64(d.Body[at:]), d.DeliveryTag}
				}
			}
		})
	}
	go func() {
		handlers.Wait()
		close(results)
	}()
	return q.settle(channel, results)
}

// settle writes results in batches that grow with the load. After each batch, it acks all messages before the first one
// that is not done.
func (q *plainQueue) settle(channel *amqp.Channel, results <-chan plainResult) error {
	done := make(map[uint64]bool)
	acked := uint64(0)
	for first := range results {
		batch := []plainResult{first}
		for len(batch) < 500 && len(results) > 0 {
			batch = append(batch, <-results)
		}
		ids := make([]int64, len(batch))
		for i, r := range batch {
			ids[i], done[r.tag] = int64(r.id), true
		}
		slices.Sort(ids)
		if _, err := q.pool.Exec(context.Background(), "update tasks set state = 'done', finished_at = now() where id = any($1)", ids); err != nil {
			return err
		}
		through := acked
		for done[through+1] {
			through++
			delete(done, through)
		}
		if through > acked {
			if err := channel.Ack(through, true); err != nil {
				return err
			}
			acked = through
		}
	}
	return nil
}
