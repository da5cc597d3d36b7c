package broker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// Topology names every AMQP queue and exchange. It is a pure value; see NewTopology. The zero value is not usable.
//
// All arguments of the queues mean the same from RabbitMQ 3.10 to 4.3. No queue has a TTL, length limit, expiry,
// priority, exclusivity or auto-delete. Each of these removes messages or ownership without the knowledge of the
// program. Presence queues are an exception: they are exclusive, so that RabbitMQ deletes them when their connection
// ends, and carry no messages. The arguments of an existing queue cannot be changed, so the names contain a version.
type Topology struct {
	Prefix        string // of every name
	HoldingQueues int    // number of holding queues, 1 to 64
	Incarnation   string // of the store; part of the marker's name
}

// Names and arguments of version 1. They never change.
const (
	DefaultPrefix = "holdfast.v1"
	// HoldingQueues is the number of holding queues of a system. Every process needs the same number. Two are enough,
	// because they carry one message per page and not one per task.
	HoldingQueues = 2
	// DeliveryLimit has two effects. A requeued message keeps its place in the queue, while RabbitMQ 3.10 without a
	// limit moves it to the end. And no message is returned forever: after so many returns, RabbitMQ moves it to
	// another queue. The limit must be positive: up to RabbitMQ 3.13 a limit of -1 drops every message at its first
	// return.
	DeliveryLimit = 1000
)

// NewTopology returns the topology for an incarnation of a store.
func NewTopology(prefix string, holdingQueues int, incarnation string) Topology {
	return Topology{Prefix: prefix, HoldingQueues: holdingQueues, Incarnation: incarnation}
}

// Main returns the name of the main queue of a queue.
func (t Topology) Main(queue string) string { return t.Prefix + ".main." + queue }

// Requeue returns the name of the requeue queue of a queue. It is for tasks whose attempt ended with a crash or a
// hand-back. Their tickets have reached the head of the queue before. In the main queue they would wait behind its
// whole backlog.
func (t Topology) Requeue(queue string) string { return t.Prefix + ".requeue." + queue }

// Queue returns the names of the AMQP queues of a queue: the main queue, then the requeue queue.
func (t Topology) Queue(queue string) []string { return []string{t.Main(queue), t.Requeue(queue)} }

// HoldingQueue returns the name of the holding queue for the manifests of a worker.
func (t Topology) HoldingQueue(worker holdfast.WorkerID) string {
	h := fnv.New32a()
	fmt.Fprint(h, worker)
	return t.holdingQueue(int(h.Sum32() % uint32(t.HoldingQueues)))
}

func (t Topology) holdingQueue(k int) string { return fmt.Sprintf("%s.holding.%d", t.Prefix, k) }

// HoldingQueueNames returns the names of all holding queues.
func (t Topology) HoldingQueueNames() []string {
	names := make([]string, t.HoldingQueues)
	for k := range names {
		names[k] = t.holdingQueue(k)
	}
	return names
}

// Rescue returns the name of the rescue queue. It receives tickets that the store cannot explain, and messages that the
// broker would otherwise drop from the main, requeue and holding queues. Messages that the broker would drop from the
// rescue queue go to the quarantine queue.
func (t Topology) Rescue() string { return t.Prefix + ".rescue" }

// WorkerPresence returns the name of the presence queue of a worker. The queue exists while the worker's process is
// connected; see package presence. Presence queues carry no messages and are not among [Topology.Queues].
func (t Topology) WorkerPresence(worker holdfast.WorkerID) string {
	return fmt.Sprintf("%s.presence.worker.%s", t.Prefix, worker)
}

// JanitorPresence returns the name of a janitor's own presence queue. name must be unique. If a janitor loses this
// queue, workers may have lost theirs for the same reason.
func (t Topology) JanitorPresence(name string) string {
	return fmt.Sprintf("%s.presence.janitor.%s", t.Prefix, name)
}

// Quarantine returns the name of the quarantine queue. It stores malformed messages for an operator, who may delete
// them.
func (t Topology) Quarantine() string { return t.Prefix + ".quarantine" }

