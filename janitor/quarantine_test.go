package janitor

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/inproc"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// slowBroker is a broker that is slow to publish to the quarantine queue, and records these calls.
type slowBroker struct {
	*spy
	queue string
	takes time.Duration
	fails int // how many calls fail at first

	mu    sync.Mutex
	calls []callTime
}

// callTime has the begin and the end of a call, and its number of messages.
type callTime struct {
	begin, end time.Time
	messages   int
}

func (s *slowBroker) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	if messages[0].Queue != s.queue {
		return s.Broker.Publish(ctx, messages)
	}
	begin := time.Now()
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, callTime{begin, time.Now(), len(messages)})
	if len(s.calls) <= s.fails {
		return make([]broker.Outcome, len(messages)), errFault
	}
	return s.Broker.Publish(ctx, messages)
}

// settledStore is a store in which every page and every task is finished.
type settledStore struct {
	Store
	mu      sync.Mutex
	queried int // tickets
}

func (s *settledStore) WorkerStates(_ context.Context, workers []holdfast.WorkerID) (map[holdfast.WorkerID]store.WorkerStatus, error) {
	states := make(map[holdfast.WorkerID]store.WorkerStatus)
	for _, worker := range workers {
		states[worker] = store.WorkerStatus{State: store.WorkerLive, Settled: 1}
	}
	return states, nil
}

func (s *settledStore) Positions(_ context.Context, tickets []message.Ticket) ([]store.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queried += len(tickets)
	return slices.Repeat([]store.Position{{Found: true, State: holdfast.Done, Attempt: 1}}, len(tickets)), nil
}

// floodedJanitor runs the patrols and the rescue duty of a janitor with two holding queues. Each holding queue has n
// malformed messages before a well-formed one. The rescue queue has a well-formed message among n malformed ones.
func floodedJanitor(t *testing.T, n int, takes time.Duration, fails int) (*slowBroker, *settledStore) {
	t.Helper()
	topology := broker.NewTopology("test", 2, "x")
	b := inproc.Open(inproc.Options{})
	if err := b.Declare(t.Context(), topology.Queues(nil)); err != nil {
		t.Fatal(err)
	}
	publish := func(amqpQueue string, bodies ...[]byte) {
		messages := make([]broker.Message, len(bodies))
		for i, body := range bodies {
			messages[i] = broker.Message{Queue: amqpQueue, Body: body}
		}
		if _, err := b.Publish(t.Context(), messages); err != nil {
			t.Fatal(err)
		}
	}
	garbage := slices.Repeat([][]byte{[]byte("garbage")}, n)
	ticket := message.Ticket{Task: 1, Attempt: 1}
	for _, amqpQueue := range topology.HoldingQueueNames() {
		publish(amqpQueue, append(garbage, manifest(1, 1, ticket).Encode())...)
	}
	publish(topology.Rescue(), slices.Insert(slices.Clone(garbage), min(n, rescuePrefetch/2), tickets(ticket).Encode())...)

	s := &slowBroker{spy: &spy{Broker: b}, queue: topology.Quarantine(), takes: takes, fails: fails}
	known := new(settledStore)
	j, err := New(Options{Store: known, Broker: s, Topology: topology})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var duties sync.WaitGroup
	for _, amqpQueue := range topology.HoldingQueueNames() {
		duties.Go(func() { j.receive(ctx, amqpQueue, patrolPrefetch, j.patrol) })
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

// At each tick, the duties quarantine one batch of malformed messages together, even if the broker is slow. After a
// failure they try again with the same messages.
func TestMalformedMessagesAreQuarantinedInBatches(t *testing.T) {
	t.Parallel()
	const each, queues = 1000, 3
	for name, test := range map[string]struct {
		takes time.Duration
		fails int
	}{
		"fast":           {0, 0},
		"slow":           {2 * time.Second, 0},
		"fails at first": {20 * time.Millisecond, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, _ := floodedJanitor(t, each, test.takes, test.fails)
				began := time.Now()
				for acked := 0; acked < queues*each; acked = count(s.saw("acked"), isGarbage) {
					if time.Since(began) > 5*time.Minute {
						t.Fatalf("%d of %d messages are acknowledged after %s", acked, queues*each, time.Since(began))
					}
					time.Sleep(100 * time.Millisecond)
				}
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				slices.SortFunc(s.calls, func(a, b callTime) int { return a.begin.Compare(b.begin) })
				stored := 0
				for i, call := range s.calls {
					if ticks := int(call.begin.Sub(began) / quarantineEvery); i >= ticks || call.messages > messageBatch {
						t.Errorf("call %d with %d messages began after %d ticks", i+1, call.messages, ticks)
					}
					stored += call.messages
				}
				lost := test.fails * messageBatch // in the calls that failed
				if received := count(s.saw("received"), isGarbage); stored-lost > queues*each || received != queues*each {
					t.Errorf("%d messages were quarantined and %d delivered, want %d", stored-lost, received, queues*each)
				}
				if most := queues*each/messageBatch + queues*2 + test.fails; len(s.calls) > most {
					t.Errorf("%d calls, want at most %d", len(s.calls), most)
				}
			})
		})
	}
}

// Well-formed messages are handled while malformed messages before them still wait for the quarantine.
func TestNothingWaitsBehindMalformedMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			each = 1000
			most = (int(3*patrolEvery/quarantineEvery) + 1) * messageBatch // far fewer than the malformed messages
		)
		s, known := floodedJanitor(t, each, patrolEvery/2, 0)
		time.Sleep(3 * patrolEvery)
		synctest.Wait()
		acked := s.saw("acked")
		if garbage := count(acked, isGarbage); garbage > most || len(acked) != garbage+3 {
			t.Errorf("acknowledged %d malformed messages and %d others, want at most %d and 3", garbage, len(acked)-garbage, most)
		}
		if known.queried != 1 {
			t.Errorf("queried the store for %d tickets, want only that of the rescue queue", known.queried)
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
