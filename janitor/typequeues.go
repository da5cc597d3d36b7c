package janitor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/store"
)

const (
	// typeQueuesEvery is the time between two checks whether live workers consume the type queues.
	typeQueuesEvery = 2 * time.Second
	// unhandledChecks is the number of checks in a row that must find no worker with a handler. A worker that restarts
	// should find its tickets.
	unhandledChecks = 3
)

// typeQueues returns the type queues among the names of known queues.
func typeQueues(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, taskType := holdfast.SplitTypeQueue(name)
		return taskType == ""
	})
}

// watchTypeQueues reads the type queues whose type no live worker handles, until ctx is done. It makes the tasks of
// their tickets due. The workers of the queue then park the tasks, so that people see why they wait. Without type queues
// it needs no statement.
func (j *Janitor) watchTypeQueues(ctx context.Context) {
	var readers sync.WaitGroup
	defer readers.Wait()
	unhandled := make(map[string]int)           // number of checks in a row that found no handler, by type queue
	stop := make(map[string]context.CancelFunc) // of the type queues that are read
	const duty = "type queues"
	for backoff.Sleep(ctx, j.beat(typeQueuesEvery)) == nil {
		known := j.knownTypeQueues.Load()
		if known == nil || len(*known) == 0 {
			continue
		}
		handlers, err := contain.Value(func() ([]store.Handler, error) { return j.o.Store.Handlers(ctx) })
		if err != nil {
			if ctx.Err() == nil {
				j.failed(ctx, duty, err, typeQueuesEvery)
			}
			continue
		}
		j.succeeded(ctx, duty)
		for _, name := range *known {
			if handled(handlers, name) {
				unhandled[name] = 0
				if end := stop[name]; end != nil {
					end()
					delete(stop, name)
				}
				continue
			}
			if unhandled[name]++; unhandled[name] < unhandledChecks || stop[name] != nil {
				continue
			}
			reading, end := context.WithCancel(ctx)
			stop[name] = end
			for _, amqpQueue := range j.o.Topology.Queue(name) {
				readers.Go(func() { j.receive(reading, amqpQueue, rescuePrefetch, j.rescue) })
			}
		}
	}
	for _, end := range stop {
		end()
	}
}

// handled reports whether a live worker consumes the type queue.
func handled(handlers []store.Handler, typeQueue string) bool {
	subqueue, taskType := holdfast.SplitTypeQueue(typeQueue)
	queue, _ := holdfast.SplitSubqueue(subqueue)
	return slices.ContainsFunc(handlers, func(h store.Handler) bool { return h.Takes(queue, taskType) })
}
