package brokertest

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

var publishing = []test{
	{"publish/no messages", func(s *suite) {
		outcomes, err := s.Publish(s.ctx(), nil)
		s.must(err)
		if len(outcomes) != 0 {
			s.Fatalf("got %d outcomes", len(outcomes))
		}
	}},
	{"publish/stored messages are delivered with their bodies", func(s *suite) {
		queue := s.queue()
		_, err := s.Publish(s.ctx(), []broker.Message{
			{Queue: queue, Body: []byte("plain"), Headers: map[string]string{"worker": "a"}},
			{Queue: queue, Body: nil},
			{Queue: queue, Body: []byte{0, 255, '\n'}},
		})
		s.must(err)
		sub := s.subscribe(queue, 10)
		for i, d := range s.expect(sub, "plain", "", "\x00\xff\n") {
			if d.Redelivered {
				s.Errorf("delivery %d is marked as redelivered", i)
			}
		}
	}},
	{"publish/no such queue", func(s *suite) {
		outcomes, err := s.Publish(s.ctx(), messages(name(), "a", "b"))
		s.mustBe(err, broker.ErrNoQueue)
		for i, outcome := range outcomes {
			if outcome != broker.Returned {
				s.Errorf("outcome %d is %d, want Returned", i, outcome)
			}
		}
	}},
	{"publish/some to no queue", func(s *suite) {
		queue, nowhere := s.queue(), name()
		var list []broker.Message
		var stored []string
		for i := range 100 {
			m := broker.Message{Queue: queue, Body: fmt.Append(nil, i)}
			if i%3 == 1 {
				m.Queue = nowhere
			} else {
				stored = append(stored, string(m.Body))
			}
			list = append(list, m)
		}
		outcomes, err := s.Publish(s.ctx(), list)
		s.mustBe(err, broker.ErrNoQueue)
		for i, outcome := range outcomes {
			want := broker.Stored
			if list[i].Queue == nowhere {
				want = broker.Returned
			}
			if outcome != want {
				s.Errorf("outcome %d is %d, want %d", i, outcome, want)
			}
		}
		s.expect(s.subscribe(queue, 1000), stored...)
		s.send(queue, "afterwards")
	}},
	{"publish/order within one call", func(s *suite) {
		queue, bodies := s.queue(), numbered(1234)
		s.send(queue, bodies...)
		s.expect(s.subscribe(queue, 2000), bodies...)
	}},
	{"publish/order from call to call", func(s *suite) {
		queue, bodies := s.queue(), numbered(20)
		for _, body := range bodies {
			s.send(queue, body)
		}
		s.expect(s.subscribe(queue, 100), bodies...)
	}},
	{"publish/from many goroutines", func(s *suite) {
		queue := s.queue()
		const callers, calls = 16, 10
		var work sync.WaitGroup
		for caller := range callers {
			work.Go(func() {
				for call := range calls {
					outcomes, err := s.Publish(s.ctx(), messages(queue, fmt.Sprintf("%d.%d.a", caller, call), fmt.Sprintf("%d.%d.b", caller, call)))
					if err != nil || len(outcomes) != 2 || outcomes[0] != broker.Stored || outcomes[1] != broker.Stored {
						s.Errorf("got %v, %v", outcomes, err)
					}
				}
			})
		}
		work.Wait()
		seen := map[string]bool{}
		for _, d := range s.receiveAll(s.subscribe(queue, 1000), 2*callers*calls) {
			seen[string(d.Body)] = true
		}
		if len(seen) != 2*callers*calls {
			s.Fatalf("%d different messages, want %d", len(seen), 2*callers*calls)
		}
	}},
	{"publish/a context that is done", func(s *suite) {
		queue := s.queue()
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		outcomes, err := s.Publish(ctx, messages(queue, "a", "b"))
		s.mustBe(err, holdfast.ErrUnavailable)
		if len(outcomes) != 2 {
			s.Fatalf("got %d outcomes, want 2", len(outcomes))
		}
		s.send(queue, "afterwards")
	}},
}
