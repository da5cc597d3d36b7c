package brokertest

import (
	"slices"

	"github.com/holdfastq/holdfast/broker"
)

var flow = []test{
	{"flow/prefetch", func(s *suite) {
		queue := s.queue()
		s.send(queue, numbered(7)...)
		sub := s.subscribe(queue, 3)
		list := s.expect(sub, "0", "1", "2")
		s.silent(sub)
		s.must(sub.Ack(list[1].Tag, broker.UpTo))
		s.expect(sub, "3", "4")
		s.silent(sub)
		s.must(sub.Requeue(list[2].Tag))
		s.expect(sub, "2")
		s.silent(sub)
	}},
	{"flow/Pause returns deliveries that were not received", func(s *suite) {
		queue := s.queue()
		s.send(queue, numbered(10)...)
		sub := s.subscribe(queue, 100)
		list := s.expect(sub, "0", "1", "2")
		s.must(sub.Pause())
		s.silent(sub)
		s.must(sub.Ack(list[1].Tag, broker.UpTo))
		other := s.subscribe(queue, 100)
		s.expect(other, "3", "4", "5", "6", "7", "8", "9")
		s.must(sub.Requeue(list[2].Tag))
		s.expect(other, "2")
	}},
	{"flow/Resume loses and repeats nothing", func(s *suite) {
		queue := s.queue()
		s.send(queue, numbered(100)...)
		sub := s.subscribe(queue, 20)
		var got []broker.Delivery
		for i := range 10 {
			got = append(got, s.receiveAll(sub, 10)...)
			s.must(sub.Pause())
			if i%2 == 1 {
				s.must(sub.Ack(got[len(got)-1].Tag, broker.UpTo))
			}
			s.must(sub.Resume(30 + i))
		}
		s.same(texts(got), numbered(100))
		for i, d := range got {
			if d.Tag != uint64(i)+1 {
				s.Fatalf("delivery %d has tag %d", i, d.Tag)
			}
		}
		s.silent(sub)
		s.must(sub.Close())
		s.silent(s.subscribe(queue, 10))
	}},
	{"flow/Resume sets a new prefetch", func(s *suite) {
		queue := s.queue()
		s.send(queue, numbered(9)...)
		sub := s.subscribe(queue, 1)
		first := s.expect(sub, "0")
		s.must(sub.Pause())
		s.must(sub.Ack(first[0].Tag, broker.One))
		s.must(sub.Resume(4))
		s.expect(sub, "1", "2", "3", "4")
		s.silent(sub)
	}},
	{"flow/a second Pause or Resume does nothing", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a", "b")
		sub := s.subscribe(queue, 1)
		s.must(sub.Resume(50))
		s.expect(sub, "a")
		s.silent(sub)
		s.must(sub.Pause())
		s.must(sub.Pause())
		s.must(sub.Resume(1))
		s.must(sub.Resume(1))
		s.expect(sub, "b")
	}},
	{"flow/a paused subscription receives nothing", func(s *suite) {
		queue := s.queue()
		sub := s.subscribe(queue, 10)
		s.must(sub.Pause())
		s.send(queue, "a")
		s.silent(sub)
		s.must(sub.Resume(10))
		s.expect(sub, "a")
	}},
	{"flow/Close ends the subscription", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a", "b")
		sub := s.subscribe(queue, 1)
		tag := s.expect(sub, "a")[0].Tag
		s.must(sub.Close())
		s.must(sub.Close())
		s.ended(sub)
		s.mustBe(sub.Ack(tag, broker.One), broker.ErrSubscriptionEnded)
		s.mustBe(sub.Ack(tag, broker.UpTo), broker.ErrSubscriptionEnded)
		s.mustBe(sub.Requeue(tag), broker.ErrSubscriptionEnded)
		s.mustBe(sub.Pause(), broker.ErrSubscriptionEnded)
		s.mustBe(sub.Resume(1), broker.ErrSubscriptionEnded)
		s.expect(s.subscribe(queue, 2), "a", "b")
	}},
	{"flow/Close of a paused subscription returns unsettled messages", func(s *suite) {
		queue := s.queue()
		s.send(queue, "a", "b")
		sub := s.subscribe(queue, 10)
		s.expect(sub, "a")
		s.must(sub.Pause())
		s.must(sub.Close())
		// b was returned first, and returned messages are in the order of their returns.
		got := texts(s.receiveAll(s.subscribe(queue, 2), 2))
		slices.Sort(got)
		s.same(got, []string{"a", "b"})
	}},
	{"flow/Close without a reader", func(s *suite) {
		queue := s.queue()
		s.send(queue, numbered(100)...)
		sub := s.subscribe(queue, 50)
		s.expect(sub, "0") // the others wait in the channel
		s.must(sub.Close())
		s.expect(s.subscribe(queue, 100), numbered(100)...)
	}},
}
