package brokertest

import (
	"context"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

var receiving = []test{
	{"receive/no such queue", func(s *suite) {
		_, err := s.Subscribe(s.ctx(), name(), 1)
		s.mustBe(err, broker.ErrNoQueue)
	}},
	{"receive/invalid prefetch", func(s *suite) {
		queue := s.queue()
		for _, prefetch := range []int{-1, 0, 65536} {
			_, err := s.Subscribe(s.ctx(), queue, prefetch)
			s.mustBe(err, holdfast.ErrInvalid)
		}
	}},
	{"receive/the context affects only the call", func(s *suite) {
		queue := s.queue()
		ctx, cancel := context.WithCancel(s.ctx())
		sub, err := s.Subscribe(ctx, queue, 10)
		s.must(err)
		defer sub.Close()
		cancel()
		s.send(queue, "a")
		s.must(sub.Ack(s.expect(sub, "a")[0].Tag, broker.One))
		s.must(sub.Pause())
		s.must(sub.Resume(10))
	}},
	{"receive/tags count from 1", func(s *suite) {
		queue := s.queue()
		s.send(queue, numbered(50)...)
		for i, d := range s.receiveAll(s.subscribe(queue, 100), 50) {
			if d.Tag != uint64(i)+1 {
				s.Fatalf("delivery %d has tag %d", i, d.Tag)
			}
		}
	}},
	{"receive/unsettled messages are delivered again after Close", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a", "b", "c")
		first := s.subscribe(queue, 2) // so that the broker does not send c
		s.expect(first, "a", "b")
		s.must(first.Close())
		// RabbitMQ may deliver c before it notices the end of the first subscription.
		list := s.receiveAll(s.subscribe(queue, 10), 3)
		for _, d := range list {
			if d.Redelivered != (string(d.Body) != "c") {
				s.Errorf("delivery %s: redelivered is %t", d.Body, d.Redelivered)
			}
		}
		got := texts(list)
		slices.Sort(got)
		s.same(got, []string{"a", "b", "c"})
	}},
	{"receive/Ack One settles one", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a", "b", "c", "d")
		sub := s.subscribe(queue, 10)
		list := s.expect(sub, "a", "b", "c", "d")
		s.must(sub.Ack(list[2].Tag, broker.One))
		s.must(sub.Ack(list[0].Tag, broker.One))
		s.must(sub.Close())
		s.expect(s.subscribe(queue, 10), "b", "d")
	}},
	{"receive/Ack UpTo settles all earlier ones", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a", "b", "c", "d")
		sub := s.subscribe(queue, 10)
		list := s.expect(sub, "a", "b", "c", "d")
		s.must(sub.Ack(list[1].Tag, broker.One))
		s.must(sub.Ack(list[2].Tag, broker.UpTo))
		s.must(sub.Close())
		s.expect(s.subscribe(queue, 10), "d")
	}},
	{"receive/settling twice changes nothing", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a", "b", "c")
		sub := s.subscribe(queue, 10)
		list := s.expect(sub, "a", "b", "c")
		for range 2 {
			s.must(sub.Ack(list[1].Tag, broker.One))
			s.must(sub.Requeue(list[1].Tag))
			s.must(sub.Ack(list[1].Tag, broker.UpTo))
			s.must(sub.Ack(list[0].Tag, broker.UpTo))
		}
		s.must(sub.Close())
		s.expect(s.subscribe(queue, 10), "c")
	}},
	{"receive/Ack UpTo a requeued delivery settles earlier ones", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a", "b", "c")
		sub := s.subscribe(queue, 3)
		list := s.expect(sub, "a", "b", "c")
		s.must(sub.Requeue(list[1].Tag))
		s.must(sub.Ack(list[1].Tag, broker.UpTo))
		s.must(sub.Close())
		got := texts(s.receiveAll(s.subscribe(queue, 10), 2))
		slices.Sort(got)
		s.same(got, []string{"b", "c"})
	}},
	{"receive/a tag that was never received", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a")
		sub := s.subscribe(queue, 10)
		tag := s.expect(sub, "a")[0].Tag
		s.mustBe(sub.Ack(tag+1, broker.UpTo), holdfast.ErrInvalid)
		s.mustBe(sub.Ack(0, broker.UpTo), holdfast.ErrInvalid)
		s.mustBe(sub.Requeue(tag+1), holdfast.ErrInvalid)
		s.must(sub.Ack(tag, broker.One))
		s.send(queue, "b")
		s.expect(sub, "b")
	}},
	{"receive/requeued messages come first, in order", func(s *suite) {
		queue := s.queue()
		s.send(queue, numbered(6)...)
		sub := s.subscribe(queue, 3)
		list := s.expect(sub, "0", "1", "2")
		s.must(sub.Requeue(list[1].Tag, list[0].Tag))
		if !s.expect(sub, "0")[0].Redelivered {
			s.Error("a requeued message is not marked as redelivered")
		}
		s.expect(sub, "1")
		s.must(sub.Ack(list[2].Tag, broker.One))
		s.expect(sub, "3")
	}},
	{"receive/requeued messages go to other consumers too", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a", "b")
		holder := s.subscribe(queue, 2)
		list := s.expect(holder, "a", "b")
		other := s.subscribe(queue, 2)
		s.silent(other)
		s.must(holder.Pause())
		s.must(holder.Requeue(list[0].Tag, list[1].Tag))
		s.expect(other, "a", "b")
	}},
	{"receive/two consumers share a queue", func(s *suite) {
		queue := s.queue()
		one, two := s.subscribe(queue, 5), s.subscribe(queue, 5)
		s.send(queue, numbered(10)...)
		got := append(texts(s.receiveAll(one, 5)), texts(s.receiveAll(two, 5))...)
		slices.Sort(got)
		s.same(got, numbered(10))
	}},
}
