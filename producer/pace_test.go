package producer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// pacedPublisher is a publisher with its broker. The broker confirms each publish group after the time confirms.
type pacedPublisher struct {
	*publisher
	confirms time.Duration

	mu     sync.Mutex
	added  int
	groups []publishGroup
}

// publishGroup is a publish group that the broker has received.
type publishGroup struct {
	at      time.Time
	tickets int
}

func newPacedPublisher(confirms time.Duration) *pacedPublisher {
	p := &pacedPublisher{confirms: confirms}
	p.publisher = mustNew(Options{Store: acceptingStore{}, Broker: p, Topology: broker.NewTopology("paced.", 1, "test")}).publisher
	return p
}

// acceptingStore is a store that deletes all outbox entries.
type acceptingStore struct{ store.Inserter }

func (acceptingStore) DeleteOutbox(context.Context, []int64) error { return nil }

func (p *pacedPublisher) Publish(_ context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	group := publishGroup{at: time.Now()}
	outcomes := make([]broker.Outcome, len(messages))
	for i, m := range messages {
		decoded, err := message.Decode(m.Body)
		if err != nil {
			return outcomes, err
		}
		group.tickets += len(decoded.Tickets)
		outcomes[i] = broker.Stored
	}
	p.mu.Lock()
	p.groups = append(p.groups, group)
	p.mu.Unlock()
	time.Sleep(p.confirms)
	return outcomes, nil
}

// addTickets adds an outbox entry with the given number of tickets, each of a separate call.
func (p *pacedPublisher) addTickets(ctx context.Context, tickets int) {
	entry := store.OutboxEntry{ID: int64(p.added + 1), Queue: holdfast.DefaultQueue, Tickets: make([]message.Ticket, tickets)}
	for i := range entry.Tickets {
		p.added++
		entry.Tickets[i] = message.Ticket{Task: holdfast.TaskID(p.added), Attempt: 1}
	}
	p.add(ctx, []store.OutboxEntry{entry}, tickets)
}

// published closes the publisher and returns how many tickets it has published.
func (p *pacedPublisher) published() (n int) {
	p.close()
	for _, w := range p.groups {
		n += w.tickets
	}
	return n
}

func TestPublishGroupsAreFewWhenManyTicketsCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacedPublisher(time.Millisecond)
		for range 1000 { // fifty thousand in a second
			p.addTickets(t.Context(), 50)
			time.Sleep(time.Millisecond)
		}
		if got := p.published(); got != p.added {
			t.Errorf("%d tickets were published of %d", got, p.added)
		}
		if n, most := len(p.groups), int(time.Second/maxGroupInterval)+2; n > most {
			t.Errorf("%d publish groups in a second, want at most %d", n, most)
		}
		for i, w := range p.groups[1:] {
			if gap := w.at.Sub(p.groups[i].at); gap > maxGroupInterval {
				t.Errorf("a publish group came %s after the one before", gap)
			}
		}
	})
}

func TestFewTicketsWaitForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacedPublisher(time.Millisecond / 2)
		for range 1000 { // two thousand in a second
			began := time.Now()
			p.addTickets(t.Context(), 2)
			synctest.Wait()
			p.mu.Lock()
			if last := p.groups[len(p.groups)-1]; !last.at.Equal(began) {
				t.Errorf("nothing was published %s after the last publish group", began.Sub(last.at))
			}
			p.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		if got := p.published(); got != p.added {
			t.Errorf("%d tickets were published of %d", got, p.added)
		}
	})
}

func TestAFullPublishGroupWaitsForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacedPublisher(time.Millisecond)
		began := time.Now()
		for range 400 {
			p.addTickets(t.Context(), 1000)
		}
		if got := p.published(); got != p.added {
			t.Errorf("%d tickets were published of %d", got, p.added)
		}
		// Only the first publish group is not full, and the second waits until it is full.
		if took, want := time.Since(began), time.Duration(p.added/maxGroupTickets+1)*p.confirms; took > want {
			t.Errorf("%d publish groups took %s, want at most %s", len(p.groups), took, want)
		}
	})
}

func TestCloseWaitsForNoOtherTickets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacedPublisher(time.Millisecond)
		p.addTickets(t.Context(), 1000)
		synctest.Wait()
		p.addTickets(t.Context(), 1)
		began := time.Now()
		if got := p.published(); got != p.added {
			t.Errorf("%d tickets were published of %d", got, p.added)
		}
		if took := time.Since(began); took > 2*p.confirms {
			t.Errorf("two publish groups took %s, want at most %s", took, 2*p.confirms)
		}
	})
}