// Unread returns the name of the queue for messages of a newer version than this build can decode. Only builds that
// know that version consume it.
func (t Topology) Unread() string { return t.unread(message.Version + 1) }

// Undecodable returns the message to publish in place of a body that message.Decode refused with err. It goes to the
// unread queue if a newer version wrote the body, and otherwise to the quarantine. foundBy is the name of the process.
func (t Topology) Undecodable(body []byte, err error, foundBy string) Message {
	if errors.As(err, new(*message.NewerError)) {
		return Message{Queue: t.Unread(), Body: body}
	}
	return t.Malformed(body, err.Error(), foundBy)
}

// Malformed returns the message to publish to the quarantine in place of a body. Its headers contain the reason and the
// process that found the body.
func (t Topology) Malformed(body []byte, reason, foundBy string) Message {
	return Message{
		Queue: t.Quarantine(), Body: body,
		Headers: map[string]string{"holdfast-reason": reason, "holdfast-found-by": foundBy},
	}
}

// Readable returns the names of the queues in which builds of earlier versions left messages that this build can
// decode.
func (t Topology) Readable() []string {
	var names []string
	for version := 2; version <= message.Version; version++ {
		names = append(names, t.unread(version))
	}
	return names
}

func (t Topology) unread(version int) string { return fmt.Sprintf("%s.unread.%d", t.Prefix, version) }

// Marker returns the name of the marker exchange. If the exchange is missing, the broker has lost its data.
func (t Topology) Marker() string { return t.Prefix + ".incarnation." + t.Incarnation }

// MarkerObject returns the marker exchange as an object. It is declared last, when every lost ticket is due to be
// published again.
func (t Topology) MarkerObject() Object { return Object{Kind: Exchange, Name: t.Marker()} }

// Queues returns the objects for the given queues in the order of declaration: the target of dead letters comes before
// its sources.
func (t Topology) Queues(queues []string) []Object {
	objects := []Object{
		{Kind: Queue, Name: t.Quarantine(), Args: quorum(nil)},
		{Kind: Queue, Name: t.Rescue(), Args: quorum(deadLetters(t.Quarantine()))},
	}
	kept := deadLetters(t.Rescue())
	for _, name := range slices.Concat(t.HoldingQueueNames(), t.Readable(), []string{t.Unread()}) {
		objects = append(objects, Object{Kind: Queue, Name: name, Args: quorum(kept)})
	}
	for _, queue := range queues {
		for _, name := range t.Queue(queue) {
			objects = append(objects, Object{Kind: Queue, Name: name, Args: quorum(kept)})
		}
	}
	return objects
}

// deadLetters returns the arguments that make a queue move messages to target instead of dropping them. The queue
// removes a message only after target has confirmed it. With any other overflow, RabbitMQ silently falls back to
// at-most-once.
func deadLetters(target string) map[string]any {
	return map[string]any{
		"x-overflow":                "reject-publish",
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": target,
		"x-dead-letter-strategy":    "at-least-once",
	}
}

// quorum returns the arguments of a quorum queue and those in more.
func quorum(more map[string]any) map[string]any {
	args := map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(DeliveryLimit)}
	for key, value := range more {
		args[key] = value
	}
	return args
}

// Declare declares the AMQP queues of the given queues. It does not declare the marker exchange; see
// MarkerObject.
func (t Topology) Declare(ctx context.Context, admin Admin, queues []string) error {
	return admin.Declare(ctx, t.Queues(queues))
}

// Verify returns the names of the objects that are missing, including the marker.
func (t Topology) Verify(ctx context.Context, admin Admin, queues []string) ([]string, error) {
	return admin.Missing(ctx, append(t.Queues(queues), t.MarkerObject()))
}

// Delete deletes all objects with all tickets. The store has the data to rebuild them.
func (t Topology) Delete(ctx context.Context, admin Admin, queues []string) error {
	return admin.Delete(ctx, append(t.Queues(queues), t.MarkerObject()))
}
