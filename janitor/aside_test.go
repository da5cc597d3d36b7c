package janitor

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/inproc"
	"github.com/holdfastq/holdfast/store"
)

// slow is a broker that needs its time for each call that puts something into the quarantine.
type slow struct {
	*spy
	queue string
	takes time.Duration
	fails int // so many calls, at first

	mu    sync.Mutex
	calls []span
}

// span is from when to when one call lasted, and for how many messages.
type span struct {
	begin, end time.Time
	messages   int
}

func (s *slow) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	if messages[0].Queue != s.queue {
		return s.Broker.Publish(ctx, messages)
	}
	begin := time.Now()
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, span{begin, time.Now(), len(messages)})
	if len(s.calls) <= s.fails {
		return make([]broker.Outcome, len(messages)), errFault
	}
	return s.Broker.Publish(ctx, messages)
}

// settled is a store where every page and every task is finished.
type settled struct {
	Store
	mu    sync.Mutex
	asked int // tickets
}

func (s *settled) RunStates(_ context.Context, runs []holdfast.RunID) (map[holdfast.RunID]store.RunStatus, error) {
	states := make(map[holdfast.RunID]store.RunStatus)
	for _, run := range runs {
		states[run] = store.RunStatus{State: store.RunLive, Settled: 1}
	}
	return states, nil
}

func (s *settled) Positions(_ context.Context, tickets []message.Ticket) ([]store.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked += len(tickets)
	return slices.Repeat([]store.Position{{Found: true, State: holdfast.Done, Attempt: 1}}, len(tickets)), nil
}

// flooded is a janitor's three queues with n malformed messages in each, before one that is well formed in the holding
// queues and among them in the rescue queue; its patrols and its rescue run.
func flooded(t *testing.T, n int, takes time.Duration, fails int) (*slow, *settled) {
	t.Helper()
	topology := broker.NewTopology("test", 2, "x")
	b := inproc.Open(inproc.Options{})
	if _, err := b.Declare(t.Context(), topology.Queues(nil)); err != nil {
		t.Fatal(err)
	}
	publish := func(queue string, bodies ...[]byte) {
		messages := make([]broker.Message, len(bodies))
		for i, body := range bodies {
			messages[i] = broker.Message{Queue: queue, Body: body}
		}
		if _, err := b.Publish(t.Context(), messages); err != nil {
			t.Fatal(err)
		}
	}
	garbage := slices.Repeat([][]byte{[]byte("garbage")}, n)
	ticket := message.Ticket{Task: 1, Attempt: 1}
	for _, queue := range topology.Holds() {
		publish(queue, append(garbage, manifest(1, 1, ticket).Encode())...)
	}
	publish(topology.Rescue(), slices.Insert(slices.Clone(garbage), min(n, rescuePrefetch/2), tickets(ticket).Encode())...)

	s := &slow{spy: &spy{Broker: b}, queue: topology.Quarantine(), takes: takes, fails: fails}
	known := new(settled)
	j, err := New(Options{Store: known, Broker: s, Topology: topology})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var duties sync.WaitGroup
	for _, queue := range topology.Holds() {
		duties.Go(func() { j.receive(ctx, queue, handSize, j.patrol) })
	}
	duties.Go(func() { j.receive(ctx, topology.Rescue(), rescuePrefetch, j.rescue) })
	t.Cleanup(func() {
		cancel()
		duties.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, known
}

func isGarbage(e event) bool { return e.body == "garbage" }

// All queues together put one batch of malformed messages aside at each tick, however long the broker needs for one. After a
// failure they try again with what they have in hand.
func TestMalformedMessagesArePutAsideABatchAtATime(t *testing.T) {
	t.Parallel()
	const each, queues = 1000, 3
	for name, test := range map[string]struct {
		takes time.Duration
		fails int
	}{
		"fast":         {0, 0},
		"slow":         {2 * time.Second, 0},
		"at first not": {20 * time.Millisecond, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, _ := flooded(t, each, test.takes, test.fails)
				began := time.Now()
				for acked := 0; acked < queues*each; acked = count(s.saw("acked"), isGarbage) {
					if time.Since(began) > 5*time.Minute {
						t.Fatalf("%d of %d are acked after %s", acked, queues*each, time.Since(began))
					}
					time.Sleep(100 * time.Millisecond)
				}
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				slices.SortFunc(s.calls, func(a, b span) int { return a.begin.Compare(b.begin) })
				stored := 0
				for i, call := range s.calls {
					if ticks := int(call.begin.Sub(began) / asideEvery); i >= ticks || call.messages > messageBatch {
						t.Errorf("call %d, of %d messages, begins after %d ticks", i+1, call.messages, ticks)
					}
					stored += call.messages
				}
				lost := test.fails * messageBatch // by the calls that failed
				if received := count(s.saw("received"), isGarbage); stored-lost > queues*each || received != queues*each {
					t.Errorf("%d are put aside and %d were delivered, want %d", stored-lost, received, queues*each)
				}
				if most := queues*each/messageBatch + queues*2 + test.fails; len(s.calls) > most {
					t.Errorf("they cost %d calls, want at most %d", len(s.calls), most)
				}
			})
		})
	}
}

// What is well formed is answered while malformed messages that came before it are still in hand.
func TestNothingWaitsBehindMalformedMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			each = 1000
			most = (int(3*patrolEvery/asideEvery) + 1) * messageBatch // far fewer than there are
		)
		s, known := flooded(t, each, patrolEvery/2, 0)
		time.Sleep(3 * patrolEvery)
		synctest.Wait()
		acked := s.saw("acked")
		if garbage := count(acked, isGarbage); garbage > most || len(acked) != garbage+3 {
			t.Errorf("acked are %d malformed messages and %d others, want at most %d and 3", garbage, len(acked)-garbage, most)
		}
		if known.asked != 1 {
			t.Errorf("the store was asked about %d tickets, want that of the rescue queue", known.asked)
		}
	})
}

func count(events []event, is func(event) bool) (n int) {
	for _, e := range events {
		if is(e) {
			n++
		}
	}
	return n
}
