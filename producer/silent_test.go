package producer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// fakeServers are a broker that may confirm nothing for the queue "stuck", and a store that accepts all tasks.
type fakeServers struct {
	store.Inserter
	silent atomic.Bool // the queue "stuck" confirms nothing

	mu      sync.Mutex
	last    int64
	tries   int            // publish groups for the silent queue
	waiting int            // publish groups for the silent queue in progress
	most    int            // the highest value of the field waiting
	tickets map[string]int // confirmed tickets, by AMQP queue
	entries int            // number of deleted entries
}

var stuck = broker.NewTopology("p", 1, "test").Main("stuck")

func newFakeServers() (*fakeServers, *Producer) {
	p := &fakeServers{tickets: make(map[string]int)}
	return p, mustNew(Options{Store: p, Broker: p, Topology: broker.NewTopology("p", 1, "test")})
}

func (p *fakeServers) Insert(_ context.Context, tasks []holdfast.NewTask, _ time.Duration) (store.Inserted, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var inserted store.Inserted
	entries := make(map[string]*store.OutboxEntry)
	for _, task := range tasks {
		p.last++
		inserted.Tasks = append(inserted.Tasks, store.InsertedTask{ID: holdfast.TaskID(p.last)})
		if entries[task.Queue] == nil {
			entries[task.Queue] = &store.OutboxEntry{ID: p.last, Queue: task.Queue}
		}
		entries[task.Queue].Tickets = append(entries[task.Queue].Tickets, message.Ticket{Task: holdfast.TaskID(p.last), Attempt: 1})
	}
	for _, entry := range entries {
		inserted.Entries = append(inserted.Entries, *entry)
	}
	return inserted, nil
}

func (p *fakeServers) DeleteOutbox(_ context.Context, entries []int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries += len(entries)
	return nil
}

// Publish confirms after two milliseconds. It never confirms a group with messages for the silent queue.
func (p *fakeServers) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
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

func (p *fakeServers) confirmed(queue string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tickets[broker.NewTopology("p", 1, "test").Main(queue)]
}

func inQueue(queue string, n int) []holdfast.NewTask {
	list := tasks(n)
	for i := range list {
		list[i].Queue = queue
	}
	return list
}

// A queue that confirms nothing delays neither the calls nor the tickets of other queues.
func TestAQueueThatConfirmsNothingDelaysNoOtherQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world, p := newFakeServers()
		world.silent.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 4 { // callers that store tasks for the silent queue all the time
			callers.Go(func() {
				for ctx.Err() == nil {
					_, _ = p.EnqueueMany(ctx, inQueue("stuck", maxInsertTasks))
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		const n = 500
		worst := time.Duration(0)
		for i := range n {
			began := time.Now()
			if _, err := p.Enqueue(ctx, inQueue("fine", 1)[0]); err != nil {
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
		if stored := world.last; stored < 100*maxInsertTasks {
			t.Errorf("only %d tasks were stored: the callers of the silent queue were delayed", stored)
		}
		if world.most > 1 {
			t.Errorf("%d publish groups waited for the silent queue at the same time", world.most)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The publisher probes a silent queue with growing pauses, and its callers do not wait for it.
func TestASilentQueueIsProbed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world, p := newFakeServers()
		world.silent.Store(true)
		call := func() {
			t.Helper()
			began := time.Now()
			if _, err := p.Enqueue(t.Context(), inQueue("stuck", 1)[0]); err != nil || time.Since(began) > 0 {
				t.Fatalf("a call took %s: %v", time.Since(began), err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		for began := time.Now(); time.Since(began) < time.Minute; {
			call()
		}
		if world.tries < 6 || world.tries > 12 {
			t.Errorf("the queue was probed %d times in a minute", world.tries)
		}
		if n := world.confirmed("stuck"); n != 0 {
			t.Errorf("%d tickets are confirmed", n)
		}
		world.silent.Store(false)
		for began := time.Now(); world.confirmed("stuck") == 0; {
			if time.Since(began) > 2*lastProbe+p.o.ConfirmTimeout {
				t.Fatal("the queue was not probed")
			}
			call()
		}
		before := world.confirmed("stuck")
		const n = 50
		for range n {
			call()
		}
		if got := world.confirmed("stuck"); got != before+n {
			t.Errorf("%d of %d tickets are confirmed after the queue answered", got-before, n)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A call that waits for a queue ends with its context.
func TestACallThatWaitsForAQueueEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world, p := newFakeServers()
		world.silent.Store(true)
		for _, n := range []int{1, maxPending} { // the first one is being published, and the others wait
			if _, err := p.EnqueueMany(t.Context(), inQueue("stuck", n)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := world.last
		if _, err := p.Enqueue(ctx, inQueue("stuck", 1)[0]); !errors.Is(err, context.DeadlineExceeded) || world.last != before {
			t.Errorf("got %v, %d tasks were stored", err, world.last-before)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}
