package e2e

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/netfault"
	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/store"
)

// runs counts the executions of a handler in this process.
type runs struct {
	mu     sync.Mutex
	starts map[message.Ticket]int
	total  atomic.Int64
}

// handler counts and works for d, or until its context ends.
func (r *runs) handler(d time.Duration) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, task holdfast.Task) error {
		r.mu.Lock()
		if r.starts == nil {
			r.starts = make(map[message.Ticket]int)
		}
		r.starts[message.Ticket{Task: task.ID, Attempt: task.Attempt}]++
		r.mu.Unlock()
		r.total.Add(1)
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// checkOnce fails if a task started more than once.
func (r *runs) checkOnce(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	tasks := map[holdfast.TaskID]int{}
	for ticket, n := range r.starts {
		tasks[ticket.Task] += n
	}
	for id, n := range tasks {
		if n != 1 {
			t.Errorf("task %s ran %d times", id, n)
		}
	}
}

// proxied puts a proxy before the server of a URL and returns the URL through it.
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

// privateBroker starts a RabbitMQ node of the test's own.
func privateBroker(t *testing.T, env ...string) (run, address string) {
	t.Helper()
	servers(t)
	run = t.TempDir()
	address, err := tryScript(run, "private-rabbitmq", env, "up")
	if err != nil {
		if strings.Contains(err.Error(), "exit status 3") {
			t.Skip("RabbitMQ is not installed here: ", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { script(t, run, "private-rabbitmq", nil, "down") }) // of its epmd too; the data go with the folder
	return run, address
}

// A worker cut off from RabbitMQ only: whatever happens to its connection or to the broker,
// nothing is lost, nothing runs twice, and it resumes by itself.
func TestBrokerFaultsLoseNothingAndRunNothingTwice(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	databaseURL, _ := servers(t)
	run, amqpURL := privateBroker(t)
	w := newWorldOn(t, databaseURL, amqpURL)
	w.runJanitor(t, w.Backend, nil)
	var executed runs
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
		poll(t, 60*time.Second, func() string { return fault.name + ": no 25 tasks in flight" }, func(context.Context) bool { return executed.total.Load() >= before+25 })
		for _, step := range fault.steps {
			script(t, run, "private-rabbitmq", nil, step)
		}
		w.awaitCount(t, 60*time.Second, holdfast.Done, total)
		t.Logf("%s: %d tasks done, %d executions", fault.name, total, executed.total.Load())
	}
	executed.checkOnce(t)
}

// A broker that lost everything is filled again from the store.
func TestWipedBrokerIsRebuiltFromTheStore(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	databaseURL, _ := servers(t)
	run, amqpURL := privateBroker(t)
	w := newWorldOn(t, databaseURL, amqpURL)
	w.runJanitor(t, w.Backend, nil)
	var executed runs
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency = 5 }, map[string]consumer.Handler{"work": executed.handler(100 * time.Millisecond)})
	w.enqueue(t, 300, holdfast.NewTask{Type: "work"})
	poll(t, 60*time.Second, func() string { return "nothing runs" }, func(context.Context) bool { return executed.total.Load() >= 20 })
	script(t, run, "private-rabbitmq", nil, "wipe")
	script(t, run, "private-rabbitmq", nil, "up")
	w.awaitCount(t, 120*time.Second, holdfast.Done, 300)
	executed.checkOnce(t)
}

// A task far longer than the broker's consumer timeout runs once.
func TestTasksOutliveTheConsumerTimeout(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	databaseURL, _ := servers(t)
	_, amqpURL := privateBroker(t, "RB_CONSUMER_TIMEOUT=60000", "RB_CHANNEL_TICK=5000")
	w := newWorldOn(t, databaseURL, amqpURL)
	w.runJanitor(t, w.Backend, nil)
	var executed runs
	w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{"long": executed.handler(3 * time.Minute), "short": executed.handler(0)})
	id := w.enqueue(t, 1, holdfast.NewTask{Type: "long"})[0]

	// That the timeout is at work here shows a delivery that is held.
	short := w.enqueue(t, 1, holdfast.NewTask{Type: "short"})[0]
	w.awaitTask(t, 30*time.Second, short, "done", in(holdfast.Done)) // so the queues exist
	if _, err := w.Broker.Publish(t.Context(), []broker.Message{{Queue: w.Topology.Quarantine(), Body: []byte("held")}}); err != nil {
		t.Fatal(err)
	}
	held, err := w.Broker.Subscribe(t.Context(), w.Topology.Quarantine(), 1)
	if err != nil {
		t.Fatal(err)
	}
	<-held.Deliveries()
	select {
	case _, open := <-held.Deliveries():
		if open {
			t.Error("a second delivery on the held subscription")
		}
	case <-time.After(150 * time.Second):
		t.Error("the broker's consumer timeout never fired: this test proves nothing")
	}
	w.awaitTask(t, 150*time.Second, id, "done", in(holdfast.Done))
	executed.checkOnce(t)
}

