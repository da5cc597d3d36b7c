package inproc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/inproc"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// holders records which subscription holds which message.
type holders struct {
	mu     sync.Mutex
	holder map[string]broker.Subscription
	acked  map[string]bool
	want   int
	all    chan struct{} // closed when all messages are acknowledged
	acks   chan struct{} // one for every acknowledgement
}

func newHolders(want int) *holders {
	return &holders{
		holder: map[string]broker.Subscription{}, acked: map[string]bool{}, want: want,
		all: make(chan struct{}), acks: make(chan struct{}, want),
	}
}

func ended(sub broker.Subscription) bool {
	return errors.Is(sub.Requeue(), broker.ErrSubscriptionEnded)
}

// received records a received message. It returns broker.ErrSubscriptionEnded if the subscription has ended, because
// the broker has then requeued the message.
func (h *holders) received(body string, sub broker.Subscription) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ended(sub) {
		return broker.ErrSubscriptionEnded
	}
	if h.acked[body] {
		return fmt.Errorf("%s was acknowledged and is delivered again", body)
	}
	if other := h.holder[body]; other != nil && !ended(other) {
		return fmt.Errorf("%s is held by two subscriptions at once", body)
	}
	h.holder[body] = sub
	return nil
}

// release records that the subscription no longer has the message. Call it before the message is settled.
func (h *holders) release(body string, sub broker.Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder[body] == sub {
		delete(h.holder, body)
	}
}

func (h *holders) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acked)
}

func (h *holders) ack(body string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.acked[body] {
		return fmt.Errorf("%s was acknowledged twice", body)
	}
	h.acked[body] = true
	h.acks <- struct{}{}
	if len(h.acked) == h.want {
		close(h.all)
	}
	return nil
}

// idle is how long a reader waits for a message. Then the reader settles its unsettled messages, which may fill its
// prefetch, and subscribes to another queue. Otherwise all readers may be at other queues.
const idle = 5 * time.Millisecond

// reader receives through one subscription after another and settles messages at random.
type reader struct {
	broker    *inproc.Broker
	holders   *holders
	sub       broker.Subscription
	unsettled []broker.Delivery
}

func (r *reader) run(ctx context.Context, queues []string) error {
	for ctx.Err() == nil {
		var err error
		r.unsettled = nil
		r.sub, err = r.broker.Subscribe(ctx, queues[rand.IntN(len(queues))], 1+rand.IntN(20))
		if err != nil {
			return unlessDone(ctx, err)
		}
		err = r.read(ctx)
		for _, d := range r.unsettled {
			r.holders.release(string(d.Body), r.sub)
		}
		if errors.Is(err, broker.ErrSubscriptionEnded) {
			err = nil
		}
		if err = errors.Join(unlessDone(ctx, err), r.sub.Close()); err != nil {
			return err
		}
	}
	return nil
}

// unlessDone returns err, or nil if ctx is done. Any call may fail after the reader is stopped.
func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (r *reader) read(ctx context.Context) error {
	for last := uint64(0); ; last++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(idle):
			return r.settle(r.unsettled, broker.UpTo)
		case d, ok := <-r.sub.Deliveries():
			if !ok {
				return broker.ErrSubscriptionEnded
			}
			if d.Tag != last+1 {
				return fmt.Errorf("tag %d follows tag %d", d.Tag, last)
			}
			if err := r.holders.received(string(d.Body), r.sub); err != nil {
				return err
			}
			r.unsettled = append(r.unsettled, d)
			if finished, err := r.act(); finished || err != nil {
				return err
			}
		}
	}
}

func (r *reader) act() (finished bool, err error) {
	i := rand.IntN(len(r.unsettled))
	switch n := rand.IntN(100); {
	case n < 10:
		return false, r.requeue(r.unsettled[i:])
	case n < 20:
		return false, errors.Join(r.sub.Pause(), r.settle(r.unsettled[:i], broker.UpTo), r.sub.Resume(1+rand.IntN(20)))
	case n < 40:
		return false, r.settle(r.unsettled[:i+1], broker.UpTo)
	case n < 99:
		return false, r.settle(r.unsettled[i:i+1], broker.One)
	}
	return true, nil
}

func (r *reader) settle(list []broker.Delivery, mode broker.AckMode) error {
	if len(list) == 0 {
		return nil
	}
	for _, d := range list {
		r.holders.release(string(d.Body), r.sub)
	}
	if err := r.sub.Ack(list[len(list)-1].Tag, mode); err != nil {
		return err
	}
	for _, d := range list {
		if err := r.holders.ack(string(d.Body)); err != nil {
			return err
		}
	}
	r.forget(list)
	return nil
}

