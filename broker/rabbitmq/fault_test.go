package rabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/workshop/brokertest"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func ctx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func declare(t testing.TB, b broker.Broker) (queue string) {
	t.Helper()
	queue = rabbittest.Prefix()
	err := b.Declare(ctx(t), []broker.Object{{Kind: broker.Queue, Name: queue,
		Args: map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(broker.DeliveryLimit)}}})
	must(t, err)
	return queue
}

func one(queue, body string) []broker.Message {
	return []broker.Message{{Queue: queue, Body: []byte(body)}}
}

func publish(t testing.TB, b broker.Broker, queue, body string) {
	t.Helper()
	_, err := b.Publish(ctx(t), one(queue, body))
	must(t, err)
}

// publishUntilStored publishes until the message is stored.
func publishUntilStored(t testing.TB, b broker.Broker, queue, body string) {
	t.Helper()
	within(t, "a publish to succeed", func() bool {
		_, err := b.Publish(ctx(t), one(queue, body))
		return err == nil
	})
}

// within polls until the condition is true.
func within(t testing.TB, description string, condition func() bool) {
	t.Helper()
	deadline, tick := time.After(slow.Patience()), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out waiting for %s", description)
		}
	}
}

func subscribe(t testing.TB, b broker.Broker, queue string, prefetch int) broker.Subscription {
	t.Helper()
	sub, err := b.Subscribe(ctx(t), queue, prefetch)
	must(t, err)
	return sub
}

func receive(t testing.TB, sub broker.Subscription) broker.Delivery {
	t.Helper()
	return brokertest.Receive(t, sub)
}

func waitEnded(t testing.TB, sub broker.Subscription) {
	t.Helper()
	deadline := time.After(slow.Patience())
	for {
		select {
		case _, ok := <-sub.Deliveries():
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the subscription did not end")
		}
	}
}

// checkDuration runs f and checks its duration.
func checkDuration(t testing.TB, least, most time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if d := time.Since(began); d < least || d > most {
		t.Errorf("took %s, want %s to %s", d, least, most)
	}
}

func wantUnknown(t testing.TB, outcomes []broker.Outcome, err error) {
	t.Helper()
	if !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("got error %v, want ErrUnavailable", err)
	}
	for i, outcome := range outcomes {
		if outcome != broker.Unknown {
			t.Errorf("outcome %d is %d, want Unknown", i, outcome)
			return
		}
	}
}

func TestPublishReturnsFromABlackHole(t *testing.T) {
	t.Parallel()
	limit, slack := slow.Times(2*time.Second), slow.Patience()/2
	b, proxy := proxied(t, rabbitmq.Options{ConfirmTimeout: limit})
	queue := declare(t, b)
	publish(t, b, queue, "before")
	proxy.Cut()
	checkDuration(t, limit, limit+slack, func() {
		outcomes, err := b.Publish(ctx(t), one(queue, "a"))
		wantUnknown(t, outcomes, err)
	})
	checkDuration(t, 0, slack, func() {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		outcomes, err := b.Publish(short, one(queue, "b"))
		wantUnknown(t, outcomes, err)
	})
	proxy.Heal()
	publishUntilStored(t, b, queue, "after")
}

func TestPublishReturnsFromAHangingWrite(t *testing.T) {
	t.Parallel()
	limit, slack := slow.Times(2*time.Second), slow.Patience()/2
	b, proxy := proxied(t, rabbitmq.Options{ConfirmTimeout: limit})
	queue := declare(t, b)
	publish(t, b, queue, "before")
	proxy.Cut()
	large := make([]broker.Message, 500) // more than the socket buffers can hold
	for i := range large {
		large[i] = broker.Message{Queue: queue, Body: bytes.Repeat([]byte("x"), 128<<10)}
	}
	checkDuration(t, limit, limit+slack, func() {
		outcomes, err := b.Publish(ctx(t), large)
		wantUnknown(t, outcomes, err)
	})
	proxy.Heal()
	publishUntilStored(t, b, queue, "after")
}

// quickHeartbeats returns options with which a broker client soon notices a black hole, without losing its connection
// on a slow machine.
func quickHeartbeats() rabbitmq.Options {
	second := slow.Times(time.Second).Truncate(time.Second) // the protocol has whole seconds
	return rabbitmq.Options{Heartbeat: second, DialTimeout: second}
}

func TestSubscriptionEndsInABlackHole(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t, quickHeartbeats())
	queue := declare(t, b)
	publish(t, b, queue, "a")
	sub := subscribe(t, b, queue, 1)
	tag := receive(t, sub).Tag
	proxy.Cut()
	waitEnded(t, sub) // before the proxy forwards again
	if err := sub.Ack(tag, broker.One); !errors.Is(err, broker.ErrSubscriptionEnded) {
		t.Errorf("Ack after the end: %v", err)
	}
	proxy.Heal()
	if d := receive(t, subscribe(t, b, queue, 1)); string(d.Body) != "a" || !d.Redelivered {
		t.Errorf("got %q, redelivered: %t", d.Body, d.Redelivered)
	}
}

