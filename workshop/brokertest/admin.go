package brokertest

import (
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

var admin = []test{
	{"admin/Declare keeps existing messages", func(s *suite) {
		o := object()
		s.declare(o)
		s.send(o.Name, "a")
		s.declare(o)
		s.expect(s.subscribe(o.Name, 1), "a")
	}},
	{"admin/Declare names the object that conflicts", func(s *suite) {
		if !s.features.Conflicts {
			s.Skip("this broker does not compare arguments")
		}
		fits, other := object(), object()
		s.declare(other)
		changed := broker.Object{Kind: broker.Queue, Name: other.Name, Args: map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(7)}}
		s.Cleanup(func() { _ = s.Delete(s.ctx(), []broker.Object{fits}) })
		err := s.Declare(s.ctx(), []broker.Object{fits, changed})
		s.mustBe(err, holdfast.ErrConflict)
		if !strings.Contains(err.Error(), other.Name) {
			s.Errorf("the error does not name the queue: %v", err)
		}
		missing, err := s.Missing(s.ctx(), []broker.Object{fits})
		s.must(err)
		s.same(missing, nil)
		s.send(other.Name, "still there")
	}},
	{"admin/Declare refuses arguments of other types", func(s *suite) {
		o := object()
		o.Args["x-delivery-limit"] = 1000
		err := s.Declare(s.ctx(), []broker.Object{o})
		s.mustBe(err, holdfast.ErrInvalid)
	}},
	{"admin/Missing", func(s *suite) {
		queue, exchange := object(), broker.Object{Kind: broker.Exchange, Name: name()}
		all := []broker.Object{queue, exchange}
		missing, err := s.Missing(s.ctx(), all)
		s.must(err)
		s.same(missing, []string{queue.Name, exchange.Name})
		s.declare(exchange)
		missing, err = s.Missing(s.ctx(), all)
		s.must(err)
		s.same(missing, []string{queue.Name})
		s.declare(queue)
		missing, err = s.Missing(s.ctx(), all)
		s.must(err)
		s.same(missing, nil)
	}},
	{"admin/Delete", func(s *suite) {
		all := []broker.Object{object(), {Kind: broker.Exchange, Name: name()}}
		s.must(s.Delete(s.ctx(), all))
		s.declare(all...)
		s.send(all[0].Name, "a")
		s.must(s.Delete(s.ctx(), all))
		missing, err := s.Missing(s.ctx(), all)
		s.must(err)
		s.same(missing, []string{all[0].Name, all[1].Name})
	}},
	{"admin/deletion of a queue ends its subscriptions", func(s *suite) {
		o := object()
		s.declare(o)
		s.send(o.Name, "a", "b")
		reading, idle, paused := s.subscribe(o.Name, 1), s.subscribe(o.Name, 1), s.subscribe(o.Name, 1)
		s.must(paused.Pause())
		tag := s.receive(reading).Tag
		s.must(s.Delete(s.ctx(), []broker.Object{o}))
		s.ended(reading)
		s.ended(idle)
		s.mustBe(reading.Ack(tag, broker.One), broker.ErrSubscriptionEnded)
		s.mustBe(paused.Resume(1), broker.ErrSubscriptionEnded)
		s.ended(paused)
		_, err := s.Subscribe(s.ctx(), o.Name, 1)
		s.mustBe(err, broker.ErrNoQueue)
	}},
	{"admin/Depths returns only queues that exist", func(s *suite) {
		queue, nowhere := s.queue(), name()
		depths, err := s.Depths(s.ctx(), []string{nowhere, queue})
		s.must(err)
		if _, ok := depths[queue]; !ok || len(depths) != 1 {
			s.Fatalf("got %v", depths)
		}
	}},
	{"admin/Health", func(s *suite) {
		s.send(s.queue(), "a")
		health := s.Health()
		if !health.Connected || health.Err != nil || health.Blocked != "" || health.Server == "" {
			s.Fatalf("got %+v", health)
		}
	}},
	{"close/ends subscriptions and calls", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a", "b")
		sub := s.subscribe(queue, 1)
		tag := s.receive(sub).Tag
		s.must(s.Delete(s.ctx(), []broker.Object{{Kind: broker.Queue, Name: queue}}))
		other := s.queue()
		idle := s.subscribe(other, 1)
		s.must(s.Delete(s.ctx(), []broker.Object{{Kind: broker.Queue, Name: other}}))
		s.must(s.Close())
		s.must(s.Close())
		s.ended(sub)
		s.ended(idle)
		s.mustBe(sub.Ack(tag, broker.One), broker.ErrSubscriptionEnded)
		s.must(sub.Close())
		_, err := s.Publish(s.ctx(), messages(queue, "c"))
		s.mustBe(err, holdfast.ErrUnavailable)
		_, err = s.Subscribe(s.ctx(), queue, 1)
		s.mustBe(err, holdfast.ErrUnavailable)
		_, err = s.Missing(s.ctx(), []broker.Object{{Name: queue}})
		s.mustBe(err, holdfast.ErrUnavailable)
		if s.Health().Connected {
			s.Error("Health reports a connection after Close")
		}
	}},
}
