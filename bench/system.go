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
	// module is the peer's, whose version is reported; empty for what is no peer's.
	module string
	// ours tells Holdfast from its peers.
	ours bool
	// settings say how it runs, and what it does not do, in sentences.
	settings string
	// servers are the variables that name those it needs.
	servers []string
	// fresh makes it empty, and ready for use.
	fresh func(ctx context.Context) error
	// executors is how many tasks its worker runs at once where speed is measured; 0 is `concurrency`.
	executors int
	// open returns a connection for one process, whose worker runs so many tasks at once.
	open func(ctx context.Context, executors int) (queue, error)
	// analyze refreshes the statistics of its tables, as a database does by itself in the long run; nil without any.
	analyze func(ctx context.Context) error
}

type queue interface {
	load.Queue
	Close() error
}

// outside is a queue whose worker is a process of its own, between open and Close.
type outside interface{ pid() int }

// workerProcess returns the process that the worker of q runs in.
func workerProcess(q queue) int {
	if o, ok := q.(outside); ok {
		return o.pid()
	}
	return os.Getpid()
}

// concurrency is how many tasks run at once in a worker, unless another number suits the system better.
const concurrency = 100

// executorsIn returns how many tasks a worker of the system runs at once in a step.
func (s system) executorsIn(st step) int {
	return cmp.Or(st.executors, s.executors, concurrency)
}

// taskType names the tasks, where they have names.
const taskType = "bench"

const (
	databaseURL = "DATABASE_URL"
	amqpURL     = "AMQP_URL"
	redisURL    = "REDIS_URL"
)

// systems in the order of the tables.
var systems = []system{holdfastServers, holdfastEmbedded, plain, riverSystem, graphileSystem, asynqSystem, machinerySystem, gueSystem}

// missing returns the variables without which the system cannot be measured.
func (s system) missing() (names []string) {
	for _, name := range s.servers {
		if os.Getenv(name) == "" {
			names = append(names, name)
		}
	}
	return names
}

// errUnfit is returned by a method that a system has nothing for.
var errUnfit = errors.New("it has none")

// spread calls put for every payload, from several goroutines at once, for a system that takes tasks one by one.
func spread(ctx context.Context, callers int, payloads [][]byte, put func(context.Context, []byte) error) error {
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
