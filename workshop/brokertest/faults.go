package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/broker"
)

var faults = []test{
	{"fault/a lost connection ends the subscription", func(s *suite) {
		s.needDisconnect()
		queue := s.queue()
		s.send(queue, "a", "b", "c")
		sub, paused := s.subscribe(queue, 2), s.subscribe(s.queue(), 1)
		list := s.expect(sub, "a", "b")
		s.must(paused.Pause())
		s.features.Disconnect(s.Broker)
		s.ended(sub)
		s.ended(paused)
		s.mustBe(sub.Ack(list[1].Tag, broker.UpTo), broker.ErrSubscriptionEnded)
		s.mustBe(sub.Requeue(list[0].Tag), broker.ErrSubscriptionEnded)
		s.mustBe(sub.Pause(), broker.ErrSubscriptionEnded)
		s.mustBe(paused.Resume(1), broker.ErrSubscriptionEnded)
		s.must(sub.Close())
		s.expect(s.subscribe(queue, 10), "a", "b", "c")
	}},
	{"fault/publishing works after a disconnect", func(s *suite) {
		s.needDisconnect()
		queue := s.queue()
		for i := range 5 {
			s.features.Disconnect(s.Broker)
			s.insist(s.ctx(), queue, fmt.Sprint(i))
		}
		s.must(s.subscribe(queue, 1).Close())
	}},
	{"fault/admin works after a disconnect", func(s *suite) {
		s.needDisconnect()
		o := object()
		s.declare(o)
		s.features.Disconnect(s.Broker)
		for {
			missing, err := s.Missing(s.ctx(), []broker.Object{o})
			if err == nil {
				s.same(missing, nil)
				return
			}
			s.pause(s.ctx())
		}
	}},
	{"fault/every stored message is delivered", everythingStored},
}

func (s *suite) needDisconnect() {
	if s.features.Disconnect == nil {
		s.Skip("this broker has no connections")
	}
}

// insist publishes a message until it is stored.
func (s *suite) insist(ctx context.Context, queue, body string) {
	for {
		outcomes, err := s.Publish(ctx, messages(queue, body))
		if (err == nil) != (outcomes[0] == broker.Stored) {
			s.Errorf("outcome %d with error %v", outcomes[0], err)
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			s.Errorf("the message was never stored: %v", err)
			return
		}
		s.pause(ctx)
	}
}

// pause waits before another try.
func (s *suite) pause(ctx context.Context) {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
	}
}

// everythingStored publishes and receives from many goroutines while connections break at random times. Every stored
// message must be delivered. After all messages are acknowledged, none may be delivered again.
func everythingStored(s *suite) {
	s.needDisconnect()
	const publishers, each, disconnects = 6, 60, 8 // a client may double its pause after each of them
	queue, ctx := s.queue(), s.ctx()
	seen := newRecord(publishers * each)

	var producing, consuming sync.WaitGroup
	progress := make(chan struct{}, publishers*each)
	for p := range publishers {
		producing.Go(func() {
			for i := range each {
				s.insist(ctx, queue, fmt.Sprintf("%d.%d", p, i))
				progress <- struct{}{}
			}
		})
	}
	for range 3 {
		consuming.Go(func() { s.consumeUntil(ctx, queue, seen) })
	}
	for range disconnects {
		for range 1 + rand.IntN(publishers*each/disconnects) {
			<-progress
		}
		s.features.Disconnect(s.Broker)
	}
	producing.Wait()
	select {
	case <-seen.complete:
	case <-ctx.Done():
		s.Errorf("%d of %d stored messages were delivered", seen.count(), publishers*each)
	}
	seen.stop()
	consuming.Wait()

	remaining := s.subscribe(queue, 100)
	for empty := false; !empty; {
		select {
		case d := <-remaining.Deliveries():
			s.must(remaining.Ack(d.Tag, broker.UpTo))
		case <-time.After(quiet):
			empty = true
		}
	}
	s.must(remaining.Close())
	s.silent(s.subscribe(queue, 100))
}

// consumeUntil receives through any number of subscriptions until seen is complete, and settles in different ways.
func (s *suite) consumeUntil(ctx context.Context, queue string, seen *record) {
	for ctx.Err() == nil {
		sub, err := s.Subscribe(ctx, queue, 1+rand.IntN(20))
		if err != nil {
			s.pause(ctx)
			continue
		}
		if s.consumeOne(sub, seen) {
			s.must(sub.Close())
			return
		}
	}
}

// consumeOne receives from one subscription until it ends. It returns true if seen is complete.
func (s *suite) consumeOne(sub broker.Subscription, seen *record) (finished bool) {
	var last uint64
	for {
		select {
		case <-seen.stopped:
			return true
		case d, ok := <-sub.Deliveries():
			if !ok {
				return false
			}
			if d.Tag != last+1 {
				s.Errorf("tag %d follows tag %d", d.Tag, last)
			}
			last = d.Tag
			var err error
			switch rand.IntN(8) {
			case 0:
				err = sub.Requeue(d.Tag)
			case 1:
				seen.add(string(d.Body))
				if err = sub.Pause(); err == nil {
					err = errors.Join(sub.Ack(d.Tag, broker.One), sub.Resume(1+rand.IntN(20)))
				}
			default:
				seen.add(string(d.Body))
				err = sub.Ack(d.Tag, broker.One)
			}
			if err != nil && !errors.Is(err, broker.ErrSubscriptionEnded) {
				s.Errorf("settle: %v", err)
			}
		}
	}
}

// record collects the bodies of messages. It is safe for concurrent use.
type record struct {
	complete chan struct{}
	stopped  chan struct{}
	mu       sync.Mutex
	bodies   map[string]bool
	want     int
}

func newRecord(want int) *record {
	return &record{complete: make(chan struct{}), stopped: make(chan struct{}), bodies: map[string]bool{}, want: want}
}

func (r *record) add(body string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.bodies[body] {
		r.bodies[body] = true
		if len(r.bodies) == r.want {
			close(r.complete)
		}
	}
}

func (r *record) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

func (r *record) stop() { close(r.stopped) }
