package e2e

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
)

// acknowledging is a broker that records whether a ticket from the main queue was delivered and acknowledged.
type acknowledging struct {
	broker.Broker
	topology         broker.Topology
	delivered, acked atomic.Bool
}

func (a *acknowledging) Subscribe(ctx context.Context, queue string, prefetch int) (broker.Subscription, error) {
	sub, err := a.Broker.Subscribe(ctx, queue, prefetch)
	if err != nil || queue != a.topology.Main(holdfast.DefaultQueue) {
		return sub, err
	}
	counted := &acknowledged{Subscription: sub, of: a, deliveries: make(chan broker.Delivery)}
	go counted.pass()
	return counted, nil
}

// acknowledged is a subscription to the main queue.
type acknowledged struct {
	broker.Subscription
	of         *acknowledging
	deliveries chan broker.Delivery
	ticket     atomic.Uint64 // the tag of the message with the ticket
}

// pass passes the deliveries on and records the one with a ticket.
func (s *acknowledged) pass() {
	defer close(s.deliveries)
	for delivery := range s.Subscription.Deliveries() {
		if bytes.Contains(delivery.Body, []byte(`"t":`)) { // not a sentinel
			s.ticket.Store(delivery.Tag)
			s.of.delivered.Store(true)
		}
		s.deliveries <- delivery
	}
}

func (s *acknowledged) Deliveries() <-chan broker.Delivery { return s.deliveries }

func (s *acknowledged) Ack(tag uint64, mode broker.AckMode) error {
	err := s.Subscription.Ack(tag, mode)
	if ticket := s.ticket.Load(); err == nil && ticket > 0 && (tag == ticket || mode == broker.UpTo && tag > ticket) {
		s.of.acked.Store(true)
	}
	return err
}

// While a task runs, its message is already acknowledged. So the broker's limit for an acknowledgement does not limit
// the duration of a task.
func TestARunningTaskKeepsNoMessage(t *testing.T) { onBothBackends(t, aRunningTaskKeepsNoMessage) }

func aRunningTaskKeepsNoMessage(t *testing.T, w *world) {
	w.runJanitor(t, w.Backend, nil)
	seen := &acknowledging{Broker: w.Broker, topology: w.Topology}
	started, release := make(chan struct{}, 10), make(chan struct{})
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Broker = seen }, map[string]consumer.Handler{
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
	poll(t, 30*time.Second, func() string {
		return fmt.Sprintf("the task runs; message delivered: %t, acknowledged: %t", seen.delivered.Load(), seen.acked.Load())
	}, func(context.Context) bool { return seen.acked.Load() })
	close(release)
	w.awaitCount(t, 30*time.Second, holdfast.Done, 1)
	if n := len(started); n > 0 {
		t.Errorf("the task ran %d more times", n)
	}
}
