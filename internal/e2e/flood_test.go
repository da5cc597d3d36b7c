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
	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/janitor"
)

// rubbish are messages no queue takes: of every kind of wrong, and none of them is one of ours.
func rubbish() [][]byte {
	numbers := `{"v":1,"t":[[%s,%s]],"run":%s,"page":%s,"rounds":%s}`
	bodies := []string{
		"", "hello", "null", "[]", "\x00\x01\xff\xfe", `{"v":1}`, `{"v":99,"t":[[1,1]]}`, `{"v":1,"t":[[1,1]],"x":1}`, `{"v":1,"t":[[1,1]]} {}`,
		`{"v":1,"t":[[1,1],[2,`, `{"v":1,"t":[]}`, `{"v":1,"lane":"default"}`, `{"v":1,"lane":"default","sentinel":"soon"}`,
		`{"v":1,"lane":"default","sentinel":"9999-12-31T23:59:59-23:00"}`, strings.Repeat("[", 10_000), `{"v":1,"t":[` + strings.Repeat("[1,1],", 1000) + `[1,1]]}`,
		`{"v":1,"` + strings.Repeat("k", 200_000) + `":1}`, // a reason longer than a frame, if it were told in full
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

// flood is n malformed messages for a queue, which besides rubbish are what belongs elsewhere.
func flood(w *world, queue string, n int) []broker.Message {
	kinds := rubbish()
	switch {
	case strings.Contains(queue, ".hold."):
		kinds = append(kinds, []byte(`{"v":1,"t":[[1,1]]}`), []byte(`{"v":1,"lane":"default","sentinel":"2026-07-01T12:00:00Z"}`))
	case strings.Contains(queue, ".main."), strings.Contains(queue, ".again."):
		kinds = append(kinds, []byte(`{"v":1,"t":[[1,1]],"run":1,"page":1}`))
	}
	const large = 2 // of bodies of some size only a few: they are to harm the program, not the machine
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

// quarantined counts what a janitor or worker puts aside.
type quarantined struct{ n atomic.Int64 }

func (q *quarantined) Observe(o holdfast.Observation) {
	if o.Kind == holdfast.ObservedQuarantined {
		q.n.Add(int64(o.Count))
	}
}

// await waits until n are put aside.
func (q *quarantined) await(t *testing.T, n int) {
	t.Helper()
	poll(t, 3*time.Minute, func() string { return fmt.Sprintf("%d of %d are put aside", q.n.Load(), n) },
		func(context.Context) bool { return q.n.Load() >= int64(n) })
}

// counting counts the calls that put something into a queue.
type counting struct {
	broker.Broker
	queue string
	calls atomic.Int64
}

func (c *counting) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	if slices.ContainsFunc(messages, func(m broker.Message) bool { return m.Queue == c.queue }) {
		c.calls.Add(1)
	}
	return c.Broker.Publish(ctx, messages)
}

// Ten thousand malformed messages straight into every queue, or on servers, which take their time for them, half as many:
// every one of them ends in the quarantine, nothing else does, and the tasks beside them go on. The test does not run beside
// others: it reports the rate of healthy tasks with and without the flood.
func TestAFloodOfMalformedMessagesIsPutAside(t *testing.T) {
	slow.Skip(t)
	t.Run("servers", func(t *testing.T) { aFloodOfMalformedMessagesIsPutAside(t, newWorld(t), 5_000, 1) })
	t.Run("embedded", func(t *testing.T) { aFloodOfMalformedMessagesIsPutAside(t, newFile(t), 10_000, 3) })
}

func aFloodOfMalformedMessagesIsPutAside(t *testing.T, w *world, perQueue, rounds int) {
	perRound := (perQueue + rounds - 1) / rounds
	var byJanitor, byWorker quarantined
	var executed runs
	janitors := &counting{Broker: w.Broker, queue: w.Topology.Quarantine()}
	workers := &counting{Broker: w.Broker, queue: w.Topology.Quarantine()}
	w.runJanitor(t, w.Backend, func(o *janitor.Options) { o.Observer, o.Broker = &byJanitor, janitors })
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency, o.Observer, o.Broker = 50, &byWorker, workers },
		map[string]consumer.Handler{"work": executed.handler(200 * time.Millisecond)})
	enqueued, stop := feed(t, w, &executed)
	poll(t, 30*time.Second, func() string { return "nothing runs" }, func(context.Context) bool { return executed.total.Load() > 200 })

	lane, others := w.Topology.Lane("default"), append(w.Topology.Holds(), w.Topology.Rescue())
	want := rounds * perRound * (len(lane) + len(others))
	calm := []float64{rate(&executed, func() {})}
	var beside []float64
	for round := 1; round <= rounds; round++ {
		beside = append(beside, rate(&executed, func() {
			began := time.Now()
			for _, queue := range slices.Concat(lane, others) {
				if _, err := w.Broker.Publish(t.Context(), flood(w, queue, perRound)); err != nil {
					t.Fatal(err)
				}
			}
			published := time.Since(began)
			byWorker.await(t, round*perRound*len(lane))
			cleared := time.Since(began)
			byJanitor.await(t, round*perRound*len(others))
			t.Logf("published in %s, the lane is clear after %s, all after %s", published, cleared, time.Since(began))
		}))
		calm = append(calm, rate(&executed, func() {}))
	}
	total := int(stop())
	w.awaitCount(t, 60*time.Second, holdfast.Done, int64(total))
	executed.checkOnce(t)
	slices.Sort(calm)
	slices.Sort(beside)
	without, with := calm[len(calm)/2], beside[len(beside)/2]
	t.Logf("%d tasks; a second did %.0f without and %.0f with the flood (medians of %.0f and %.0f): %.1f %%",
		enqueued.Load(), without, with, calm, beside, 100*with/without)
	each := float64(want) / float64(janitors.calls.Load()+workers.calls.Load())
	t.Logf("%d malformed messages, %.0f for each wait for the broker", want, each)
	// A busy machine does not change what a message costs. It changes how fast the others are, so that is only reported.
	if with == 0 || each < 20 {
		t.Errorf("the tasks beside the flood are slowed to %.0f %%, with %.1f messages for each wait", 100*with/without, each)
	}
	awaitNothingBut(t, w, want)
}

