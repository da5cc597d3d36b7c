// Package broker is the contract of the message broker, which carries hints:
// losing everything in it loses no task. Adapters live beside it, one folder
// a broker; package brokertest is the suite each of them passes.
//
// # Rules every adapter keeps
//
// An adapter owns its connections and restores them by itself, for ever, with
// growing pauses. Everything that was received over one channel belongs to one
// [Subscription]; when the channel ends, for whatever reason, that subscription
// is over and its deliveries can no longer be settled, so that no tag of one
// generation can ever be used in another. No method of an adapter deletes,
// purges or expires a queue, except Delete.
//
// Source of the rules: the RabbitMQ documentation on confirms and consumer
// acknowledgements, and the behaviour of amqp091-go.
package broker

import (
	"context"
	"errors"
)

// ErrNoQueue says that the queue does not exist (yet, or any more). A janitor
// declares it again.
var ErrNoQueue = errors.New("the queue does not exist")

// ErrOver says that a subscription has ended; its deliveries come again.
var ErrOver = errors.New("the subscription is over")

// Broker is everything, joined once for wiring and for the suite.
type Broker interface {
	Publisher
	Subscriber
	Admin

	// Close ends all subscriptions and connections and returns when every goroutine
	// of the adapter has ended. It may be called more than once.
	Close() error
}

// Message goes to one queue.
type Message struct {
	Queue   string
	Body    []byte
	Headers map[string]string // for people; nothing is decided by them
}

// Outcome is what is known about one published message.
type Outcome uint8

// The outcomes.
const (
	Unknown  Outcome = iota // no answer, a refusal, or the connection ended: it may be stored or not; publish it again
	Stored                  // confirmed by the broker, in the queue
	Returned                // confirmed that there is no such queue
)

// Publisher sends messages.
type Publisher interface {
	// Publish sends the messages as persistent and mandatory, waits for what becomes of each and returns one outcome
	// per message. It waits until ctx is done or an own limit of a few seconds (for every few hundred messages) is
	// over, whichever is first. Once the first attempt to connect has ended, it returns Unknown at once while there is
	// no connection. It also does so while the broker takes no messages, for example because of an alarm. The error is
	// nil exactly if every outcome is Stored; otherwise it says what is wrong: ErrNoQueue if all the others are
	// Returned, else it wraps holdfast.ErrUnavailable.
	//
	// It may be called from many goroutines. Messages of one call to one queue
	// arrive in their order, if nothing fails.
	Publish(ctx context.Context, messages []Message) ([]Outcome, error)
}

// Delivery is one received message. The tags of a subscription are 1, 2, 3 and so on.
type Delivery struct {
	Tag         uint64
	Body        []byte
	Redelivered bool
}

// Subscriber receives messages.
type Subscriber interface {
	// Subscribe starts to receive from a queue, at most prefetch (1 to 65535)
	// unsettled messages at a time. It waits for a connection until ctx is done; then
	// it returns an ErrUnavailable. ErrNoQueue if there is no such queue. ctx has no
	// influence on the subscription once it exists.
	Subscribe(ctx context.Context, queue string, prefetch int) (Subscription, error)
}

// Subscription is one generation of deliveries of one queue. Its methods may be
// called from several goroutines.
type Subscription interface {
	// Deliveries is closed when the subscription is over: on Close, when the channel
	// or connection ends, or when the broker cancels the consumer. Unsettled
	// messages then come again, to whoever subscribes.
	Deliveries() <-chan Delivery
	// Ack settles the delivery, with UpTo also every earlier one. ErrOver once the
	// subscription is over. It does nothing for what has been settled before; a tag
	// that was never received is a holdfast.ErrInvalid. Nil does not prove that the
	// broker heard of it: if the subscription ends soon after, even by Close, the
	// message may come again.
	Ack(tag uint64, mode AckMode) error
	// Requeue settles deliveries by giving them back to the front of the queue: before what
	// was never delivered, after what was given back earlier, and among each other in
	// the order of their tags. Errors are those of Ack.
	Requeue(tags ...uint64) error
	// Pause stops further deliveries and gives back those that nobody has received
	// from Deliveries yet; received ones can still be settled. Resume starts again
	// with a new prefetch, for which deliveries received before do not count. Both do
	// nothing if there is nothing to do. Any error ends the subscription.
	Pause() error
	Resume(prefetch int) error
	// Close ends the subscription; unsettled messages go back to the queue. It may
	// be called more than once.
	Close() error
}

// AckMode says how far an Ack reaches.
type AckMode uint8

// The modes.
const (
	One  AckMode = iota // this delivery
	UpTo                // this delivery and all earlier ones of the subscription
)

// Admin is for whoever looks after the topology. Without a connection its methods
// wait a few seconds for one and then return a holdfast.ErrUnavailable.
type Admin interface {
	// Declare makes sure that everything exists, and returns the names that did not
	// exist before. Existing objects are not changed; one with other arguments is
	// an error that names it, wrapping holdfast.ErrConflict.
	Declare(ctx context.Context, objects []Object) (created []string, err error)
	// Missing returns the names that do not exist.
	Missing(ctx context.Context, objects []Object) ([]string, error)
	// Delete removes the objects with everything in them. Only `topology delete` and tests
	// may call it.
	Delete(ctx context.Context, objects []Object) error
	// Depths returns, for queues that exist, how many messages wait and how many
	// consumers there are. The figures are a broker's own, possibly stale: for people
	// only, nothing may be decided by them.
	Depths(ctx context.Context, queues []string) (map[string]Depth, error)
	// Health says whether the broker can be used now.
	Health() Health
}

// Depth is a broker's idea of a queue.
type Depth struct {
	Ready     int
	Consumers int
}

// Health describes the connections.
type Health struct {
	Connected bool
	Blocked   string // why the broker does not take messages now, for example an alarm
	Server    string // product and version
	Err       error  // the newest failure, if not connected
}

// Kind is what an Object is.
type Kind uint8

// The kinds of objects.
const (
	Queue Kind = iota
	Exchange
)

// Object is a queue or exchange with its arguments, a pure value.
type Object struct {
	Kind Kind
	Name string
	Args map[string]any // strings and int64 only
}
