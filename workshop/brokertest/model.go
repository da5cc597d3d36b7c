package brokertest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// model compares a queue with a simple model of it, with random sequences of operations.
var model = []test{
	{"model/one consumer", func(s *suite) {
		rapid.Check(s.T, func(t *rapid.T) {
			o := object()
			m := &oneConsumer{T: t, suite: s, queue: o.Name, live: map[string]bool{}}
			err := s.Declare(s.ctx(), []broker.Object{o})
			m.check(err)
			defer func() { // also if rapid abandons a sequence
				if m.sub != nil {
					m.check(m.sub.Close())
				}
				m.check(s.Delete(s.ctx(), []broker.Object{o}))
			}()
			m.open()
			t.Repeat(map[string]func(*rapid.T){
				"publish": m.publish, "receive": m.receiveOne, "receive more": m.receiveOne, "ack one": m.ackOne,
				"ack up to": m.ackUpTo, "requeue": m.requeue, "pause": m.pause, "resume": m.resume, "reopen": m.reopen,
			})
			m.finish()
		})
	}},
}

type oneConsumer struct {
	*rapid.T
	suite  *suite
	queue  string
	serial int

	live      map[string]bool   // bodies that are stored and not acknowledged
	unsettled []broker.Delivery // received and not settled
	sub       broker.Subscription
	last      uint64
	paused    bool
}

const (
	// maxUnsettled is lower than every prefetch, so that receiving never has to wait for an acknowledgement.
	maxUnsettled = 20
	// maxLive is small because RabbitMQ delays settlements while 32 of them are on their way to a quorum queue. If the
	// channel is closed, the delayed settlements are lost. The contract allows that, as after a lost connection, but
	// the model would not notice errors then.
	maxLive = 12
)

func (m *oneConsumer) check(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *oneConsumer) open() {
	sub, err := m.suite.Subscribe(m.suite.ctx(), m.queue, rapid.IntRange(maxUnsettled, 100).Draw(m.T, "prefetch"))
	m.check(err)
	m.sub, m.unsettled, m.last, m.paused = sub, nil, 0, false
}

func (m *oneConsumer) publish(t *rapid.T) {
	bodies := make([]string, rapid.IntRange(1, 5).Draw(t, "n"))
	if len(m.live)+len(bodies) > maxLive {
		t.Skip("too many messages")
	}
	for i := range bodies {
		m.serial++
		bodies[i] = fmt.Sprint(m.serial)
		m.live[bodies[i]] = true
	}
	_, err := m.suite.Publish(m.suite.ctx(), messages(m.queue, bodies...))
	m.check(err)
}

func (m *oneConsumer) receiveOne(t *rapid.T) {
	if m.paused || len(m.unsettled) >= min(maxUnsettled, len(m.live)) {
		t.Skip("nothing to receive")
	}
	m.take()
}

func (m *oneConsumer) take() {
	select {
	case d, ok := <-m.sub.Deliveries():
		body := string(d.Body)
		switch {
		case !ok:
			m.Fatal("the subscription has ended")
		case !m.live[body]:
			m.Fatalf("received %q, which was acknowledged or never sent", body)
		case slices.ContainsFunc(m.unsettled, func(h broker.Delivery) bool { return string(h.Body) == body }):
			m.Fatalf("received %q, which is still unsettled", body)
		case d.Tag != m.last+1:
			m.Fatalf("tag %d follows tag %d", d.Tag, m.last)
		}
		m.last = d.Tag
		m.unsettled = append(m.unsettled, d)
	case <-time.After(slow.Patience()):
		m.Fatalf("nothing received; %d stored, %d unsettled", len(m.live), len(m.unsettled))
	}
}

// choose draws one unsettled delivery.
func (m *oneConsumer) choose(t *rapid.T) broker.Delivery {
	if len(m.unsettled) == 0 {
		t.Skip("no unsettled delivery")
	}
	return rapid.SampledFrom(m.unsettled).Draw(t, "delivery")
}

// settled removes deliveries from the model, and their messages too if they were acknowledged.
func (m *oneConsumer) settled(which func(broker.Delivery) bool, acknowledged bool) {
	m.unsettled = slices.DeleteFunc(m.unsettled, func(h broker.Delivery) bool {
		if which(h) && acknowledged {
			delete(m.live, string(h.Body))
		}
		return which(h)
	})
}

func (m *oneConsumer) ackOne(t *rapid.T) {
	d := m.choose(t)
	m.check(m.sub.Ack(d.Tag, broker.One))
	m.settled(func(h broker.Delivery) bool { return h.Tag == d.Tag }, true)
}

func (m *oneConsumer) ackUpTo(t *rapid.T) {
	d := m.choose(t)
	m.check(m.sub.Ack(d.Tag, broker.UpTo))
	m.settled(func(h broker.Delivery) bool { return h.Tag <= d.Tag }, true)
}

func (m *oneConsumer) requeue(t *rapid.T) {
	d, e := m.choose(t), m.choose(t)
	m.check(m.sub.Requeue(d.Tag, e.Tag))
	m.settled(func(h broker.Delivery) bool { return h.Tag == d.Tag || h.Tag == e.Tag }, false)
}

func (m *oneConsumer) pause(*rapid.T) {
	m.check(m.sub.Pause())
	m.paused = true
}

func (m *oneConsumer) resume(t *rapid.T) {
	m.check(m.sub.Resume(rapid.IntRange(2*maxUnsettled, 100).Draw(t, "prefetch")))
	m.paused = false
}

func (m *oneConsumer) reopen(*rapid.T) {
	m.check(m.sub.Close())
	m.open()
}

// finish receives and acknowledges all messages that must be left.
func (m *oneConsumer) finish() {
	m.check(m.sub.Close())
	m.open()
	for len(m.live) > 0 {
		m.take()
		m.check(m.sub.Ack(m.last, broker.UpTo))
		m.settled(func(broker.Delivery) bool { return true }, true)
	}
	m.check(m.sub.Close())
}