// awaitNothingBut waits until n messages are in the quarantine and nothing is anywhere else.
func awaitNothingBut(t *testing.T, w *world, n int) {
	t.Helper()
	poll(t, 30*time.Second, func() string {
		return fmt.Sprintf("the queues hold %v, want %d in the quarantine and nothing else", depths(t, w), n)
	},
		func(context.Context) bool {
			held := depths(t, w)
			here := held[w.Topology.Quarantine()]
			delete(held, w.Topology.Quarantine())
			for _, waiting := range held {
				if waiting > 0 {
					return false
				}
			}
			return here == n
		})
}

// feed keeps the worker busy: there are always some tasks waiting, and never many. stop ends it and returns how
// many there were.
func feed(t *testing.T, w *world, executed *runs) (enqueued *atomic.Int64, stop func() int64) {
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

// rate is how many executions a second begin in a window of at least two seconds in which something is done.
func rate(executed *runs, do func()) float64 {
	began, before := time.Now(), executed.total.Load()
	window := time.NewTimer(2 * time.Second)
	do()
	<-window.C
	return float64(executed.total.Load()-before) / time.Since(began).Seconds()
}

// depths are the messages that wait, by queue.
func depths(t *testing.T, w *world) map[string]int {
	t.Helper()
	names := slices.Concat(w.Topology.Lane("default"), w.Topology.Holds(), []string{w.Topology.Rescue(), w.Topology.Quarantine()})
	found, err := w.Broker.Depths(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	held := make(map[string]int)
	for name, depth := range found {
		held[name] = depth.Ready
	}
	return held
}
