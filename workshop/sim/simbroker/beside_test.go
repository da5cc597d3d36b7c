package simbroker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

const (
	// patience limits the waits for RabbitMQ.
	patience = 10 * time.Second
	// gap is how long RabbitMQ needs on a slow machine to process a settlement, which has no answer.
	gap = 10 * time.Millisecond
)

// comparison calls the same methods of a simulated broker and a real one.
type comparison struct {
	*testing.T
	*rand.Rand
	sim, real broker.Broker
	queues    []string
	subs      []*pair
	serial    int
	log       []string
}

// pair is a subscription to the same queue of both brokers.
type pair struct {
	sim, real broker.Subscription
	queue     string
	paused    bool
	mixed     bool     // the unsettled deliveries belong to several consumers
	tags      []uint64 // received and not settled
}

// TestBesideRabbitMQ takes random steps. After each step, both brokers must have delivered the same messages to the
// same subscriptions, with the same marks.
func TestBesideRabbitMQ(t *testing.T) {
	t.Parallel()
	real, prefix := rabbittest.Open(t)
	for range 4 {
		seed := rand.Uint64()
		name := fmt.Sprint(seed)
		w := &comparison{
			T: t, Rand: rand.New(rand.NewPCG(seed, 0)), sim: simbroker.New().Client(nil), real: real,
			queues: []string{prefix + name + ".l", prefix + name + ".d"},
		}
		dead := queue(w.queues[1], "")
		dead.Args["x-delivery-limit"] = int64(broker.DeliveryLimit)
		objects := []broker.Object{dead, queue(w.queues[0], w.queues[1])}
		for _, b := range []broker.Broker{w.sim, w.real} {
			if err := b.Declare(t.Context(), objects); err != nil {
				t.Fatal(err)
			}
		}
		for range 150 {
			w.step()
			w.compare()
			if t.Failed() {
				t.Fatalf("seed %d, after %q", seed, w.log)
			}
		}
		for _, p := range w.subs {
			w.both(p.sim.Close(), p.real.Close())
		}
	}
}

func (w *comparison) both(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Errorf("after %q: %v", w.log, err)
	}
}

func (w *comparison) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *comparison) step() {
	n := w.IntN(100)
	switch {
	case n < 20:
		w.publish()
		return
	case n < 30 && len(w.subs) < 5:
		w.subscribe()
		return
	case len(w.subs) == 0:
		return
	}
	i := w.IntN(len(w.subs))
	p := w.subs[i]
	switch {
	case n < 75:
		w.settle(i, p)
	case n < 83:
		w.note("pause %d", i)
		w.both(p.sim.Pause(), p.real.Pause())
		p.paused = true
	case n < 93 && p.paused:
		prefetch := 1 + w.IntN(4)
		w.note("resume %d: %d", i, prefetch)
		w.both(p.sim.Resume(prefetch), p.real.Resume(prefetch))
		p.paused, p.mixed = false, len(p.tags) > 0
	case p.mixed && len(p.tags) > 0: // RabbitMQ requeues by the random names of the consumers
		w.note("ack %d all", i)
		w.both(p.sim.Ack(p.tags[len(p.tags)-1], broker.UpTo), p.real.Ack(p.tags[len(p.tags)-1], broker.UpTo))
		p.tags = nil
	default:
		w.note("close %d", i)
		w.both(p.sim.Close(), p.real.Close())
		w.subs = slices.Delete(w.subs, i, i+1)
	}
}

func (w *comparison) publish() {
	queue := w.queues[w.IntN(2)]
	bodies := make([]string, 1+w.IntN(3))
	for i := range bodies {
		w.serial++
		bodies[i] = fmt.Sprint(w.serial)
	}
	w.note("publish %s %v", queue[len(queue)-1:], bodies)
	for _, b := range []broker.Broker{w.sim, w.real} {
		_, err := b.Publish(w.Context(), messages(queue, bodies...))
		w.both(err)
	}
}

func (w *comparison) subscribe() {
	queue := w.queues[w.IntN(2)]
	prefetch := 1 + w.IntN(4)
	w.note("subscribe %s %d", queue[len(queue)-1:], prefetch)
	one, err := w.sim.Subscribe(w.Context(), queue, prefetch)
	two, err2 := w.real.Subscribe(w.Context(), queue, prefetch)
	w.both(err, err2)
	w.subs = append(w.subs, &pair{sim: one, real: two, queue: queue})
}

// settle requeues nothing to the queue with the low delivery limit; only Close does. RabbitMQ 3.10 returns the credit
// for a dead letter twice, so that its consumer then holds more than its prefetch. It also requeues nothing of a mixed
// subscription, because then the names of the consumers decide who gets the next messages.
func (w *comparison) settle(i int, p *pair) {
	if len(p.tags) == 0 {
		return
	}
	k := w.IntN(len(p.tags))
	tag := p.tags[k]
	switch how := w.IntN(4); {
	case how == 0:
		w.note("ack %d up to %d", i, tag)
		w.both(p.sim.Ack(tag, broker.UpTo), p.real.Ack(tag, broker.UpTo))
		p.tags = slices.Delete(p.tags, 0, k+1)
	case how == 1 || p.queue == w.queues[0] || p.mixed:
		w.note("ack %d: %d", i, tag)
		w.both(p.sim.Ack(tag, broker.One), p.real.Ack(tag, broker.One))
		p.tags = slices.Delete(p.tags, k, k+1)
	default:
		tags := slices.Clone(p.tags[k:min(k+2, len(p.tags))])
		w.note("requeue %d: %v", i, tags)
		w.both(p.sim.Requeue(tags...), p.real.Requeue(tags...))
		p.tags = slices.Delete(p.tags, k, k+len(tags))
	}
}

// compare receives the new deliveries and compares them and the depths of the queues.
func (w *comparison) compare() {
	for i, p := range w.subs {
		for len(p.sim.Deliveries()) > 0 {
			want := <-p.sim.Deliveries()
			select {
			case got, open := <-p.real.Deliveries():
				if !open || got.Tag != want.Tag || string(got.Body) != string(want.Body) || got.Redelivered != want.Redelivered {
					w.Errorf("subscription %d: RabbitMQ delivered %s, the simulation %s", i, say(got), say(want))
					return
				}
			case <-time.After(patience):
				w.Errorf("subscription %d: RabbitMQ did not deliver %s", i, say(want))
				return
			}
			p.tags = append(p.tags, want.Tag)
		}
	}
	time.Sleep(gap)
	want, err := w.sim.Depths(w.Context(), w.queues)
	w.both(err)
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	var got map[string]broker.Depth
	for !maps.Equal(got, want) {
		now, err := w.real.Depths(ctx, w.queues)
		if err != nil {
			w.Errorf("depths of RabbitMQ %v, depths of the simulation %v: %v", got, want, err)
			break
		}
		got = now
	}
	for i, p := range w.subs {
		select {
		case d := <-p.real.Deliveries():
			w.Errorf("subscription %d: RabbitMQ delivered %s, the simulation nothing", i, say(d))
		default:
		}
	}
}

func say(d broker.Delivery) string {
	return fmt.Sprintf("%q with tag %d (redelivered: %t)", d.Body, d.Tag, d.Redelivered)
}
