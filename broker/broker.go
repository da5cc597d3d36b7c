// Package broker defines the contract of the message broker. The broker carries only hints: if it loses all its
// messages, no task is lost. Each adapter has a folder of its own beside this file. Package brokertest is the
// conformance suite that every adapter passes.
//
// # Rules for every adapter
//
// An adapter owns its connections and restores them forever, with growing pauses between the tries.
//
// All messages that were received over one channel belong to one [Subscription]. When the channel ends, for any reason,
// the subscription ends too, and its deliveries can no longer be settled. So a delivery tag is never used on another
// channel.
//
// No method of an adapter deletes, purges or expires a queue, except Delete.
//
// Source of the rules: the RabbitMQ documentation on confirms and consumer acknowledgements, and the behavior of
// amqp091-go.
package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastq/holdfast"
)

// ErrNoQueue means that the AMQP queue does not exist. A janitor declares missing queues.
var ErrNoQueue = errors.New("the AMQP queue does not exist")

// ErrSubscriptionEnded means that a subscription has ended. The broker delivers its unsettled messages again.
var ErrSubscriptionEnded = errors.New("the subscription has ended")

// Broker combines all roles, for wiring and for the conformance suite.
type Broker interface {
	Publisher
	Subscriber
	Admin

	// Close ends all subscriptions and connections. It returns when every goroutine of the adapter has ended. A second
	// call does nothing.
	Close() error
}

// Message is an outgoing message to one AMQP queue.
type Message struct {
	Queue   string
	Body    []byte
	Headers map[string]string // for people only; no program reads them
}

// Outcome is the result of publishing one message.
type Outcome uint8

// The outcomes.
const (
	Unknown  Outcome = iota // no confirm: the broker may have stored the message; publish it again
	Stored                  // the broker has confirmed that it stored the message
	Returned                // the queue does not exist
)

// Publisher publishes messages.
type Publisher interface {
	// Publish publishes the messages as persistent and mandatory, waits for the publisher confirms, and returns one
	// outcome per message. It waits until ctx is done or a time limit has passed, which is a few seconds for every few
	// hundred messages. While the broker accepts no messages, for example because of an alarm, Publish returns Unknown
	// for all messages at once. The same holds while the connection is down, except that the first calls wait for the
	// first attempt to connect.
	//
	// Publish returns nil if every outcome is Stored, and ErrNoQueue if every other outcome is Returned. In all other
	// cases it returns an error that wraps holdfast.ErrUnavailable.
	//
	// Publish is safe for concurrent use. Messages of one call to one queue arrive in their order unless a fault
	// occurs.
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
	// Subscribe starts to receive messages from a queue, with at most prefetch (1 to 65535) unsettled messages at a
	// time. It waits for a connection until ctx is done and then returns an ErrUnavailable. It returns ErrNoQueue if
	// the queue does not exist. After Subscribe has returned, ctx has no effect on the subscription.
	Subscribe(ctx context.Context, queue string, prefetch int) (Subscription, error)
}

// Subscription receives messages from one queue over one channel. Its methods are safe for concurrent use.
type Subscription interface {
	// Deliveries returns the channel of deliveries. It is closed when the subscription ends: on Close, when the channel
	// or the connection ends, or when the broker cancels the consumer. The broker then redelivers unsettled messages to
	// any subscriber.
	Deliveries() <-chan Delivery
	// Ack acknowledges the delivery, and with UpTo also every earlier one. It ignores deliveries that are already
	// settled. It returns ErrSubscriptionEnded if the subscription has ended, and holdfast.ErrInvalid for a tag that
	// was never received.
	//
	// A nil error does not prove that the broker received the acknowledgement. If the subscription ends soon
	// afterwards, even by Close, the broker may redeliver the message.
	Ack(tag uint64, mode AckMode) error
	// Requeue settles deliveries by returning them to the front of the queue, in the order of their tags. They are
	// behind messages that were returned earlier, and ahead of messages that were never delivered. Errors are those of
	// Ack.
	Requeue(tags ...uint64) error
	// Pause stops further deliveries, and returns to the queue those that were not yet received from Deliveries.
	// Received deliveries can still be settled. Resume starts deliveries again with a new prefetch, in which earlier
	// deliveries do not count. Pause does nothing if the subscription is paused, and Resume does nothing if it is not.
	// After an error of Pause or Resume, the subscription has ended.
	Pause() error
	Resume(prefetch int) error
	// Close ends the subscription. The broker returns unsettled messages to the queue. A second call does nothing.
	Close() error
}

// AckMode is the range of an Ack.
type AckMode uint8

// The modes.
const (
	One  AckMode = iota // this delivery
	UpTo                // this delivery and all earlier ones of the subscription
)

// Admin manages the topology. While the connection is down, its methods wait a few seconds for it and then return
// holdfast.ErrUnavailable.
type Admin interface {
	// Declare creates the objects that do not exist. It does not change existing objects. If one has other arguments,
	// Declare returns a holdfast.ErrConflict that names it.
	Declare(ctx context.Context, objects []Object) error
	// Missing returns the names of the objects that do not exist.
	Missing(ctx context.Context, objects []Object) ([]string, error)
	// Delete deletes the objects with all their messages. Only `topology delete` and tests may call it.
	Delete(ctx context.Context, objects []Object) error
	// Depths returns the number of waiting messages and of consumers of each queue that exists. The numbers may be
	// stale. They are for people only; no program may base a decision on them.
	Depths(ctx context.Context, queues []string) (map[string]Depth, error)
	// Health reports the state of the connections.
	Health() Health
}

// Depth describes a queue, as far as the broker knows.
type Depth struct {
	Ready     int
	Consumers int
}

// Health is the state of the connections of an adapter.
type Health struct {
	Connected bool
	Blocked   string // why the broker accepts no messages now, for example an alarm; "" if it accepts messages
	Server    string // product and version
	Err       error  // latest failure, if not connected
}

// Kind is the kind of an Object.
type Kind uint8

// The kinds of objects.
const (
	Queue Kind = iota
	Exchange
)

// Object is an AMQP queue or exchange with its arguments. It is a pure value.
type Object struct {
	Kind Kind
	Name string
	Args map[string]any // strings and int64 only
}

// String returns the kind and the name, for errors.
func (o Object) String() string {
	if o.Kind == Exchange {
		return fmt.Sprintf("exchange %q", o.Name)
	}
	return fmt.Sprintf("queue %q", o.Name)
}

// CheckArgs returns holdfast.ErrInvalid if an argument is neither a string nor an int64.
func (o Object) CheckArgs() error {
	for key, value := range o.Args {
		switch value.(type) {
		case string, int64:
		default:
			return fmt.Errorf("%w: argument %s of %s has type %T; only string and int64 are supported", holdfast.ErrInvalid, key, o, value)
		}
	}
	return nil
}

// CheckPrefetch returns holdfast.ErrInvalid if the number is no prefetch of AMQP.
func CheckPrefetch(prefetch int) error {
	if prefetch < 1 || prefetch > 65535 {
		return fmt.Errorf("%w: prefetch %d is not between 1 and 65535", holdfast.ErrInvalid, prefetch)
	}
	return nil
}
