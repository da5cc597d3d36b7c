package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// malformedBodies returns message bodies that are malformed in every AMQP queue.
func malformedBodies() [][]byte {
	numbers := `{"v":1,"t":[[%s,%s]],"worker":%s,"page":%s,"rounds":%s}`
	bodies := []string{
		"", "hello", "null", "[]", "\x00\x01\xff\xfe", `{"v":1}`, `{"v":-1,"t":[[1,1]]}`, `{"v":1,"t":[1,1],"x":1}`, `{"v":1,"t":[[1,1]]} {}`,
		`{"v":1,"t":[[1,1],[2,`, `{"v":1,"t":[]}`, `{"v":1,"queue":"default"}`, `{"v":1,"queue":"default","sentinel":"soon"}`,
		`{"v":1,"queue":"default","sentinel":"9999-12-31T23:59:59-23:00"}`, strings.Repeat("[", 10_000), `{"v":1,"t":[` + strings.Repeat("[1,1],", 1000) + `[1,1]]}`,
		`{"v":1,"` + strings.Repeat("k", 200_000) + `":1}`, // if the reason in the header named the whole key, the header would be longer than a frame
		fmt.Sprintf(numbers, "0", "1", "1", "1", "0"), fmt.Sprintf(numbers, "-1", "1", "1", "1", "0"), fmt.Sprintf(numbers, "1", "2147483648", "1", "1", "0"),
		fmt.Sprintf(numbers, "1", "1", "-1", "1", "0"), fmt.Sprintf(numbers, "1", "1", "1", "-1", "0"), fmt.Sprintf(numbers, "1", "1", "1", "1", "-1"),
		fmt.Sprintf(numbers, "9223372036854775808", "1", "1", "1", "0"), fmt.Sprintf(numbers, "1e99", "1", "1", "1", "0"), fmt.Sprintf(numbers, "1", "1.5", "1", "1", "0"),
	}
	all := make([][]byte, len(bodies))
	for i, body := range bodies {
		all[i] = []byte(body)
	}
	return all
}

// flood returns n malformed messages for an AMQP queue. They include messages that are valid only in other AMQP queues.
func flood(w *world, queue string, n int) []broker.Message {
	kinds := malformedBodies()
	switch {
	case strings.Contains(queue, ".holding."):
		kinds = append(kinds, []byte(`{"v":1,"t":[[1,1]]}`), []byte(`{"v":1,"queue":"default","sentinel":"2026-07-01T12:00:00Z"}`))
	case strings.Contains(queue, ".main."), strings.Contains(queue, ".requeue."):
		kinds = append(kinds, []byte(`{"v":1,"t":[[1,1]],"worker":1,"page":1}`))
	}
	const large = 2 // messages with each large body; more would need too much memory
	messages := make([]broker.Message, n)
	for i := range messages {
		body := kinds[i%len(kinds)]
		if len(body) > 1000 && i >= large*len(kinds) {
			body = kinds[1]
		}
		messages[i] = broker.Message{Queue: queue, Body: body}
	}
	messages[n/2].Body = bytes.Repeat([]byte("x"), 2<<20)
	return messages
}

// quarantined counts the messages that a janitor or a worker quarantines.
type quarantined struct{ n atomic.Int64 }

func (q *quarantined) Observe(o holdfast.Observation) {
	if o.Kind == holdfast.ObservedQuarantined {
		q.n.Add(int64(o.Count))
	}
}

// await waits until n messages are quarantined.
func (q *quarantined) await(t *testing.T, n int) {
	t.Helper()
	poll(t, func() string { return fmt.Sprintf("%d of %d messages are quarantined", q.n.Load(), n) },
		func(context.Context) bool { return q.n.Load() >= int64(n) })

}

// publishCounter is a broker that counts the Publish calls with messages for an AMQP queue.
type publishCounter struct {
	broker.Broker
	queue string
	calls atomic.Int64
}

func (c *publishCounter) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	if slices.ContainsFunc(messages, func(m broker.Message) bool { return m.Queue == c.queue }) {
		c.calls.Add(1)
	}
	return c.Broker.Publish(ctx, messages)
}

// The test publishes 10,000 malformed messages to every AMQP queue, or 5,000 on servers, which are slower. All of them
// and no other messages end in the quarantine, and healthy tasks continue. The test does not run in parallel with
// others, because it reports the rate of healthy tasks with and without the flood.
func TestAFloodOfMalformedMessagesIsQuarantined(t *testing.T) {
	slow.Skip(t)
	t.Run("servers", func(t *testing.T) { aFloodOfMalformedMessagesIsQuarantined(t, newWorld(t), 5_000, 1) })
	t.Run("embedded", func(t *testing.T) { aFloodOfMalformedMessagesIsQuarantined(t, newFile(t), 10_000, 3) })
}

