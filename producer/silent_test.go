package producer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
)

// partly is a broker of which one queue may confirm nothing, and a store that takes all, in the clock of a bubble.
type partly struct {
	store.Inserter
	silent atomic.Bool // the queue of the lane "stuck"

	mu       sync.Mutex
	last     int64
	tries    int            // windows for the silent queue
	waiting  int            // calls that wait for it now, and
	most     int            // the most there were
	tickets  map[string]int // confirmed, by queue
	receipts int            // deleted
}

var stuck = broker.NewTopology("p", 1, "test").Main("stuck")

func newPartly() (*partly, *Producer) {
	p := &partly{tickets: make(map[string]int)}
	return p, made(Options{Store: p, Broker: p, Topology: broker.NewTopology("p", 1, "test")})
}

func (p *partly) Insert(_ context.Context, tasks []holdfast.NewTask, _ time.Duration) (store.Inserted, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var inserted store.Inserted
	receipts := make(map[string]*store.Receipt)
	for _, task := range tasks {
		p.last++
		inserted.Tasks = append(inserted.Tasks, store.InsertedTask{ID: holdfast.TaskID(p.last)})
		if receipts[task.Lane] == nil {
			receipts[task.Lane] = &store.Receipt{ID: p.last, Lane: task.Lane}
		}
		receipts[task.Lane].Tickets = append(receipts[task.Lane].Tickets, message.Ticket{Task: holdfast.TaskID(p.last), Attempt: 1})
	}
	for _, receipt := range receipts {
		inserted.Receipts = append(inserted.Receipts, *receipt)
	}
	return inserted, nil
}

func (p *partly) Discharge(_ context.Context, receipts []int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.receipts += len(receipts)
	return nil
}

// Publish confirms after two milliseconds, and for the silent queue not at all.
func (p *partly) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	outcomes := make([]broker.Outcome, len(messages))
	p.mu.Lock()
	silent := false
	for _, m := range messages {
		silent = silent || m.Queue == stuck && p.silent.Load()
	}
	if silent {
		p.tries++
		p.waiting++
		p.most = max(p.most, p.waiting)
	}
	p.mu.Unlock()
	if silent {
		<-ctx.Done()
		p.mu.Lock()
		p.waiting--
		p.mu.Unlock()
		return outcomes, errFault
	}
	time.Sleep(2 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, m := range messages {
		decoded, err := message.Decode(m.Body)
		if err != nil {
			return outcomes, err
		}
		p.tickets[m.Queue] += len(decoded.Tickets)
		outcomes[i] = broker.Stored
	}
	return outcomes, nil
}

func (p *partly) confirmed(lane string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tickets[broker.NewTopology("p", 1, "test").Main(lane)]
}

func inLane(lane string, n int) []holdfast.NewTask {
	list := tasks(n)
	for i := range list {
		list[i].Lane = lane
	}
	return list
}

// A queue that confirms nothing delays neither the calls nor the tickets of another one.
func TestAQueueThatConfirmsNothingDelaysNoOtherQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world, p := newPartly()
		world.silent.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 4 { // that store for it whatever happens
			callers.Go(func() {
				for ctx.Err() == nil {
					_, _ = p.EnqueueMany(ctx, inLane("stuck", batchSize))
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		const n = 500
		worst := time.Duration(0)
		for i := range n {
			began := time.Now()
			if _, err := p.Enqueue(ctx, inLane("fine", 1)[0]); err != nil {
				t.Fatal(err)
			}
			worst = max(worst, time.Since(began))
			time.Sleep(20 * time.Millisecond)
			if got := world.confirmed("fine"); got != i+1 {
				t.Fatalf("after %d calls %d tickets are confirmed", i+1, got)
			}
		}
		if worst > 0 {
			t.Errorf("a call took %s", worst)
		}
		cancel()
		callers.Wait()
		if stored := world.last; stored < 100*batchSize {
			t.Errorf("%d tasks were stored for the silent queue: its callers were held up", stored)
		}
		if world.most > 1 {
			t.Errorf("%d windows waited for the silent queue at the same time", world.most)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A queue that confirms nothing is tried again with growing pauses, and its callers do not wait for it.
func TestASilentQueueIsProbed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world, p := newPartly()
		world.silent.Store(true)
		call := func() {
			t.Helper()
			began := time.Now()
			if _, err := p.Enqueue(t.Context(), inLane("stuck", 1)[0]); err != nil || time.Since(began) > 0 {
				t.Fatalf("a call took %s: %v", time.Since(began), err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		for began := time.Now(); time.Since(began) < time.Minute; {
			call()
		}
		if world.tries < 6 || world.tries > 12 {
			t.Errorf("it was tried %d times in a minute", world.tries)
		}
		if n := world.confirmed("stuck"); n != 0 {
			t.Errorf("%d tickets are confirmed", n)
		}
		world.silent.Store(false)
		for began := time.Now(); world.confirmed("stuck") == 0; {
			if time.Since(began) > 2*lastProbe+p.o.ConfirmTimeout {
				t.Fatal("the queue was not tried again")
			}
			call()
		}
		before := world.confirmed("stuck")
		const n = 50
		for range n {
			call()
		}
		if got := world.confirmed("stuck"); got != before+n {
			t.Errorf("%d of %d tickets are confirmed after it had answered", got-before, n)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A caller that waits for a queue does not wait longer than it wants.
func TestACallThatWaitsForAQueueEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world, p := newPartly()
		world.silent.Store(true)
		for _, n := range []int{1, maxPending} { // the first of them is on its way, and the others are as many as may wait
			if _, err := p.EnqueueMany(t.Context(), inLane("stuck", n)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := world.last
		if _, err := p.Enqueue(ctx, inLane("stuck", 1)[0]); !errors.Is(err, context.DeadlineExceeded) || world.last != before {
			t.Errorf("got %v, %d tasks were stored", err, world.last-before)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}
