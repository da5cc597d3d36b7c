package inproc_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/inproc"
)

// limited declares a queue with a delivery limit of 2.
func limited(t *testing.T, b *inproc.Broker, name, target string) {
	t.Helper()
	args := map[string]any{"x-delivery-limit": int64(2)}
	if target != "" {
		args["x-dead-letter-routing-key"] = target
	}
	err := b.Declare(t.Context(), []broker.Object{{Kind: broker.Queue, Name: name, Args: args}})
	must(t, err)
}

func TestAMessageOverTheDeliveryLimitBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	b := open(t)
	declare(t, b, "dead")
	limited(t, b, "q", "dead")
	send(t, b, "dead", "earlier")
	send(t, b, "q", "a", "b")
	sub := subscribe(t, b, "q", 1)
	must(t, sub.Requeue(expect(t, sub, "a")[0].Tag))
	expect(t, sub, "a")
	must(t, sub.Close()) // requeues the message
	sub = subscribe(t, b, "q", 1)
	expect(t, sub, "a")
	b.Interrupt()
	if n := ready(t, b, "q"); n != 1 {
		t.Fatalf("%d messages ready, want 1", n)
	}
	expect(t, subscribe(t, b, "q", 1), "b")
	for i, d := range expect(t, subscribe(t, b, "dead", 2), "earlier", "a") {
		if d.Redelivered {
			t.Errorf("dead letter %d is marked as redelivered", i)
		}
	}
}

func TestOnlyReceivedMessagesCountAsRequeued(t *testing.T) {
	t.Parallel()
	b := open(t)
	limited(t, b, "q", "")
	send(t, b, "q", "a")
	sub := subscribe(t, b, "q", 1)
	for range 10 {
		must(t, sub.Pause())
		must(t, sub.Resume(1))
	}
	for range 10 {
		must(t, sub.Close())
		sub = subscribe(t, b, "q", 1)
	}
	if expect(t, sub, "a")[0].Redelivered {
		t.Error("marked as redelivered, but never received before")
	}
}

func TestADeadLetterWithoutATargetIsDroppedWithAWarning(t *testing.T) {
	t.Parallel()
	var out syncBuilder
	log := logrus.New()
	log.SetOutput(&out)
	b := inproc.Open(inproc.Options{Log: log})
	defer b.Close()
	limited(t, b, "q", "")
	send(t, b, "q", "a", "b")
	sub := subscribe(t, b, "q", 1)
	for range 3 {
		must(t, sub.Requeue(expect(t, sub, "a")[0].Tag))
	}
	expect(t, sub, "b")
	if n := ready(t, b, "q"); n != 0 {
		t.Errorf("%d messages ready, want 0", n)
	}
	if !strings.Contains(out.String(), "level=warning") {
		t.Errorf("no warning was logged: %q", out.String())
	}
}

func TestADeadLetterWaitsForItsTarget(t *testing.T) {
	t.Parallel()
	b := open(t)
	limited(t, b, "q", "dead")
	send(t, b, "q", "a")
	sub := subscribe(t, b, "q", 1)
	for range 10 {
		must(t, sub.Requeue(expect(t, sub, "a")[0].Tag))
	}
	tag := expect(t, sub, "a")[0].Tag
	declare(t, b, "dead")
	must(t, sub.Requeue(tag))
	expect(t, subscribe(t, b, "dead", 1), "a")
	if n := ready(t, b, "q"); n != 0 {
		t.Errorf("%d messages ready, want 0", n)
	}
}

func TestAQueueCanBeItsOwnTarget(t *testing.T) {
	t.Parallel()
	b := open(t)
	limited(t, b, "q", "q")
	send(t, b, "q", "a", "b")
	sub := subscribe(t, b, "q", 1)
	for range 3 {
		must(t, sub.Requeue(expect(t, sub, "a")[0].Tag))
	}
	must(t, sub.Ack(expect(t, sub, "b")[0].Tag, broker.One))
	if expect(t, sub, "a")[0].Redelivered {
		t.Error("a dead letter is marked as redelivered")
	}
}

func TestTheRescueQueueTakesMessagesOverTheDeliveryLimit(t *testing.T) {
	t.Parallel()
	b := open(t)
	topology := broker.NewTopology("test", 2, "x")
	err := topology.Declare(t.Context(), b, []string{"queue"})
	must(t, err)
	send(t, b, topology.Main("queue"), "a")
	sub := subscribe(t, b, topology.Main("queue"), 1)
	for range broker.DeliveryLimit + 1 {
		must(t, sub.Requeue(expect(t, sub, "a")[0].Tag))
	}
	expect(t, subscribe(t, b, topology.Rescue(), 1), "a")
}

func TestUnsupportedArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	b := open(t)
	for key, value := range map[string]any{"x-delivery-limit": "many", "x-dead-letter-routing-key": int64(1)} {
		o := broker.Object{Kind: broker.Queue, Name: "q", Args: map[string]any{key: value}}
		if err := b.Declare(t.Context(), []broker.Object{o}); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s %v: got error %v", key, value, err)
		}
		missing, err := b.Missing(t.Context(), []broker.Object{o})
		must(t, err)
		same(t, missing, []string{"q"})
	}
	if _, err := b.Publish(t.Context(), []broker.Message{{}}); err == nil {
		t.Error("a message to a queue without a name was stored")
	}
}

// syncBuilder is a strings.Builder that is safe for concurrent use.
type syncBuilder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
