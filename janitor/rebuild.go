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
	missing, tasks, err := Rebuild(ctx, j.o.Store, j.o.Broker, j.o.Topology)
	if err != nil || len(missing) == 0 {
		return err
	}
	log := j.o.Log.WithField("missing", missing).WithField("tasks", tasks)
	if tasks == 0 {
		log.Info("queues of a new lane or a new broker are declared")
	} else {
		log.Warn("queues were missing: they are declared anew and refilled from the store")
	}
	j.see(holdfast.ObservedRepaired, tasks)
	j.Nudge(0)
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
	lanes, err := s.LaneNames(ctx)
	if err != nil {
		return nil, 0, err
	}
	if missing, err = topology.Verify(ctx, admin, lanes); err != nil {
		return nil, 0, fmt.Errorf("look at the topology: %w", err)
	}
	if len(missing) == 0 {
		return nil, 0, nil
	}
	wiped := slices.Contains(missing, topology.Marker())
	isMissing := func(queue string) bool { return slices.Contains(missing, queue) }
	absent := slices.DeleteFunc(topology.Queues(lanes), func(o broker.Object) bool { return !isMissing(o.Name) })
	if wiped {
		// A queue with other arguments keeps the marker away for good. That must be known before the
		// tickets are given up, or every look would multiply them.
		present := slices.DeleteFunc(topology.Queues(lanes), func(o broker.Object) bool { return isMissing(o.Name) })
		if _, err := admin.Declare(ctx, present); err != nil {
			return nil, 0, fmt.Errorf("the broker is not as this store left it: %w", err)
		}
	}
	for _, lane := range lanes {
		if !wiped && !slices.ContainsFunc(topology.Lane(lane), isMissing) {
			continue
		}
		n, err := s.UnticketLane(ctx, lane)
		if err != nil {
			return nil, 0, fmt.Errorf("give the tasks of lane %s new tickets: %w", lane, err)
		}
		tasks += n
	}
	if _, err := admin.Declare(ctx, absent); err != nil {
		return nil, 0, fmt.Errorf("declare the missing queues: %w", err)
	}
	if wiped {
		if _, err := admin.Declare(ctx, []broker.Object{topology.MarkerObject()}); err != nil {
			return nil, 0, fmt.Errorf("declare the marker: %w", err)
		}
	}
	return missing, tasks, nil
}
