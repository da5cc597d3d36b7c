package janitor

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// rebuild does Rebuild and tells what it found. One at a time is enough for a process.
func (j *Janitor) rebuild(ctx context.Context) error {
	select {
	case j.rebuilding <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-j.rebuilding }()
	return j.rebuildAlone(ctx)
}

// rebuildAlone is rebuild for whoever has put the token.
func (j *Janitor) rebuildAlone(ctx context.Context) error {
	lanes, missing, tasks, err := rebuild(ctx, j.o.Store, j.o.Broker, j.o.Topology)
	if ctx.Err() == nil {
		j.refused.Store(&err)
	}
	if err != nil {
		return err
	}
	wereSeen := slices.ContainsFunc(missing, func(name string) bool { return j.seen[name] })
	for _, o := range append(j.o.Topology.Queues(lanes), j.o.Topology.MarkerObject()) {
		j.seen[o.Name] = true
	}
	if len(missing) == 0 {
		return nil
	}
	log := j.o.Log.WithField("missing", missing).WithField("tasks", tasks)
	if wereSeen {
		log.Warn("queues were missing: they are declared anew and refilled from the store")
	} else {
		log.Info("queues are declared for the first time or in a new broker, and filled from the store")
	}
	j.see(holdfast.ObservedRepaired, tasks)
	j.Nudge(0)
	return nil
}

// Refused returns why the newest look at the topology failed, nil if it did not. It may be called at any time.
func (j *Janitor) Refused() error {
	if err := j.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// laneStore is what Rebuild needs of the store.
type laneStore interface {
	LaneNames(ctx context.Context) ([]string, error)
	UnticketLane(ctx context.Context, lane string) (int, error)
}

// Rebuild declares what is missing in the broker and gives the tasks whose tickets
// went with it new ones. It returns the names of what was missing, and how many tasks
// it gave new tickets. A missing marker says that the broker was wiped or is another
// one; then no ticket counts.
//
// The order makes it safe to die at any step: the tasks lose their tickets
// first, and while their queue is missing nothing can give them one; the queue
// comes next; the marker comes last, so that until it stands whoever looks starts over. No queue
// is declared anywhere else while the system runs: one that came into being elsewhere would hide that
// its tickets are gone.
func Rebuild(ctx context.Context, s laneStore, admin broker.Admin, topology broker.Topology) (missing []string, tasks int, err error) {
	_, missing, tasks, err = rebuild(ctx, s, admin, topology)
	return missing, tasks, err
}

// rebuild is Rebuild, and returns the lanes too.
func rebuild(ctx context.Context, s laneStore, admin broker.Admin, topology broker.Topology) (lanes, missing []string, tasks int, err error) {
	if lanes, err = s.LaneNames(ctx); err != nil {
		return nil, nil, 0, err
	}
	if missing, err = topology.Verify(ctx, admin, lanes); err != nil {
		return nil, nil, 0, fmt.Errorf("look at the topology: %w", err)
	}
	if len(missing) == 0 {
		return lanes, nil, 0, nil
	}
	wiped := slices.Contains(missing, topology.Marker())
	isMissing := func(queue string) bool { return slices.Contains(missing, queue) }
	absent := slices.DeleteFunc(topology.Queues(lanes), func(o broker.Object) bool { return !isMissing(o.Name) })
	if wiped {
		// A queue with other arguments keeps the marker away for good. That must be known before the
		// tickets are given up, or every look would multiply them.
		present := slices.DeleteFunc(topology.Queues(lanes), func(o broker.Object) bool { return isMissing(o.Name) })
		if _, err := admin.Declare(ctx, present); err != nil {
			return nil, nil, 0, fmt.Errorf("the broker is not as this store left it: %w", err)
		}
	}
	for _, lane := range lanes {
		if !wiped && !slices.ContainsFunc(topology.Lane(lane), isMissing) {
			continue
		}
		n, err := s.UnticketLane(ctx, lane)
		if err != nil {
			return nil, nil, 0, fmt.Errorf("give the tasks of lane %s new tickets: %w", lane, err)
		}
		tasks += n
	}
	if _, err := admin.Declare(ctx, absent); err != nil {
		return nil, nil, 0, fmt.Errorf("declare the missing queues: %w", err)
	}
	if wiped {
		if _, err := admin.Declare(ctx, []broker.Object{topology.MarkerObject()}); err != nil {
			return nil, nil, 0, fmt.Errorf("declare the marker: %w", err)
		}
	}
	return lanes, missing, tasks, nil
}
