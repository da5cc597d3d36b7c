package broker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

var queues = []string{"default", "bulk"}

// Names are an interface between versions and processes, and must never change.
func TestNamesAreStable(t *testing.T) {
	t.Parallel()
	topology := broker.NewTopology(broker.DefaultPrefix, 2, "abc")
	for got, want := range map[string]string{
		topology.Main("default"):                        "holdfast.v1.main.default",
		topology.Rescue():                               "holdfast.v1.rescue",
		topology.Quarantine():                           "holdfast.v1.quarantine",
		topology.Unread():                               "holdfast.v1.unread.2",
		topology.Marker():                               "holdfast.v1.incarnation.abc",
		topology.MarkerObject().Name:                    "holdfast.v1.incarnation.abc",
		strings.Join(topology.HoldingQueueNames(), " "): "holdfast.v1.holding.0 holdfast.v1.holding.1",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if topology.MarkerObject().Kind != broker.Exchange {
		t.Error("the marker is not an exchange")
	}
}

// A worker finds its manifests only if the name of its holding queue depends on nothing but its id.
func TestHoldIsStableAndEven(t *testing.T) {
	t.Parallel()
	topology := broker.NewTopology("p", 4, "")
	for worker, want := range map[holdfast.WorkerID]string{1: "p.holding.0", 2: "p.holding.1", 3: "p.holding.2", 1000: "p.holding.0"} {
		if got := topology.HoldingQueue(worker); got != want {
			t.Errorf("worker %d: got %q, want %q", worker, got, want)
		}
	}
	count := map[string]int{}
	for worker := range holdfast.WorkerID(10000) {
		count[topology.HoldingQueue(worker)]++
	}
	for _, name := range topology.HoldingQueueNames() {
		if count[name] < 2000 {
			t.Errorf("%s has %d of 10000 workers", name, count[name])
		}
	}
	if len(count) != 4 {
		t.Errorf("%d holding queues are used, want 4", len(count))
	}
}

// Each forbidden argument removes messages, or works only in some versions of RabbitMQ.
func TestArguments(t *testing.T) {
	t.Parallel()
	topology := broker.NewTopology("p", 2, "")
	allowed := []string{"x-queue-type", "x-delivery-limit", "x-overflow", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy"}
	declared := map[string]bool{}
	for _, o := range topology.Queues(queues) {
		if declared[o.Name] {
			t.Errorf("%s is listed twice", o.Name)
		}
		declared[o.Name] = true
		for key, value := range o.Args {
			if !slices.Contains(allowed, key) {
				t.Errorf("%s has the argument %s", o.Name, key)
			}
			switch value.(type) {
			case string, int64:
			default:
				t.Errorf("%s: %s is a %T", o.Name, key, value)
			}
		}
		if o.Kind != broker.Queue || o.Args["x-queue-type"] != "quorum" {
			t.Errorf("%s is not a quorum queue", o.Name)
		}
		if limit, _ := o.Args["x-delivery-limit"].(int64); limit <= 0 {
			t.Errorf("%s has the delivery limit %d", o.Name, limit)
		}
		if target, ok := o.Args["x-dead-letter-routing-key"]; ok {
			if !declared[target.(string)] {
				t.Errorf("%s is declared before %s, the target of its dead letters", o.Name, target)
			}
			// Without both arguments, RabbitMQ may lose dead letters without a warning.
			if o.Args["x-overflow"] != "reject-publish" || o.Args["x-dead-letter-strategy"] != "at-least-once" {
				t.Errorf("%s may lose dead letters: %v", o.Name, o.Args)
			}
		} else if o.Name != topology.Rescue() && o.Name != topology.Quarantine() {
			t.Errorf("%s has no target of dead letters", o.Name)
		}
	}
	for _, name := range append(topology.HoldingQueueNames(), topology.Main("default"), topology.Main("bulk"), topology.Rescue(), topology.Quarantine()) {
		if !declared[name] {
			t.Errorf("%s is not among the queues", name)
		}
	}
}

// Each call returns new maps.
func TestQueuesAreValues(t *testing.T) {
	t.Parallel()
	topology := broker.NewTopology("p", 1, "")
	for _, o := range topology.Queues(queues) {
		o.Args["x-max-length"] = int64(1)
	}
	for _, o := range topology.Queues(queues) {
		if _, ok := o.Args["x-max-length"]; ok {
			t.Errorf("%s was changed", o.Name)
		}
	}
}

// admin records the objects of each call.
type admin struct {
	broker.Admin
	declared, checked, deleted []broker.Object
	err                        error
}

func (a *admin) Declare(_ context.Context, objects []broker.Object) error {
	a.declared = objects
	return a.err
}

func (a *admin) Missing(_ context.Context, objects []broker.Object) ([]string, error) {
	a.checked = objects
	return []string{"gone"}, a.err
}

func (a *admin) Delete(_ context.Context, objects []broker.Object) error {
	a.deleted = objects
	return a.err
}

func TestDeclareLeavesTheMarkerForLater(t *testing.T) {
	t.Parallel()
	topology := broker.NewTopology("p", 2, "abc")
	isMarker := func(o broker.Object) bool { return o.Name == topology.Marker() }
	a := &admin{err: errors.New("some error")}
	if err := topology.Declare(t.Context(), a, queues); err != a.err {
		t.Errorf("got %v", err)
	}
	if missing, err := topology.Verify(t.Context(), a, queues); !slices.Equal(missing, []string{"gone"}) || err != a.err {
		t.Errorf("got %q, %v", missing, err)
	}
	if err := topology.Delete(t.Context(), a, queues); err != a.err {
		t.Errorf("got %v", err)
	}
	all := len(topology.Queues(queues))
	if len(a.declared) != all || slices.ContainsFunc(a.declared, isMarker) {
		t.Errorf("declared %v", a.declared)
	}
	if len(a.checked) != all+1 || !slices.ContainsFunc(a.checked, isMarker) {
		t.Errorf("checked %v", a.checked)
	}
	if len(a.deleted) != all+1 || !slices.ContainsFunc(a.deleted, isMarker) {
		t.Errorf("deleted %v", a.deleted)
	}
}
