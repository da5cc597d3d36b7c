package janitor

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// rebuild declares what is missing in the broker and gives the tasks whose tickets went with it new
// ones. A missing marker says that the broker was wiped or is another one; then nothing
// in it is trusted. The marker comes last: until it stands, any janitor starts over.
//
// This is the only place that declares queues while the system runs. A queue that comes into
// being anywhere else would hide that its tickets are gone.
func (j *Janitor) rebuild(ctx context.Context) error {
	lanes, err := j.o.Store.LaneNames(ctx)
	if err != nil {
		return err
	}
	topology := j.o.Topology
	missing, err := topology.Verify(ctx, j.o.Broker, lanes)
	if err != nil {
		return fmt.Errorf("look at the topology: %w", err)
	}
	if len(missing) == 0 {
		return nil
	}
	wiped := slices.Contains(missing, topology.Marker())
	if _, err := topology.Declare(ctx, j.o.Broker, lanes); err != nil {
		return fmt.Errorf("declare the topology: %w", err)
	}
	total := 0
	for _, lane := range lanes {
		if !wiped && !slices.Contains(missing, topology.Main(lane)) {
			continue
		}
		n, err := j.o.Store.UnticketLane(ctx, lane)
		if err != nil {
			return fmt.Errorf("give the tasks of lane %s new tickets: %w", lane, err)
		}
		total += n
	}
	if wiped {
		if _, err := j.o.Broker.Declare(ctx, []broker.Object{topology.MarkerObject()}); err != nil {
			return fmt.Errorf("declare the marker: %w", err)
		}
	}
	j.o.Log.WithField("missing", missing).WithField("tasks", total).Warn("the broker's queues were declared anew and refilled from the store")
	j.see(holdfast.ObservedRepaired, total)
	j.Nudge(0)
	return nil
}
