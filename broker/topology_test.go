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

var lanes = []string{"default", "bulk"}

// Names are an interface between versions and processes: these must never change.
func TestNamesAreStable(t *testing.T) {
	t.Parallel()
	topology := broker.NewTopology(broker.DefaultPrefix, 2, "abc")
	for got, want := range map[string]string{
		topology.Main("default"):            "holdfast.v1.main.default",
		topology.Rescue():                   "holdfast.v1.rescue",
		topology.Quarantine():               "holdfast.v1.quarantine",
		topology.Marker():                   "holdfast.v1.incarnation.abc",
		topology.MarkerObject().Name:        "holdfast.v1.incarnation.abc",
		strings.Join(topology.Holds(), " "): "holdfast.v1.hold.0 holdfast.v1.hold.1",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if topology.MarkerObject().Kind != broker.Exchange {
		t.Error("the marker is not an exchange")
	}
}

// A run finds its manifests again only if the shard does not depend on anything but its id.
func TestHoldIsStableAndEven(t *testing.T) {
	t.Parallel()
	topology := broker.NewTopology("p", 4, "")
	for run, want := range map[holdfast.RunID]string{1: "p.hold.0", 2: "p.hold.1", 3: "p.hold.2", 1000: "p.hold.0"} {
		if got := topology.Hold(run); got != want {
			t.Errorf("run %d: got %q, want %q", run, got, want)
		}
	}
	count := map[string]int{}
	for run := range holdfast.RunID(10000) {
		count[topology.Hold(run)]++
	}
	for _, name := range topology.Holds() {
		if count[name] < 2000 {
			t.Errorf("%s got %d of 10000 runs", name, count[name])
		}
	}
	if len(count) != 4 {
		t.Errorf("%d shards are used", len(count))
	}
}

// What must not be declared is as important as what must: each of these removes messages
// or works on some versions only.
func TestArguments(t *testing.T) {
	t.Parallel()
	topology := broker.NewTopology("p", 2, "")
	allowed := []string{"x-queue-type", "x-delivery-limit", "x-overflow", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy"}
	declared := map[string]bool{}
	for _, o := range topology.Queues(lanes) {
		if declared[o.Name] {
			t.Errorf("%s is listed twice", o.Name)
		}
		declared[o.Name] = true
		for key, value := range o.Args {
			if !slices.Contains(allowed, key) {
				t.Errorf("%s has %s", o.Name, key)
			}
			switch value.(type) {
			case string, int64:
			default:
				t.Errorf("%s: %s is a %T", o.Name, key, value)
			}
		}
		if o.Kind != broker.Queue || o.Args["x-queue-type"] != "quorum" {
			t.Errorf("%s is no quorum queue", o.Name)
		}
		if limit, _ := o.Args["x-delivery-limit"].(int64); limit <= 0 {
			t.Errorf("%s: a delivery limit of %d", o.Name, limit)
		}
		if target, ok := o.Args["x-dead-letter-routing-key"]; ok {
			if !declared[target.(string)] {
				t.Errorf("%s comes before %s, where its dead letters go", o.Name, target)
			}
			// without either of the two RabbitMQ silently dead-letters at most once
			if o.Args["x-overflow"] != "reject-publish" || o.Args["x-dead-letter-strategy"] != "at-least-once" {
				t.Errorf("%s may lose dead letters: %v", o.Name, o.Args)
			}
		} else if o.Name != topology.Rescue() && o.Name != topology.Quarantine() {
			t.Errorf("%s has no dead letters", o.Name)
		}
	}
	for _, name := range append(topology.Holds(), topology.Main("default"), topology.Main("bulk"), topology.Rescue(), topology.Quarantine()) {
		if !declared[name] {
			t.Errorf("%s is not declared", name)
		}
	}
}

// Each caller gets maps of its own.
func TestQueuesAreValues(t *testing.T) {
	t.Parallel()
	topology := broker.NewTopology("p", 1, "")
	for _, o := range topology.Queues(lanes) {
		o.Args["x-max-length"] = int64(1)
	}
	for _, o := range topology.Queues(lanes) {
		if _, ok := o.Args["x-max-length"]; ok {
			t.Errorf("%s was changed", o.Name)
		}
	}
}

// admin records what it is asked for.
type admin struct {
	broker.Admin
	declared, looked, deleted []broker.Object
	err                       error
}

func (a *admin) Declare(_ context.Context, objects []broker.Object) ([]string, error) {
	a.declared = objects
	return []string{"new"}, a.err
}

func (a *admin) Missing(_ context.Context, objects []broker.Object) ([]string, error) {
	a.looked = objects
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
	if created, err := topology.Declare(t.Context(), a, lanes); !slices.Equal(created, []string{"new"}) || err != a.err {
		t.Errorf("got %q, %v", created, err)
	}
	if missing, err := topology.Verify(t.Context(), a, lanes); !slices.Equal(missing, []string{"gone"}) || err != a.err {
		t.Errorf("got %q, %v", missing, err)
	}
	if err := topology.Delete(t.Context(), a, lanes); err != a.err {
		t.Errorf("got %v", err)
	}
	all := len(topology.Queues(lanes))
	if len(a.declared) != all || slices.ContainsFunc(a.declared, isMarker) {
		t.Errorf("declared %v", a.declared)
	}
	if len(a.looked) != all+1 || !slices.ContainsFunc(a.looked, isMarker) {
		t.Errorf("looked for %v", a.looked)
	}
	if len(a.deleted) != all+1 || !slices.ContainsFunc(a.deleted, isMarker) {
		t.Errorf("deleted %v", a.deleted)
	}
}
