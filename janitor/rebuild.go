package janitor

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// rebuild calls Rebuild and logs the missing objects. If another rebuild is in progress in this process, it waits.
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
	known := typeQueues(queues)
	j.knownTypeQueues.Store(&known)
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

// takeOver takes the tasks of earlier workers back and publishes their tickets. The marker is missing in the broker, so
// the AMQP queues that takeOver declares hide no loss: the rebuild that follows renews all other tickets.
func (j *Janitor) takeOver(ctx context.Context) error {
	queues, err := j.o.Store.QueueNames(ctx)
	if err != nil {
		return err
	}
	if err := j.o.Topology.Declare(ctx, j.o.Broker, queues); err != nil {
		return err
	}
	if err := j.sweep(ctx); err != nil {
		return err
	}
	_, err = j.dispatchDue(ctx)
	return err
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

// Rebuild declares the AMQP queues and the marker that are missing in the broker. It makes a task due again if a
// missing queue had the task's ticket, so that the task gets a new ticket. If the marker is missing, the broker was
// wiped or replaced, and Rebuild makes all ticketed tasks due. It returns the names of the missing objects, or of all
// objects if the marker is missing, and the number of tasks that it made due. After an error, call it again.
//
// A process may end at any step of Rebuild. While the marker is missing, each call starts from the beginning, so
// Rebuild declares the marker last. If the marker exists, Rebuild makes the tasks due before it declares the missing
// AMQP queues. Until then the tasks cannot get a new ticket, and the next call finds the queues missing again. No other
// component may declare an AMQP queue while the system runs, because that would hide the loss of its tickets.
func Rebuild(ctx context.Context, s queueStore, admin broker.Admin, topology broker.Topology) (missing []string, tasks int, err error) {
	_, missing, tasks, err = rebuild(ctx, s, admin, topology)
	return missing, tasks, err
}

// rebuild does the work of Rebuild. It also returns the names of all queues.
func rebuild(ctx context.Context, s queueStore, admin broker.Admin, topology broker.Topology) (queues, missing []string, tasks int, err error) {
	if queues, err = s.QueueNames(ctx); err != nil {
		return nil, nil, 0, err
	}
	// RabbitMQ logs an error for each object that Missing does not find, so the first call checks only the marker.
	if missing, err = admin.Missing(ctx, []broker.Object{topology.MarkerObject()}); err != nil {
		return nil, nil, 0, fmt.Errorf("look for the marker: %w", err)
	}
	if len(missing) > 0 {
		missing, tasks, err = rebuildAll(ctx, s, admin, topology, queues)
	} else {
		missing, tasks, err = rebuildMissing(ctx, s, admin, topology, queues)
	}
	if err != nil {
		return nil, nil, 0, err
	}
	return queues, missing, tasks, nil
}

// rebuildAll declares all AMQP queues and then the marker. It declares the AMQP queues before the tasks become due. If
// an AMQP queue exists with other arguments, the marker cannot be declared, and otherwise each call would publish
// another ticket for every task.
func rebuildAll(ctx context.Context, s queueStore, admin broker.Admin, topology broker.Topology, queues []string) (names []string, tasks int, err error) {
	if err := topology.Declare(ctx, admin, queues); err != nil {
		return nil, 0, fmt.Errorf("declare the topology: %w", err)
	}
	if tasks, err = unticket(ctx, s, queues); err != nil {
		return nil, 0, err
	}
	if err := admin.Declare(ctx, []broker.Object{topology.MarkerObject()}); err != nil {
		return nil, 0, fmt.Errorf("declare the marker: %w", err)
	}
	for _, o := range append(topology.Queues(queues), topology.MarkerObject()) {
		names = append(names, o.Name)
	}
	return names, tasks, nil
}

// rebuildMissing declares the AMQP queues that are missing. The marker exists.
func rebuildMissing(ctx context.Context, s queueStore, admin broker.Admin, topology broker.Topology, queues []string) (missing []string, tasks int, err error) {
	all := topology.Queues(queues)
	if missing, err = admin.Missing(ctx, all); err != nil {
		return nil, 0, fmt.Errorf("verify the topology: %w", err)
	}
	if len(missing) == 0 {
		return nil, 0, nil
	}
	isMissing := func(amqpQueue string) bool { return slices.Contains(missing, amqpQueue) }
	lost := slices.DeleteFunc(slices.Clone(queues), func(queue string) bool { return !slices.ContainsFunc(topology.Queue(queue), isMissing) })
	if tasks, err = unticket(ctx, s, lost); err != nil {
		return nil, 0, err
	}
	toDeclare := slices.DeleteFunc(all, func(o broker.Object) bool { return !isMissing(o.Name) })
	if err := admin.Declare(ctx, toDeclare); err != nil {
		return nil, 0, fmt.Errorf("declare the missing queues: %w", err)
	}
	return missing, tasks, nil
}

// unticket makes the ticketed tasks of the queues due and returns their number. The tasks of a type queue are among
// those of its subqueue.
func unticket(ctx context.Context, s queueStore, queues []string) (tasks int, err error) {
	for _, queue := range queues {
		if subqueue, taskType := holdfast.SplitTypeQueue(queue); taskType != "" && slices.Contains(queues, subqueue) {
			continue
		}
		n, err := s.UnticketQueue(ctx, queue)
		if err != nil {
			return 0, fmt.Errorf("renew the tickets of queue %s: %w", queue, err)
		}
		tasks += n
	}
	return tasks, nil
}
