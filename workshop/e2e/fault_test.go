package e2e

import (
	"context"
	"maps"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/netfault"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// executions counts the executions of tasks in this process.
type executions struct {
	mu     sync.Mutex
	starts map[message.Ticket]int
	total  atomic.Int64
}

// handler returns a handler that counts each execution and waits for d or until its context is done.
func (e *executions) handler(d time.Duration) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, task holdfast.Task) error {
		e.mu.Lock()
		if e.starts == nil {
			e.starts = make(map[message.Ticket]int)
		}
		e.starts[message.Ticket{Task: task.ID, Attempt: task.Attempt}]++
		e.mu.Unlock()
		e.total.Add(1)
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// attempts returns how often each attempt has started.
func (e *executions) attempts() map[message.Ticket]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.starts)
}

// checkOnce fails the test if a task started more than once.
func (e *executions) checkOnce(t *testing.T) {
	t.Helper()
	tasks := map[holdfast.TaskID]int{}
	for ticket, n := range e.attempts() {
		tasks[ticket.Task] += n
	}
	for id, n := range tasks {
		if n != 1 {
			t.Errorf("task %s ran %d times", id, n)
		}
	}
}

// proxied starts a proxy for the server of a URL. It returns the proxy and the URL that leads through it.
func proxied(t *testing.T, address string) (*netfault.Proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p, err := netfault.New(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	u.Host = p.Addr()
	return p, u.String()
}

// privateBroker starts a RabbitMQ node for this test. It returns its state folder and its URL.
func privateBroker(t *testing.T, env ...string) (folder, address string) {
	t.Helper()
	servers(t)
	folder = t.TempDir()
	address, err := tryScript(folder, "private-rabbitmq", env, "up")
	if err != nil {
		if strings.Contains(err.Error(), "exit status 3") {
			t.Skip("RabbitMQ is not installed here: ", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { script(t, folder, "private-rabbitmq", nil, "down") }) // also ends epmd; the data is deleted with the folder
	return folder, address
}

// After faults of the broker or of the connection to it, no task is lost, no task runs twice, and the worker resumes
// without a restart.
func TestBrokerFaultsLoseNothingAndRunNothingTwice(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	databaseURL, _ := servers(t)
	folder, amqpURL := privateBroker(t)
	w := newWorldOn(t, databaseURL, amqpURL)
	w.runJanitor(t, w.Backend, nil)
	var executed executions
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency = 25 }, map[string]consumer.Handler{"work": executed.handler(time.Second)})
	total := int64(0)
	for _, fault := range []struct {
		name  string
		steps []string
	}{
		{"connections closed by the broker", []string{"close-connections"}},
		{"broker restarted", []string{"restart"}},
		{"broker killed -9", []string{"kill", "up"}},
		{"application stopped and started", []string{"stop-app", "start-app"}},
	} {
		before := executed.total.Load()
		w.enqueue(t, 75, holdfast.NewTask{Type: "work"})
		total += 75
		poll(t, func() string { return fault.name + ": fewer than 25 tasks have started" }, func(context.Context) bool { return executed.total.Load() >= before+25 })
		for _, step := range fault.steps {
			script(t, folder, "private-rabbitmq", nil, step)
		}
		w.awaitCount(t, holdfast.Done, total)
		t.Logf("%s: %d tasks done, %d executions", fault.name, total, executed.total.Load())
	}
	executed.checkOnce(t)
}

// If the broker has lost all data, the janitor declares the AMQP queues again and publishes the tickets from the store.
func TestWipedBrokerIsRebuiltFromTheStore(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	databaseURL, _ := servers(t)
	folder, amqpURL := privateBroker(t)
	w := newWorldOn(t, databaseURL, amqpURL)
	w.runJanitor(t, w.Backend, nil)
	var executed executions
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency = 5 }, map[string]consumer.Handler{"work": executed.handler(100 * time.Millisecond)})
	w.enqueue(t, 300, holdfast.NewTask{Type: "work"})
	poll(t, func() string { return "no task runs" }, func(context.Context) bool { return executed.total.Load() >= 20 })
	script(t, folder, "private-rabbitmq", nil, "wipe")
	script(t, folder, "private-rabbitmq", nil, "up")
	w.awaitCount(t, holdfast.Done, 300)
	executed.checkOnce(t)
}

// A task that takes much longer than the broker's consumer timeout runs once.
func TestTasksOutliveTheConsumerTimeout(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	databaseURL, _ := servers(t)
	_, amqpURL := privateBroker(t, "RB_CONSUMER_TIMEOUT=60000", "RB_CHANNEL_TICK=5000")
	w := newWorldOn(t, databaseURL, amqpURL)
	w.runJanitor(t, w.Backend, nil)
	var executed executions
	w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{"long": executed.handler(3 * time.Minute), "short": executed.handler(0)})
	id := w.enqueue(t, 1, holdfast.NewTask{Type: "long"})[0]

	// An unacknowledged delivery proves that the consumer timeout is in effect.
	short := w.enqueue(t, 1, holdfast.NewTask{Type: "short"})[0]
	w.awaitTask(t, short, "done", in(holdfast.Done)) // now the queues exist
	if _, err := w.Broker.Publish(t.Context(), []broker.Message{{Queue: w.Topology.Quarantine(), Body: []byte("unacknowledged")}}); err != nil {
		t.Fatal(err)
	}
	unacked, err := w.Broker.Subscribe(t.Context(), w.Topology.Quarantine(), 1)
	if err != nil {
		t.Fatal(err)
	}
	<-unacked.Deliveries()
	select {
	case _, open := <-unacked.Deliveries():
		if open {
			t.Error("the subscription has received a second delivery")
		}
	case <-time.After(150 * time.Second):
		t.Error("the broker's consumer timeout did not occur, so this test proves nothing")
	}
	w.awaitTask(t, id, "done", in(holdfast.Done))
	executed.checkOnce(t)
}

