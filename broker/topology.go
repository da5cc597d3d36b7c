package broker

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/holdfastq/holdfast"
)

// Topology names every queue and exchange. It is a pure value; the zero value
// of its fields is not usable, get one from NewTopology.
//
// Only arguments that mean the same from RabbitMQ 3.10 to 4.3 are used. No TTL,
// length limit, expiry, priority, exclusivity or auto-delete: each of them
// removes messages or ownership behind the program's back. (Signs are exclusive, for that very
// reason; they carry no messages.) Arguments can never be
// changed on an existing queue, hence the version in the names.
type Topology struct {
	Prefix      string // of every name
	Shards      int    // holding queues, 1 to 64
	Incarnation string // of the store; names the marker exchange
}

// Names and arguments that never change within version 1.
const (
	DefaultPrefix = "holdfast.v1"
	DefaultShards = 2
	// DeliveryLimit makes a requeued message keep its place (without a limit RabbitMQ
	// 3.10 moves it to the back) and stops a message that is returned for ever. It must be
	// positive: up to 3.13 a limit of -1 drops every message at its first return.
	DeliveryLimit = 1000
)

// NewTopology returns the topology of a store's incarnation under a prefix.
func NewTopology(prefix string, shards int, incarnation string) Topology {
	return Topology{Prefix: prefix, Shards: shards, Incarnation: incarnation}
}

// Main is the queue of a lane.
func (t Topology) Main(lane string) string { return t.Prefix + ".main." + lane }

// Again is the queue of a lane for tasks whose attempt was broken off by a crash or handed back.
// They were at the head of the lane once, and would otherwise wait behind its whole
// backlog.
func (t Topology) Again(lane string) string { return t.Prefix + ".again." + lane }

// Lane are the queues of a lane, the main one first.
func (t Topology) Lane(lane string) []string { return []string{t.Main(lane), t.Again(lane)} }

// Hold is the holding queue for the manifests about a run.
func (t Topology) Hold(run holdfast.RunID) string {
	h := fnv.New32a()
	fmt.Fprint(h, run)
	return t.shard(int(h.Sum32() % uint32(t.Shards)))
}

func (t Topology) shard(k int) string { return fmt.Sprintf("%s.hold.%d", t.Prefix, k) }

// Holds are all holding queues.
func (t Topology) Holds() []string {
	names := make([]string, t.Shards)
	for k := range names {
		names[k] = t.shard(k)
	}
	return names
}

// Rescue takes what the broker would have dropped, and tickets the store cannot explain. What it
// would drop itself goes to the quarantine.
func (t Topology) Rescue() string { return t.Prefix + ".rescue" }

// Sign is what a run shows in the broker while its process is connected, see package presence. It carries no messages, and is
// none of the [Topology.Queues].
func (t Topology) Sign(run holdfast.RunID) string { return fmt.Sprintf("%s.alive.%s", t.Prefix, run) }

// Witness is the sign of a janitor, whose name must be its own: a janitor that loses it learns that the signs of others may
// have ended for the same reason.
func (t Topology) Witness(name string) string { return fmt.Sprintf("%s.witness.%s", t.Prefix, name) }

// Quarantine keeps malformed messages for a person, who may drop them.
func (t Topology) Quarantine() string { return t.Prefix + ".quarantine" }

// Marker is the exchange whose absence proves that the broker was wiped.
func (t Topology) Marker() string { return t.Prefix + ".incarnation." + t.Incarnation }

// MarkerObject is the marker as an object. It is declared last, when the tickets of
// everything else are on their way again.
func (t Topology) MarkerObject() Object { return Object{Kind: Exchange, Name: t.Marker()} }

// Queues are the queues for the given lanes, in an order in which they can be
// declared: the target of the dead letters comes first.
func (t Topology) Queues(lanes []string) []Object {
	queues := []Object{
		{Kind: Queue, Name: t.Quarantine(), Args: quorum(nil)},
		{Kind: Queue, Name: t.Rescue(), Args: quorum(deadLetters(t.Quarantine()))},
	}
	kept := deadLetters(t.Rescue())
	for _, name := range t.Holds() {
		queues = append(queues, Object{Kind: Queue, Name: name, Args: quorum(kept)})
	}
	for _, lane := range lanes {
		for _, name := range t.Lane(lane) {
			queues = append(queues, Object{Kind: Queue, Name: name, Args: quorum(kept)})
		}
	}
	return queues
}

// deadLetters makes a queue hand over what it would have dropped, and only when the target
// has confirmed it: with any other overflow RabbitMQ quietly falls back to at most once.
func deadLetters(target string) map[string]any {
	return map[string]any{
		"x-overflow":                "reject-publish",
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": target,
		"x-dead-letter-strategy":    "at-least-once",
	}
}

func quorum(more map[string]any) map[string]any {
	args := map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(DeliveryLimit)}
	for key, value := range more {
		args[key] = value
	}
	return args
}

// Declare declares the queues of the lanes and returns which were missing. It does not
// declare the marker.
func (t Topology) Declare(ctx context.Context, admin Admin, lanes []string) ([]string, error) {
	return admin.Declare(ctx, t.Queues(lanes))
}

// Verify returns what is missing, the marker included.
func (t Topology) Verify(ctx context.Context, admin Admin, lanes []string) ([]string, error) {
	return admin.Missing(ctx, append(t.Queues(lanes), t.MarkerObject()))
}

// Delete removes everything, with all tickets. The store can rebuild them.
func (t Topology) Delete(ctx context.Context, admin Admin, lanes []string) error {
	return admin.Delete(ctx, append(t.Queues(lanes), t.MarkerObject()))
}