func TestSubscribeWaitsForAConnection(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t, rabbitmq.Options{ConfirmTimeout: time.Hour})
	queue := declare(t, b)
	publish(t, b, queue, "a")
	waitEnded := subscribe(t, b, queue, 1)
	proxy.Refuse()
	for range waitEnded.Deliveries() {
	}
	within(t, "Health to notice", func() bool { return !b.Health().Connected })
	if err := b.Health().Err; err == nil || !strings.Contains(err.Error(), proxy.Addr()) {
		t.Errorf("Health().Err does not name the address: %v", err)
	}
	publishing := ctx(t)
	outcomes, err := b.Publish(publishing, one(queue, "b"))
	wantUnknown(t, outcomes, err)
	if publishing.Err() != nil {
		t.Error("Publish waited for the time limit, although there is no connection")
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Subscribe(short, queue, 1); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("Subscribe without a connection: %v", err)
	}

	result := make(chan broker.Subscription)
	go func() {
		sub, err := b.Subscribe(ctx(t), queue, 1)
		if err != nil {
			t.Error(err)
		}
		result <- sub
	}()
	proxy.Heal()
	if sub := <-result; sub != nil {
		receive(t, sub)
	}
	within(t, "Health to recover", func() bool { return b.Health().Connected })
}

func TestAConfirmThatIsMissingCostsTheChannelThenTheConnection(t *testing.T) {
	t.Parallel()
	limit := slow.Times(2 * time.Second)
	b, proxy := proxied(t, rabbitmq.Options{ConfirmTimeout: limit, PublishChannels: 1})
	queue := declare(t, b)
	publish(t, b, queue, "before")
	first := b.IdleChannels()
	proxy.CutReplies()
	outcomes, err := b.Publish(ctx(t), one(queue, "a"))
	wantUnknown(t, outcomes, err)
	if err == nil || !strings.Contains(err.Error(), "did not confirm within "+limit.String()) {
		t.Errorf("got %v", err)
	}
	proxy.Heal()
	publish(t, b, queue, "b")
	if second := b.IdleChannels(); len(first) != 1 || len(second) != 1 || first[0] == second[0] {
		t.Errorf("the channel that lost a confirm is used again: %v, %v", first, second)
	}

	proxy.CutReplies()
	within(t, "the end of the connection", func() bool {
		outcomes, err := b.Publish(ctx(t), one(queue, "c"))
		wantUnknown(t, outcomes, err)
		err = b.Health().Err
		return err != nil && strings.Contains(err.Error(), "publisher confirms are missing")
	})
	proxy.Heal()
	publishUntilStored(t, b, queue, "d")

	seen := map[string]int{}
	sub := subscribe(t, b, queue, 100)
	for seen["d"] == 0 {
		seen[string(receive(t, sub).Body)]++
	}
	if seen["a"] != 1 || seen["b"] != 1 || seen["c"] == 0 {
		t.Errorf("the server received %v", seen)
	}
}

func TestCloseReturnsFromABlackHole(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t, rabbitmq.Options{})
	queue := declare(t, b)
	publish(t, b, queue, "a")
	sub := subscribe(t, b, queue, 1)
	receive(t, sub)
	proxy.Cut()
	var work sync.WaitGroup
	for range 10 {
		work.Go(func() { _, _ = b.Publish(ctx(t), one(queue, "b")) })
		work.Go(func() { _ = sub.Pause() })
		work.Go(func() { _, _ = b.Missing(ctx(t), []broker.Object{{Name: queue}}) })
	}
	checkDuration(t, 0, slow.Patience(), func() { must(t, b.Close()) })
	work.Wait()
	proxy.Heal() // for the cleanup
}

func TestCloseOfASubscriptionInABlackHole(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t, rabbitmq.Options{})
	sub := subscribe(t, b, declare(t, b), 1)
	proxy.Cut()
	checkDuration(t, 0, slow.Patience(), func() { must(t, sub.Close()) })
	proxy.Heal()
}

// If an Ack arrives on a closed channel, RabbitMQ closes the whole connection.
func TestSettlingDuringCloseKeepsTheConnection(t *testing.T) {
	t.Parallel()
	b, _ := rabbittest.Open(t)
	queue, otherQueue := declare(t, b), declare(t, b)
	other := subscribe(t, b, otherQueue, 1)
	const n = 1000
	messages := make([]broker.Message, n)
	for i := range messages {
		messages[i] = broker.Message{Queue: queue, Body: fmt.Append(nil, i)}
	}
	_, err := b.Publish(ctx(t), messages)
	must(t, err)
	for range 40 { // enough to hit the race
		sub := subscribe(t, b, queue, n)
		for range n {
			receive(t, sub)
		}
		var work sync.WaitGroup
		began := make(chan struct{}, 4)
		for worker := range uint64(4) {
			work.Go(func() {
				for tag := worker + 1; tag <= n; tag += 4 {
					err := sub.Requeue(tag)
					if tag == worker+1 {
						began <- struct{}{}
					}
					if err != nil && !errors.Is(err, broker.ErrSubscriptionEnded) {
						t.Error(err)
					}
				}
			})
		}
		for range 4 {
			<-began
		}
		must(t, sub.Close())
		work.Wait()
	}
	publish(t, b, otherQueue, "a")
	must(t, other.Ack(receive(t, other).Tag, broker.One))
}