func (r *reader) requeue(list []broker.Delivery) error {
	var tags []uint64
	for _, d := range list {
		r.holders.release(string(d.Body), r.sub)
		tags = append(tags, d.Tag)
	}
	if err := r.sub.Requeue(tags...); err != nil {
		return err
	}
	r.forget(list)
	return nil
}

// forget removes the listed deliveries from unsettled.
func (r *reader) forget(list []broker.Delivery) {
	kept := make([]broker.Delivery, 0, len(r.unsettled))
	for _, d := range r.unsettled {
		if d.Tag < list[0].Tag || d.Tag > list[len(list)-1].Tag {
			kept = append(kept, d)
		}
	}
	r.unsettled = kept
}

// TestNoMessageIsLostOrHeldTwice lets producers and consumers make any call that the contract allows, while
// subscriptions are interrupted. A low delivery limit also moves messages from queue to queue.
func TestNoMessageIsLostOrHeldTwice(t *testing.T) {
	t.Parallel()
	const producers, consumers, each, interrupts = 4, 8, 1500, 40
	b := open(t)
	queues := []string{"one", "two", "dead"}
	for queue, target := range map[string]string{"one": "dead", "two": "dead", "dead": "one"} {
		err := b.Declare(t.Context(), []broker.Object{{Kind: broker.Queue, Name: queue, Args: map[string]any{
			"x-delivery-limit": int64(3), "x-dead-letter-routing-key": target,
		}}})
		must(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
	defer cancel()
	h := newHolders(producers * each)
	var work sync.WaitGroup
	for p := range producers {
		work.Go(func() {
			for i := 0; i < each; {
				var list []broker.Message
				for range min(1+rand.IntN(30), each-i) {
					list = append(list, broker.Message{Queue: queues[rand.IntN(len(queues))], Body: fmt.Appendf(nil, "%d.%d", p, i)})
					i++
				}
				if _, err := b.Publish(ctx, list); err != nil {
					t.Error(err)
				}
			}
		})
	}
	reading, stop := context.WithCancel(ctx)
	for range consumers {
		work.Go(func() {
			if err := (&reader{broker: b, holders: h}).run(reading, queues); err != nil {
				t.Error(err)
				cancel()
			}
		})
	}
	work.Go(func() { h.interrupt(reading, b, producers*each/interrupts) })
	select {
	case <-h.all:
	case <-ctx.Done():
		t.Errorf("%d of %d messages were acknowledged", h.count(), h.want)
	}
	stop()
	work.Wait()
	depths, err := b.Depths(t.Context(), queues)
	must(t, err)
	for queue, depth := range depths {
		if depth != (broker.Depth{}) {
			t.Errorf("%s: got depth %+v, want it empty", queue, depth)
		}
	}
}

// interrupt ends all subscriptions after each group of acknowledgements of the given size.
func (h *holders) interrupt(ctx context.Context, b *inproc.Broker, every int) {
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-h.acks:
		}
		if n%every == 0 {
			b.Interrupt()
		}
	}
}

// TestCallsTwiceEarlyLateAndConcurrently calls all methods concurrently while queues are deleted and declared and the
// broker is closed. No call may hang or panic.
func TestCallsTwiceEarlyLateAndConcurrently(t *testing.T) {
	t.Parallel()
	for range 20 {
		b := open(t)
		declare(t, b, "q")
		object := []broker.Object{{Kind: broker.Queue, Name: "q"}}
		shared := subscribe(t, b, "q", 3)
		var work sync.WaitGroup
		for range 6 {
			work.Go(func() {
				for range 50 {
					mine, err := b.Subscribe(t.Context(), "q", 1+rand.IntN(3))
					if err == nil {
						shared := []broker.Subscription{shared, mine}[rand.IntN(2)]
						_ = mine.Pause()
						_ = shared.Resume(1)
						_ = shared.Ack(uint64(rand.IntN(4)), broker.UpTo)
						_ = shared.Requeue(1, 2)
						_ = mine.Close()
					}
					_, _ = b.Publish(t.Context(), []broker.Message{{Queue: "q"}, {Queue: "none"}})
					_, _ = b.Depths(t.Context(), []string{"q"})
					switch rand.IntN(20) {
					case 0:
						b.Interrupt()
					case 1:
						_ = b.Delete(t.Context(), object)
					case 2:
						_ = b.Declare(t.Context(), object)
					}
				}
				_ = b.Close()
			})
		}
		work.Go(func() {
			for range shared.Deliveries() {
			}
		})
		work.Wait()
	}
}
