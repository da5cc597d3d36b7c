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

// acknowledging notes the delivery of a ticket from the main queue and its acknowledgement.
type acknowledging struct {
	broker.Broker
	topology         broker.Topology
	delivered, acked atomic.Bool
}

func (a *acknowledging) Subscribe(ctx context.Context, queue string, prefetch int) (broker.Subscription, error) {
	sub, err := a.Broker.Subscribe(ctx, queue, prefetch)
	if err != nil || queue != a.topology.Main(holdfast.DefaultLane) {
		return sub, err
	}
	counted := &acknowledged{Subscription: sub, of: a, deliveries: make(chan broker.Delivery)}
	go counted.pass()
	return counted, nil
}

type acknowledged struct {
	broker.Subscription
	of         *acknowledging
	deliveries chan broker.Delivery
	ticket     atomic.Uint64 // the tag of the ticket's message
}

func (s *acknowledged) pass() {
	defer close(s.deliveries)
	for delivery := range s.Subscription.Deliveries() {
		if bytes.Contains(delivery.Body, []byte(`"t":`)) { // no sentinel
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

// While a task runs, its message is already acknowledged: so the time that a broker allows for an acknowledgement does not
// limit how long a task may run.
func TestARunningTaskKeepsNoMessage(t *testing.T) { everywhere(t, aRunningTaskKeepsNoMessage) }

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
		return fmt.Sprintf("the task runs; its message was delivered: %t, and acknowledged: %t", seen.delivered.Load(), seen.acked.Load())
	}, func(context.Context) bool { return seen.acked.Load() })
	close(release)
	w.awaitCount(t, 30*time.Second, holdfast.Done, 1)
	if n := len(started); n > 0 {
		t.Errorf("the task ran %d times more", n)
	}
}
