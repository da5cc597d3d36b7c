package consumer

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// turnServers are a store and a broker that record what the worker does with a last-chance task.
type turnServers struct {
	Store
	Broker
	parkErr error

	mu     sync.Mutex
	events []string
}

func (f *turnServers) note(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event)
}

func (f *turnServers) Claim(_ context.Context, _ holdfast.WorkerID, _ []store.Wanted, tickets []message.Ticket, into store.Place) ([]store.Claim, error) {
	if into == store.IntoBuffer {
		f.note("claimed into the buffer")
	} else {
		f.note("claimed into an executor")
	}
	claims := make([]store.Claim, len(tickets))
	for i := range claims {
		claims[i].Verdict = store.Stale
	}
	return claims, nil
}

func (f *turnServers) Park(_ context.Context, tickets []message.Ticket, _ time.Duration, _ string) error {
	for _, ticket := range tickets {
		f.note("parked " + ticket.Task.String())
	}
	return f.parkErr
}

func (f *turnServers) Publish(_ context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	for _, m := range messages {
		f.note("published to " + m.Queue + " " + string(m.Body))
	}
	return slices.Repeat([]broker.Outcome{broker.Stored}, len(messages)), nil
}

// turnSubscription records acks.
type turnSubscription struct {
	broker.Subscription
	*turnServers
}

func (s turnSubscription) Ack(uint64, broker.AckMode) error {
	s.note("acked")
	return nil
}

// turn makes a worker process a page with last-chance tasks. The worker has two executors. On held of them, tasks run
// that do not end.
func (f *turnServers) turn(t *testing.T, held int, tickets ...message.Ticket) *session {
	s := testSession(t, Options{
		Store: f, Broker: f, Handlers: &Registry{}, Concurrency: 2, Lease: time.Hour, Topology: broker.NewTopology("test.v1", 1, "x"),
	}, time.Now())
	s.capacity.add(held)
	p := s.newPage()
	p.lastChances, p.tags = tickets, []uint64{1}
	a := &acks{sub: turnSubscription{turnServers: f}}
	a.received(1)
	p.process(t.Context(), a)
	s.receivers.Wait()
	return s
}

// While handlers hang on all executors, a claimed last-chance task would wait in the buffer and be handed back, each
// time with a new attempt number. So the worker does not claim it. If an executor is free, the task runs beside the
// tasks that hang.
func TestALastChanceTaskIsClaimedOnlyIntoAFreeExecutor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hanging int
		want    []string
	}{
		"none is free": {2, []string{"parked 1", "parked 2", "acked"}},
		"one is free":  {1, []string{"claimed into an executor", "parked 2", "acked"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &turnServers{}
				s := f.turn(t, test.hanging, ticket(1), ticket(2))
				if !slices.Equal(f.events, test.want) {
					t.Errorf("got %q, want %q", f.events, test.want)
				}
				if n := s.capacity.inUse(); n != test.hanging || s.capacity.reserved.Load() != 0 {
					t.Errorf("%d tasks are in progress, %d executors reserved", n, s.capacity.reserved.Load())
				}
				if s.capacity.free() != 2-test.hanging || len(s.exclusive) != 1 {
					t.Error("the turn did not end")
				}
			})
		})
	}
}

// If the store does not park last-chance tasks, their tickets go to the rescue queue. Otherwise neither the page nor
// any later page of the subscription would be acked.
func TestLastChanceTasksThatAreNotParkedAreRescued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &turnServers{parkErr: errAway}
		s := f.turn(t, 2, ticket(1), ticket(2))
		message := message.Message{Tickets: []message.Ticket{ticket(1), ticket(2)}}
		want := []string{"parked 1", "parked 2", "published to " + s.o.Topology.Rescue() + " " + string(message.Encode()), "acked"}
		if !slices.Equal(f.events, want) {
			t.Errorf("got %q, want %q", f.events, want)
		}
	})
}
