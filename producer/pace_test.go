package producer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
)

// paced is a producer's publisher in the clock of a bubble, before a broker that needs confirms for each window.
type paced struct {
	*publisher
	confirms time.Duration

	mu      sync.Mutex
	handed  int
	windows []window
}

type window struct {
	at      time.Time
	tickets int
}

func newPaced(confirms time.Duration) *paced {
	p := &paced{confirms: confirms}
	p.publisher = made(Options{Store: discharged{}, Broker: p, Topology: broker.NewTopology("paced.", 1, "test")}).publisher
	return p
}

// discharged takes every receipt.
type discharged struct{ store.Inserter }

func (discharged) Discharge(context.Context, []int64) error { return nil }

func (p *paced) Publish(_ context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	w := window{at: time.Now()}
	outcomes := make([]broker.Outcome, len(messages))
	for i, m := range messages {
		decoded, err := message.Decode(m.Body)
		if err != nil {
			return outcomes, err
		}
		w.tickets += len(decoded.Tickets)
		outcomes[i] = broker.Stored
	}
	p.mu.Lock()
	p.windows = append(p.windows, w)
	p.mu.Unlock()
	time.Sleep(p.confirms)
	return outcomes, nil
}

// hands over a receipt of some tickets.
func (p *paced) hands(ctx context.Context, tickets int) {
	r := store.Receipt{ID: int64(p.handed + 1), Lane: holdfast.DefaultLane, Tickets: make([]message.Ticket, tickets)}
	for i := range r.Tickets {
		p.handed++
		r.Tickets[i] = message.Ticket{Task: holdfast.TaskID(p.handed), Attempt: 1}
	}
	p.hand(ctx, []store.Receipt{r}, tickets)
}

// published ends the publisher and returns how many tickets went out.
func (p *paced) published() (n int) {
	p.close()
	for _, w := range p.windows {
		n += w.tickets
	}
	return n
}

func TestWindowsAreFewWhereManyTicketsCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPaced(time.Millisecond)
		for range 1000 { // fifty thousand in a second
			p.hands(t.Context(), 50)
			time.Sleep(time.Millisecond)
		}
		if got := p.published(); got != p.handed {
			t.Errorf("%d tickets were published of %d", got, p.handed)
		}
		if n, most := len(p.windows), int(time.Second/maxPace)+2; n > most {
			t.Errorf("%d windows; at most %d fit into a second", n, most)
		}
		for i, w := range p.windows[1:] {
			if gap := w.at.Sub(p.windows[i].at); gap > maxPace {
				t.Errorf("a window came %s after the one before", gap)
			}
		}
	})
}

func TestFewTicketsWaitForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPaced(time.Millisecond / 2)
		for range 1000 { // two thousand in a second
			began := time.Now()
			p.hands(t.Context(), 2)
			synctest.Wait()
			p.mu.Lock()
			if last := p.windows[len(p.windows)-1]; !last.at.Equal(began) {
				t.Errorf("nothing was published at %s after the last window", began.Sub(last.at))
			}
			p.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		if got := p.published(); got != p.handed {
			t.Errorf("%d tickets were published of %d", got, p.handed)
		}
	})
}

func TestAFullWindowWaitsForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPaced(time.Millisecond)
		began := time.Now()
		for range 400 {
			p.hands(t.Context(), 1000)
		}
		if got := p.published(); got != p.handed {
			t.Errorf("%d tickets were published of %d", got, p.handed)
		}
		// Only the first window is not full, and the one after it waits until it is.
		if took, want := time.Since(began), time.Duration(p.handed/maxWindow+1)*p.confirms; took > want {
			t.Errorf("it took %s, and %d windows take %s", took, len(p.windows), want)
		}
	})
}

func TestCloseWaitsForNoOtherTickets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPaced(time.Millisecond)
		p.hands(t.Context(), 1000)
		synctest.Wait()
		p.hands(t.Context(), 1)
		began := time.Now()
		if got := p.published(); got != p.handed {
			t.Errorf("%d tickets were published of %d", got, p.handed)
		}
		if took := time.Since(began); took > 2*p.confirms {
			t.Errorf("it took %s, and two windows take %s", took, 2*p.confirms)
		}
	})
}
