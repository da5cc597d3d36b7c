package main

import (
	"cmp"
	"context"
	"errors"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/holdfastq/holdfast/internal/load"
)

// system is a task queue that is measured.
type system struct {
	name string
	// module is the module or package whose version is reported; empty for Holdfast and the plain worker.
	module string
	// ours is true for Holdfast.
	ours bool
	// settings describes in sentences how the system is configured, and what it does not do.
	settings string
	// servers are the environment variables that the system needs. Most of them contain the URL of a server.
	servers []string
	// schema is the PostgreSQL schema of the tables; empty if there is none, or if no pressure is measured.
	schema string
	// reset deletes all tasks of the system and makes it ready for use.
	reset func(ctx context.Context) error
	// executors is how many tasks the worker runs at once while speed is measured; 0 means the constant concurrency.
	executors int
	// open returns a connection for one process, whose worker runs up to executors tasks at once.
	open func(ctx context.Context, executors int) (queue, error)
	// analyze vacuums the tables and refreshes their statistics, as autovacuum does in the long run; nil if there are
	// no tables.
	analyze func(ctx context.Context) error
}

// queue is a connection to a system.
type queue interface {
	load.Queue
	Close() error
}

// externalWorker is a queue whose worker is another process. The process runs from open to Close.
type externalWorker interface{ pid() int }

// workerProcess returns the id of the process in which the worker of q runs.
func workerProcess(q queue) int {
	if o, ok := q.(externalWorker); ok {
		return o.pid()
	}
	return os.Getpid()
}

// concurrency is how many tasks a worker runs at once, unless the system or the step sets another number.
const concurrency = 100

// executorsFor returns how many tasks a worker of the system runs at once in a step.
func (s system) executorsFor(st step) int {
	return cmp.Or(st.executors, s.executors, concurrency)
}

// taskType is the type of the tasks, in systems that have task types.
const taskType = "bench"

const (
	databaseURL = "DATABASE_URL"
	amqpURL     = "AMQP_URL"
	redisURL    = "REDIS_URL"
)

// systems lists all systems in the order of the tables.
var systems = []system{holdfastServers, holdfastEmbedded, plain, riverSystem, graphileSystem, asynqSystem}

// missing returns the environment variables that the system needs and that are not set.
func (s system) missing() (names []string) {
	for _, name := range s.servers {
		if os.Getenv(name) == "" {
			names = append(names, name)
		}
	}
	return names
}

// errUnsupported is the error of an operation that a system does not support.
var errUnsupported = errors.New("not supported")

// putConcurrently calls put for every payload, from the given number of goroutines. It is for systems that store one
// task per call.
func putConcurrently(ctx context.Context, callers int, payloads [][]byte, put func(context.Context, []byte) error) error {
	calling, ctx := errgroup.WithContext(ctx)
	for first := range callers {
		calling.Go(func() error {
			for i := first; i < len(payloads); i += callers {
				if err := put(ctx, payloads[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return calling.Wait()
}
