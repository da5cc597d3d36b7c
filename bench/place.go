package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastq/holdfast"
)

// place is a schema and a prefix for the names of AMQP queues. Only this program uses it, to measure Holdfast on
// servers.
type place struct{ schema, prefix string }

func (p place) settings() []string {
	return []string{"HOLDFAST_DATABASE_SCHEMA=" + p.schema, "HOLDFAST_AMQP_PREFIX=" + p.prefix}
}

func (p place) system(name string) system {
	return system{
		name: name, ours: true, servers: []string{databaseURL, amqpURL},
		settings: "PostgreSQL, and RabbitMQ with quorum queues, 100 executors, all other settings at their defaults.",
		schema:   p.schema,
		reset:    p.reset,
		open: func(ctx context.Context, executors int) (queue, error) {
			return newHoldfast(ctx, executors, p.settings())
		},
		analyze: p.analyze,
	}
}

func (p place) tasks() string { return p.schema + ".tasks" }

func (p place) analyze(ctx context.Context) error { return execute(ctx, "vacuum analyze "+p.tasks()) }

// reset deletes the place and creates it again.
func (p place) reset(ctx context.Context) error {
	if err := p.delete(ctx); err != nil {
		return err
	}
	b, err := openHoldfast(ctx, concurrency, p.settings())
	if err != nil {
		return err
	}
	defer b.Close()
	// AMQP queues of a schema that was dropped may still exist.
	if err := b.Topology.Delete(ctx, b.Broker, queues); err != nil {
		return err
	}
	_, err = b.Rebuild(ctx)
	return err
}

// delete deletes the AMQP queues and then the schema. The name of one exchange contains an id that is in the schema.
func (p place) delete(ctx context.Context) error {
	found, err := p.exists(ctx)
	if err != nil || !found {
		return err
	}
	b, err := openHoldfast(ctx, concurrency, p.settings())
	if err != nil {
		return fmt.Errorf("%w; if another build has created the schema, run: drop schema %s cascade", err, p.schema)
	}
	defer b.Close()
	if err := b.Topology.Delete(ctx, b.Broker, queues); err != nil {
		return err
	}
	return execute(ctx, "drop schema "+p.schema+" cascade")
}

var queues = []string{holdfast.DefaultQueue}

func (p place) exists(ctx context.Context) (found bool, err error) {
	conn, err := pgx.Connect(ctx, os.Getenv(databaseURL))
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1)", p.schema).Scan(&found)
	return found, err
}