// A worker cut off from Postgres: nothing is lost, the results of finished tasks land
// once, and workers that were never cut off are not fenced.
func TestWorkerCutOffFromPostgres(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	w := newWorld(t)
	w.runJanitor(t, w.Backend, nil)
	proxy, through := proxied(t, w.databaseURL)
	cut := w.connect(t, through, w.amqpURL)
	t.Cleanup(func() { _ = cut.Close() })
	var cutOff, others runs
	ten := func(o *consumer.Options) { o.Concurrency, o.Name, o.Lease = 10, "cut off", shortLease }
	w.runWorker(t, cut, ten, map[string]consumer.Handler{"work": cutOff.handler(2 * time.Second)})
	w.enqueue(t, 10, holdfast.NewTask{Type: "work"})
	poll(t, 30*time.Second, func() string { return "no 10 tasks in flight" }, func(context.Context) bool { return cutOff.total.Load() == 10 })
	proxy.Cut()
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency = 10 }, map[string]consumer.Handler{"work": others.handler(50 * time.Millisecond)})
	healed := time.NewTimer(30 * time.Second)
	w.enqueue(t, 200, holdfast.NewTask{Type: "work"})
	<-healed.C
	proxy.Heal()
	w.awaitCount(t, 60*time.Second, holdfast.Done, 210)
	poll(t, 60*time.Second, func() string { return "the worker does not resume" }, func(context.Context) bool {
		return cutOff.total.Load() > 10 || enqueueOne(t, w)
	})
	fenced := 0
	all, err := w.Store.Runs(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.State == store.RunDead {
			fenced++
			if r.Name != "cut off" {
				t.Errorf("run %s of %q was fenced, though it was never cut off", r.ID, r.Name)
			}
		}
	}
	if fenced == 0 {
		t.Error("the worker that was cut off was not fenced: its tasks cannot have run elsewhere")
	}
	cutOff.mu.Lock() // it has resumed, and may be starting more
	defer cutOff.mu.Unlock()
	for ticket, n := range cutOff.starts {
		if n != 1 {
			t.Errorf("attempt %d of task %s started %d times", ticket.Attempt, ticket.Task, n)
		}
	}
}

// enqueueOne gives idle workers something to do; it is always false.
func enqueueOne(t *testing.T, w *world) bool {
	w.enqueue(t, 5, holdfast.NewTask{Type: "work"})
	return false
}

// When Postgres itself is away for longer than a lease, nobody is fenced when it comes back,
// and results that were finished meanwhile land.
func TestDatabaseOutageFencesNobody(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	w := newWorld(t)
	proxy, through := proxied(t, w.databaseURL)
	both := w.connect(t, through, w.amqpURL)
	t.Cleanup(func() { _ = both.Close() })
	w.runJanitor(t, both, nil)
	var executed runs
	for _, name := range []string{"a", "b"} {
		w.runWorker(t, both, func(o *consumer.Options) { o.Concurrency, o.Name, o.Lease = 10, name, shortLease }, map[string]consumer.Handler{"work": executed.handler(time.Second)})
	}
	w.enqueue(t, 60, holdfast.NewTask{Type: "work"})
	poll(t, 30*time.Second, func() string { return "no 20 tasks in flight" }, func(context.Context) bool { return executed.total.Load() >= 20 })
	proxy.CutAbrupt()
	proxy.Refuse()
	away := time.NewTimer(12 * time.Second)
	<-away.C
	proxy.Heal()
	w.awaitCount(t, 60*time.Second, holdfast.Done, 60)
	all, err := w.Store.Runs(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.State == store.RunDead {
			t.Errorf("run %s of %q was fenced after an outage of the database", r.ID, r.Name)
		}
	}
	for ticket, n := range executed.starts {
		if n != 1 {
			t.Errorf("attempt %d of task %s started %d times", ticket.Attempt, ticket.Task, n)
		}
		if task := w.task(t, ticket.Task); task.Crashes != 0 || task.Failures != 0 {
			t.Errorf("task %s has %d crashes and %d failures; tasks of one second had the time to finish", task.ID, task.Crashes, task.Failures)
		}
	}
}

// All queues and exchanges deleted under load: every task still finishes.
func TestDeletedTopologyComesBack(t *testing.T) { everywhere(t, deletedTopologyComesBack) }

func deletedTopologyComesBack(t *testing.T, w *world) {
	w.runJanitor(t, w.Backend, nil)
	var executed runs
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
		poll(t, 60*time.Second, func() string { return "the load does not move" }, func(context.Context) bool { return executed.total.Load() >= at })
		if err := w.Topology.Delete(t.Context(), w.Broker, []string{"default"}); err != nil {
			t.Fatal(err)
		}
	}
	<-loading
	w.awaitCount(t, 120*time.Second, holdfast.Done, 2000)
	executed.checkOnce(t)
}