// While a worker is cut off from PostgreSQL, no task is lost, and each attempt has at most one result. The janitor
// fences only the worker that was cut off, which resumes later.
func TestWorkerCutOffFromPostgres(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	w := newWorld(t)
	w.runJanitor(t, w.Backend, nil)
	proxy, through := proxied(t, w.databaseURL)
	cut := w.connect(t, through, w.amqpURL)
	t.Cleanup(func() { _ = cut.Close() })
	var cutOff, others executions
	options := func(o *consumer.Options) { o.Concurrency, o.Name, o.Lease = 10, "cut off", shortLease() }
	w.runWorker(t, cut, options, map[string]consumer.Handler{"work": cutOff.handler(2 * time.Second)})
	w.enqueue(t, 10, holdfast.NewTask{Type: "work"})
	poll(t, func() string { return "fewer than 10 tasks have started" }, func(context.Context) bool { return cutOff.total.Load() == 10 })
	proxy.Cut()
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency = 10 }, map[string]consumer.Handler{"work": others.handler(50 * time.Millisecond)})
	healed := time.NewTimer(30 * time.Second)
	w.enqueue(t, 200, holdfast.NewTask{Type: "work"})
	<-healed.C
	proxy.Heal()
	w.awaitCount(t, holdfast.Done, 210)
	poll(t, func() string { return "the worker that was cut off does not resume" }, func(context.Context) bool {
		return cutOff.total.Load() > 10 || enqueueMore(t, w)
	})

	fenced := 0
	all, err := w.Store.Workers(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, worker := range all {
		if worker.State == store.WorkerDead {
			fenced++
			if worker.Name != "cut off" {
				t.Errorf("worker %s of %q was fenced, although it was not cut off", worker.ID, worker.Name)
			}
		}
	}
	if fenced == 0 {
		t.Error("the worker that was cut off was not fenced")
	}
	for ticket, n := range cutOff.attempts() {
		if n != 1 {
			t.Errorf("attempt %d of task %s started %d times", ticket.Attempt, ticket.Task, n)
		}
	}
}

// enqueueMore stores tasks for idle workers. It always returns false, because it is part of a condition of poll.
func enqueueMore(t *testing.T, w *world) bool {
	w.enqueue(t, 5, holdfast.NewTask{Type: "work"})
	return false
}

// If PostgreSQL is unavailable for longer than a lease, no worker is fenced when PostgreSQL returns. The results of
// tasks that finished during the outage are stored.
func TestDatabaseOutageFencesNoWorker(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	w := newWorld(t)
	proxy, through := proxied(t, w.databaseURL)
	both := w.connect(t, through, w.amqpURL)
	t.Cleanup(func() { _ = both.Close() })
	w.runJanitor(t, both, nil)
	var executed executions
	for _, name := range []string{"a", "b"} {
		w.runWorker(t, both, func(o *consumer.Options) { o.Concurrency, o.Name, o.Lease = 10, name, shortLease() }, map[string]consumer.Handler{"work": executed.handler(time.Second)})
	}
	w.enqueue(t, 60, holdfast.NewTask{Type: "work"})
	poll(t, func() string { return "fewer than 20 tasks have started" }, func(context.Context) bool { return executed.total.Load() >= 20 })
	proxy.CutAbrupt()
	proxy.Refuse()
	outage := time.NewTimer(12 * time.Second)
	<-outage.C
	proxy.Heal()
	w.awaitCount(t, holdfast.Done, 60)
	all, err := w.Store.Workers(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, worker := range all {
		if worker.State == store.WorkerDead {
			t.Errorf("worker %s of %q was fenced after the outage of the database", worker.ID, worker.Name)
		}
	}
	for ticket, n := range executed.attempts() {
		if n != 1 {
			t.Errorf("attempt %d of task %s started %d times", ticket.Attempt, ticket.Task, n)
		}
		if task := w.task(t, ticket.Task); task.Crashes != 0 || task.Failures != 0 {
			t.Errorf("task %s has %d crashes and %d failures, want 0 and 0: it had time to finish", task.ID, task.Crashes, task.Failures)
		}
	}
}

// All AMQP queues and exchanges are deleted under load. Every task still finishes, and runs once.
func TestDeletedTopologyComesBack(t *testing.T) { onServersFirst(t, deletedTopologyComesBack) }

func deletedTopologyComesBack(t *testing.T, w *world) {
	w.runJanitor(t, w.Backend, nil)
	var executed executions
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency = 20 }, map[string]consumer.Handler{"work": executed.handler(20 * time.Millisecond)})
	loading := make(chan struct{})
	go func() {
		defer close(loading)
		for range 20 {
			w.enqueue(t, 100, holdfast.NewTask{Type: "work"})
		}
	}()
	for round := range 3 {
		at := int64(200 + 400*round)
		poll(t, func() string { return "the workers make no progress" }, func(context.Context) bool { return executed.total.Load() >= at })
		if err := w.Topology.Delete(t.Context(), w.Broker, []string{"default"}); err != nil {
			t.Fatal(err)
		}
	}
	<-loading
	w.awaitCount(t, holdfast.Done, 2000)
	executed.checkOnce(t)
}
