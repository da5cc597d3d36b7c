package janitor

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// rebuild calls Rebuild and logs what was missing. If another rebuild is in progress in this process, it waits.
func (j *Janitor) rebuild(ctx context.Context) error {
	select {
	case j.rebuilding <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-j.rebuilding }()
	return j.rebuildLocked(ctx)
}

// rebuildLocked does the work of rebuild. The caller has put a value into j.rebuilding.
func (j *Janitor) rebuildLocked(ctx context.Context) error {
	queues, missing, tasks, err := rebuild(ctx, j.o.Store, j.o.Broker, j.o.Topology)
	if ctx.Err() == nil {
		j.topologyErr.Store(&err)
	}
	if err != nil {
		return err
	}
	wasKnown := slices.ContainsFunc(missing, func(name string) bool { return j.knownObjects[name] })
	for _, o := range append(j.o.Topology.Queues(queues), j.o.Topology.MarkerObject()) {
		j.knownObjects[o.Name] = true
	}
	if len(missing) == 0 {
		return nil
	}
	log := j.o.Log.WithField("missing", missing).WithField("tasks", tasks)
	if wasKnown {
		log.Warn("queues were missing, declared them again and refilled them from the store")
	} else {
		log.Info("declared queues for the first time or in a new broker, and filled them from the store")
	}
	j.observe(holdfast.ObservedRepaired, tasks)
	j.Nudge(0)
	return nil
}

// TopologyErr returns the error of the newest rebuild, or nil if it succeeded. It is safe for concurrent use.
func (j *Janitor) TopologyErr() error {
	if err := j.topologyErr.Load(); err != nil {
		return *err
	}
	return nil
}

// queueStore is the part of a store that Rebuild uses.
type queueStore interface {
	QueueNames(ctx context.Context) ([]string, error)
	UnticketQueue(ctx context.Context, queue string) (int, error)
}

// Rebuild declares the AMQP queues and the marker that are missing in the broker. If a missing queue had the ticket of
// a task, Rebuild makes that task due again, so that it gets a new ticket. If the marker is missing, the broker was
// wiped or is another one; then Rebuild does this for all ticketed tasks. It returns the names of the missing objects,
// and the number of tasks that it made due. After an error, another call does the rest.
//
// A process may end at any step of Rebuild. First the tasks become due; while their AMQP queue is missing, they cannot
// get a new ticket. Then the AMQP queues are declared, and at last the marker. While the marker is missing, each call
// of Rebuild starts over. Nothing else may declare an AMQP queue while the system runs, because that would hide the
// loss of its tickets.
func Rebuild(ctx context.Context, s queueStore, admin broker.Admin, topology broker.Topology) (missing []string, tasks int, err error) {
	_, missing, tasks, err = rebuild(ctx, s, admin, topology)
	return missing, tasks, err
}

// rebuild does the work of Rebuild. It also returns the names of all queues.
func rebuild(ctx context.Context, s queueStore, admin broker.Admin, topology broker.Topology) (queues, missing []string, tasks int, err error) {
	if queues, err = s.QueueNames(ctx); err != nil {
		return nil, nil, 0, err
	}
	if missing, err = topology.Verify(ctx, admin, queues); err != nil {
		return nil, nil, 0, fmt.Errorf("verify the topology: %w", err)
	}
	if len(missing) == 0 {
		return queues, nil, 0, nil
	}
	wiped := slices.Contains(missing, topology.Marker())
	isMissing := func(amqpQueue string) bool { return slices.Contains(missing, amqpQueue) }
	toDeclare := slices.DeleteFunc(topology.Queues(queues), func(o broker.Object) bool { return !isMissing(o.Name) })
	if wiped {
		if err := topology.RefuseFormerNames(ctx, admin); err != nil {
			return nil, nil, 0, fmt.Errorf("declare the topology: %w", err)
		}
		// If an AMQP queue exists with other arguments, Rebuild cannot declare the marker. Find that out before the
		// tasks become due, or each call would publish another ticket for every task.
		existing := slices.DeleteFunc(topology.Queues(queues), func(o broker.Object) bool { return isMissing(o.Name) })
		if _, err := admin.Declare(ctx, existing); err != nil {
			return nil, nil, 0, fmt.Errorf("compare the existing queues: %w", err)
		}
	}
	for _, queue := range queues {
		if !wiped && !slices.ContainsFunc(topology.Queue(queue), isMissing) {
			continue
		}
		n, err := s.UnticketQueue(ctx, queue)
		if err != nil {
			return nil, nil, 0, fmt.Errorf("renew the tickets of queue %s: %w", queue, err)
		}
		tasks += n
	}
	if _, err := admin.Declare(ctx, toDeclare); err != nil {
		return nil, nil, 0, fmt.Errorf("declare the missing queues: %w", err)
	}
	if wiped {
		if _, err := admin.Declare(ctx, []broker.Object{topology.MarkerObject()}); err != nil {
			return nil, nil, 0, fmt.Errorf("declare the marker: %w", err)
		}
	}
	return queues, missing, tasks, nil
}