func aFloodOfMalformedMessagesIsQuarantined(t *testing.T, w *world, perQueue, rounds int) {
	perRound := (perQueue + rounds - 1) / rounds
	var byJanitor, byWorker quarantined
	var executed executions
	janitorBroker := &publishCounter{Broker: w.Broker, queue: w.Topology.Quarantine()}
	workerBroker := &publishCounter{Broker: w.Broker, queue: w.Topology.Quarantine()}
	w.runJanitor(t, w.Backend, func(o *janitor.Options) { o.Observer, o.Broker = &byJanitor, janitorBroker })
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency, o.Observer, o.Broker = 50, &byWorker, workerBroker },
		map[string]consumer.Handler{"work": executed.handler(200 * time.Millisecond)})
	enqueued, stop := feed(t, w, &executed)
	poll(t, func() string { return "no task runs" }, func(context.Context) bool { return executed.total.Load() > 200 })

	workerQueues, janitorQueues := w.Topology.Queue("default"), append(w.Topology.HoldingQueueNames(), w.Topology.Rescue())
	want := rounds * perRound * (len(workerQueues) + len(janitorQueues))
	baseline := []float64{rate(&executed, func() {})}
	var flooded []float64
	for round := 1; round <= rounds; round++ {
		flooded = append(flooded, rate(&executed, func() {
			began := time.Now()
			for _, queue := range slices.Concat(workerQueues, janitorQueues) {
				if _, err := w.Broker.Publish(t.Context(), flood(w, queue, perRound)); err != nil {
					t.Fatal(err)
				}
			}
			published := time.Since(began)
			byWorker.await(t, round*perRound*len(workerQueues))
			cleared := time.Since(began)
			byJanitor.await(t, round*perRound*len(janitorQueues))
			t.Logf("published in %s; the queues of the worker were empty after %s, those of the janitor after %s", published, cleared, time.Since(began))
		}))
		baseline = append(baseline, rate(&executed, func() {}))
	}
	total := int(stop())
	w.awaitCount(t, holdfast.Done, int64(total))
	executed.checkOnce(t)
	slices.Sort(baseline)
	slices.Sort(flooded)
	without, with := baseline[len(baseline)/2], flooded[len(flooded)/2]
	t.Logf("%d tasks; %.0f tasks per second without the flood and %.0f with it (medians of %.0f and %.0f): %.1f %%",
		enqueued.Load(), without, with, baseline, flooded, 100*with/without)
	perCall := float64(want) / float64(janitorBroker.calls.Load()+workerBroker.calls.Load())
	t.Logf("%d malformed messages, %.0f per Publish call", want, perCall)
	// The number of messages per call does not depend on the load of the machine. The rates do, so they are only
	// reported.
	if with == 0 || perCall < 20 {
		t.Errorf("during the flood, the rate of healthy tasks is %.0f %%, with %.1f messages per Publish call; want more than 0 %% and at least 20", 100*with/without, perCall)
	}
	awaitOnlyQuarantined(t, w, want)
}

// awaitOnlyQuarantined waits until n messages are in the quarantine and all other AMQP queues are empty.
func awaitOnlyQuarantined(t *testing.T, w *world, n int) {
	t.Helper()
	poll(t, func() string {
		return fmt.Sprintf("the AMQP queues have %v messages, want %d in the quarantine and no others", depths(t, w), n)
	},
		func(context.Context) bool {
			found := depths(t, w)
			quarantined := found[w.Topology.Quarantine()]
			delete(found, w.Topology.Quarantine())
			for _, waiting := range found {
				if waiting > 0 {
					return false
				}
			}
			return quarantined == n
		})
}

// feed keeps the worker busy: it adds 100 tasks whenever fewer than 200 wait. stop stops the load and returns the
// number of tasks that were added.
func feed(t *testing.T, w *world, executed *executions) (enqueued *atomic.Int64, stop func() int64) {
	enqueued = new(atomic.Int64)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if enqueued.Load()-executed.total.Load() < 200 {
				w.enqueue(t, 100, holdfast.NewTask{Type: "work"})
				enqueued.Add(100)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return enqueued, func() int64 {
		cancel()
		<-done
		return enqueued.Load()
	}
}

// rate calls do and returns how many executions per second began during the call. If the call takes less than two
// seconds, rate measures for two seconds.
func rate(executed *executions, do func()) float64 {
	began, before := time.Now(), executed.total.Load()
	window := time.NewTimer(2 * time.Second)
	do()
	<-window.C
	return float64(executed.total.Load()-before) / time.Since(began).Seconds()
}

// depths returns the numbers of waiting messages by AMQP queue.
func depths(t *testing.T, w *world) map[string]int {
	t.Helper()
	names := slices.Concat(w.Topology.Queue("default"), w.Topology.HoldingQueueNames(), []string{w.Topology.Rescue(), w.Topology.Quarantine()})
	found, err := w.Broker.Depths(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	ready := make(map[string]int)
	for name, depth := range found {
		ready[name] = depth.Ready
	}
	return ready
}
