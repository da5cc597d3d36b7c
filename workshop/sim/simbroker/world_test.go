package simbroker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

// world is a server with an AMQP queue "q", in a synctest bubble.
type world struct {
	*testing.T
	*simbroker.Broker
	net     *manual
	client  *simbroker.Client // over net
	other   *simbroker.Client // its frames arrive at once
	entered int
	left    []string
	misused []string
}

// manual is a network whose frames arrive when the test says so. Requests arrive at once.
type manual struct {
	mu    sync.Mutex
	fate  simbroker.Fate
	mute  bool // requests neither arrive nor get an answer
	late  []func(simbroker.Fate)
	posts []func()
	trace []string
}

func (n *manual) Call(ctx context.Context, step simbroker.Step, effect func(simbroker.Fate)) error {
	n.mu.Lock()
	n.trace = append(n.trace, step.Op+" "+step.Note())
	fate, mute := n.fate, n.mute
	if mute {
		n.late = append(n.late, effect)
	}
	n.mu.Unlock()
	if mute {
		<-ctx.Done()
		return ctx.Err()
	}
	effect(fate)
	return nil
}

func (n *manual) Post(_ uint64, step simbroker.Step, effect func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trace = append(n.trace, step.Op+" "+step.Note())
	n.posts = append(n.posts, effect)
}

// deliver makes all frames on their way arrive.
func (n *manual) deliver() {
	for effect := n.first(); effect != nil; effect = n.first() {
		effect()
	}
}

func (n *manual) first() (effect func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.posts) > 0 {
		effect, n.posts = n.posts[0], n.posts[1:]
	}
	return effect
}

// test runs a scenario in a synctest bubble.
func test(t *testing.T, name string, scenario func(*world)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := &world{T: t, Broker: simbroker.New(), net: &manual{fate: simbroker.Fine()}}
			w.client, w.other = w.Client(w.net), w.Client(nil)
			w.Observe(simbroker.Observer{
				Entered: func(*simbroker.Message) { w.entered++ },
				Left: func(m *simbroker.Message, why simbroker.Reason) {
					w.left = append(w.left, fmt.Sprintf("%s %s %s", m.Queue, m.Body, why))
				},
				Misused: func(_ *simbroker.Client, what string) { w.misused = append(w.misused, what) },
			})
			w.declare("q")
			scenario(w)
			w.net.mute = false
			w.must(errors.Join(w.client.Close(), w.other.Close()))
			if len(w.misused) > 0 {
				t.Errorf("reported as misuse: %q", w.misused)
			}
		})
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) mustBe(err, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Fatalf("got error %v, want %v", err, want)
	}
}

// queue returns an AMQP queue with a limit of 2 returns, and with the dead-letter queue target unless that is "".
func queue(name, target string) broker.Object {
	args := map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(2)}
	if target != "" {
		args["x-overflow"] = "reject-publish"
		args["x-dead-letter-exchange"] = ""
		args["x-dead-letter-routing-key"] = target
		args["x-dead-letter-strategy"] = "at-least-once"
	}
	return broker.Object{Kind: broker.Queue, Name: name, Args: args}
}

func (w *world) declare(name string) {
	w.Helper()
	err := w.other.Declare(w.Context(), []broker.Object{queue(name, "")})
	w.must(err)
}

func messages(queue string, bodies ...string) (list []broker.Message) {
	for _, body := range bodies {
		list = append(list, broker.Message{Queue: queue, Body: []byte(body)})
	}
	return list
}

func (w *world) send(queue string, bodies ...string) {
	w.Helper()
	_, err := w.other.Publish(w.Context(), messages(queue, bodies...))
	w.must(err)
}

func (w *world) subscribe(c *simbroker.Client, queue string, prefetch int) broker.Subscription {
	w.Helper()
	sub, err := c.Subscribe(w.Context(), queue, prefetch)
	w.must(err)
	return sub
}

// expect checks that exactly these bodies can be received now. A redelivered one has a star, and "end" means the end of
// the deliveries. It returns the tags.
func (w *world) expect(sub broker.Subscription, bodies ...string) (tags []uint64) {
	w.Helper()
	var got []string
	for {
		select {
		case d, open := <-sub.Deliveries():
			if !open {
				got = append(got, "end")
				w.same(got, bodies)
				return tags
			}
			text := string(d.Body)
			if d.Redelivered {
				text += "*"
			}
			got, tags = append(got, text), append(tags, d.Tag)
		default:
			w.same(got, bodies)
			return tags
		}
	}
}

// holds checks the messages in the broker, given as "queue body returns". A plus follows if a consumer holds the
// message.
func (w *world) holds(want ...string) {
	w.Helper()
	var got []string
	for m := range w.Messages() {
		text := fmt.Sprintf("%s %s %d", m.Queue, m.Body, m.Returns)
		if m.Holder != nil {
			text += "+"
		}
		if m.Dead {
			text += " dead"
		}
		got = append(got, text)
	}
	w.same(got, want)
}

func (w *world) same(got, want []string) {
	w.Helper()
	if !slices.Equal(got, want) {
		w.Fatalf("got %q, want %q", got, want)
	}
}

// unknown checks the outcomes of a publish call of which at least one is Unknown.
func (w *world) unknown(outcomes []broker.Outcome, err error, want ...broker.Outcome) {
	w.Helper()
	w.mustBe(err, holdfast.ErrUnavailable)
	if !slices.Equal(outcomes, want) {
		w.Fatalf("got outcomes %v, want %v", outcomes, want)
	}
}
