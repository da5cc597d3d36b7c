package e2e

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
)

// ackBroker is a broker that records whether a ticket from the main queue was delivered and acknowledged.
type ackBroker struct {
	broker.Broker
	topology         broker.Topology
	delivered, acked atomic.Bool
}

func (a *ackBroker) Subscribe(ctx context.Context, queue string, prefetch int) (broker.Subscription, error) {
	sub, err := a.Broker.Subscribe(ctx, queue, prefetch)
	if err != nil || queue != a.topology.Main(holdfast.DefaultQueue) {
		return sub, err
	}
	recording := &ackSubscription{Subscription: sub, of: a, deliveries: make(chan broker.Delivery)}
	go recording.forward()
	return recording, nil
}

// ackSubscription is a subscription to the main queue that records in an ackBroker.
type ackSubscription struct {
	broker.Subscription
	of         *ackBroker
	deliveries chan broker.Delivery
	ticket     atomic.Uint64 // the tag of the message with the ticket
}

// forward forwards the deliveries and records the one with a ticket.
func (s *ackSubscription) forward() {
	defer close(s.deliveries)
	for delivery := range s.Subscription.Deliveries() {
		if bytes.Contains(delivery.Body, []byte(`"t":`)) { // not a sentinel
			s.ticket.Store(delivery.Tag)
			s.of.delivered.Store(true)
		}
		s.deliveries <- delivery
	}
}

func (s *ackSubscription) Deliveries() <-chan broker.Delivery { return s.deliveries }

func (s *ackSubscription) Ack(tag uint64, mode broker.AckMode) error {
	err := s.Subscription.Ack(tag, mode)
	if ticket := s.ticket.Load(); err == nil && ticket > 0 && (tag == ticket || mode == broker.UpTo && tag > ticket) {
		s.of.acked.Store(true)
	}
	return err
}

// The worker acknowledges the message of a task while the task runs. So the consumer timeout of the broker does not
// limit the duration of a task.
func TestARunningTaskKeepsNoMessage(t *testing.T) { onServersFirst(t, aRunningTaskKeepsNoMessage) }

func aRunningTaskKeepsNoMessage(t *testing.T, w *world) {
	w.runJanitor(t, w.Backend, nil)
	recorder := &ackBroker{Broker: w.Broker, topology: w.Topology}
	started, release := make(chan struct{}, 10), make(chan struct{})
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Broker = recorder }, map[string]consumer.Handler{
		"long": consumer.HandlerFunc(func(ctx context.Context, _ holdfast.Task) error {
			started <- struct{}{}
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}),
	})
	w.enqueue(t, 1, holdfast.NewTask{Type: "long"})
	<-started
	poll(t, func() string {
		return fmt.Sprintf("while the task runs: message delivered: %t, acknowledged: %t", recorder.delivered.Load(), recorder.acked.Load())
	}, func(context.Context) bool { return recorder.acked.Load() })

	close(release)
	w.awaitCount(t, holdfast.Done, 1)
	if n := len(started); n > 0 {
		t.Errorf("the task ran %d more times", n)
	}
}
