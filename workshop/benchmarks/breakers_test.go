package benchmarks

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
)

var (
	deadTargets = flag.Int("dead.targets", 99, "BenchmarkDeadTarget: number of targets that work")
	deadTasks   = flag.Int("dead.tasks", 330, "BenchmarkDeadTarget: number of tasks for each target in a round")
	deadRounds  = flag.Int("dead.rounds", 3, "BenchmarkDeadTarget: number of rounds, each with all conditions")
	deadRate    = flag.Int("dead.rate", 500, "BenchmarkDeadTarget: tasks a second for the targets that work, all together")
	deadCallers = flag.Int("dead.callers", 4, "BenchmarkDeadTarget: concurrent callers of Enqueue")
)

// BenchmarkDeadTarget measures the time from Enqueue to the request at targets that work: alone, beside one that
// refuses connections, and beside one that never answers. The conditions have separate stores and take turns. A
// percentile is the median of those of the rounds. A ratio is the median of the ratios of the rounds: the percentile
// beside the dead target to the one alone, in the same round. Each round logs its figures.
//
// In each round the dead target is a new one, whose breaker has not tripped yet. The tasks for the dead target of the
// round before are cancelled. A round takes three times the number of tasks for the targets that work, divided by the
// rate.
func BenchmarkDeadTarget(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			conditions := []*deadCondition{{name: "alone"}, {name: "refusing", dead: refusing}, {name: "silent", dead: silent}}
			for i, fixture := range fixtures(b, backend, len(conditions), "HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8") {
				conditions[i].txFixture = fixture
			}
			for b.Loop() {
				for round := range *deadRounds {
					for i := range conditions {
						conditions[(i+round)%len(conditions)].measure(b, round)
					}
				}
				for _, condition := range conditions {
					condition.report(b, conditions[0])
				}
				b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
			}
		})
	}
}

// deadCondition is a store with or without a dead target. It has one sample of each percentile per round, in seconds.
type deadCondition struct {
	*txFixture
	name     string
	dead     func(*testing.B) string // starts a target that does not work, and returns its URL; nil means none
	p50, p99 []float64
}

// measure makes the measurement of one round.
func (c *deadCondition) measure(b *testing.B, round int) {
	b.Helper()
	url, left := "", int64(0)
	if c.dead != nil {
		url = c.dead(b)
	}
	began := time.Now()
	waits := c.deliver(b, url)
	rate := float64(len(waits)) / time.Since(began).Seconds()
	p50, p99 := quantile(waits, 0.5), quantile(waits, 0.99)
	c.p50, c.p99 = append(c.p50, p50), append(c.p99, p99)
	if c.dead != nil {
		left = c.cancelOpen(b)
	}
	b.Logf("round %d, %-8s p50 %.1f ms, p99 %.1f ms, %d requests, %.0f/s, %d tasks cancelled",
		round+1, c.name, 1000*p50, 1000*p99, len(waits), rate, left)
}

// report reports the medians of the rounds, and those of the ratios to the condition without a dead target.
func (c *deadCondition) report(b *testing.B, alone *deadCondition) {
	b.Helper()
	for _, percentile := range []struct {
		name         string
		waits, alone []float64
	}{{"p50", c.p50, alone.p50}, {"p99", c.p99, alone.p99}} {
		b.ReportMetric(1000*quantile(percentile.waits, 0.5), fmt.Sprintf("%s-%s-ms", c.name, percentile.name))
		if c == alone {
			continue
		}
		var ratios []float64
		for round, waits := range percentile.waits {
			ratios = append(ratios, waits/percentile.alone[round])
		}
		b.ReportMetric(quantile(ratios, 0.5), fmt.Sprintf("%s-%s-ratio", c.name, percentile.name))
	}
}

// cancelOpen cancels the open tasks, most of which are those of a dead target, and returns their number when all have
// ended.
func (c *deadCondition) cancelOpen(b *testing.B) int64 {
	b.Helper()
	open := store.Filter{Type: holdfast.TypeHTTP, States: []holdfast.State{holdfast.Ready, holdfast.Running}}
	cancelled := int64(0)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		plan, err := c.backend.PlanOperation(b.Context(), operate.Request{Action: store.ActionCancel, Filter: open, Rate: -1})
		if err != nil {
			b.Fatal(err)
		}
		if plan.Operation.Total == 0 {
			return cancelled
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d tasks of the dead target are open", plan.Operation.Total)
		}
		operation, err := c.backend.StartOperation(b.Context(), benchmarker, plan.Operation, false)
		if err == nil {
			operation, err = c.backend.AwaitOperation(b.Context(), operation.ID, func(store.Operation) {})
		}
		if err != nil {
			b.Fatal(err)
		}
		cancelled += operation.Changed
	}
}

// refusing returns the URL of a port on which no process listens. It has another address than the targets that work, so
// that none of them gets the same port.
func refusing(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

// silent returns the URL of a target that accepts connections and never answers.
func silent(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			b.Cleanup(func() { _ = connection.Close() })
		}
	}()
	return "http://" + listener.Addr().String()
}

// deliver stores the same number of tasks for each target that works, and for the URL unless it is empty, in random
// order. It returns the seconds from each Enqueue to the request at a target that works.
func (s *txFixture) deliver(b *testing.B, url string) (waits []float64) {
	b.Helper()
	var mu sync.Mutex
	requested, stored := make(map[holdfast.TaskID]time.Time), make(map[holdfast.TaskID]time.Time)
	urls := make([]string, *deadTargets)
	for i := range urls {
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			now := time.Now()
			_, _ = io.Copy(io.Discard, r.Body)
			number, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("webhook-id"), "task_"), "_")
			if id, err := holdfast.ParseTaskID(number); err == nil {
				mu.Lock()
				defer mu.Unlock()
				requested[id] = now
			}
		}))
		defer server.Close()
		urls[i] = server.URL
	}
	working := *deadTargets * *deadTasks
	if url != "" {
		urls = append(urls, url)
	}
	targets := slices.Repeat(urls, *deadTasks)
	rand.Shuffle(len(targets), func(i, k int) { targets[i], targets[k] = targets[k], targets[i] })
	// Each target gets its tasks at the same rate in every condition.
	pause := time.Second * time.Duration(working) / time.Duration(*deadRate) / time.Duration(len(targets))
	var callers sync.WaitGroup
	var next atomic.Int64
	began := time.Now()
	for range *deadCallers {
		callers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(targets)); i = next.Add(1) - 1 {
				time.Sleep(time.Until(began.Add(time.Duration(i) * pause)))
				payload, err := json.Marshal(map[string]any{"url": targets[i], "body": "hello"})
				called := time.Now()
				var result producer.Result
				if err == nil {
					result, err = s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: holdfast.TypeHTTP, Payload: payload})
				}
				if err != nil {
					b.Error(err)
					return
				}
				if targets[i] != url {
					mu.Lock()
					stored[result.ID] = called
					mu.Unlock()
				}
			}
		})
	}
	callers.Wait()
	for deadline := time.Now().Add(time.Minute); !b.Failed(); time.Sleep(5 * time.Millisecond) {
		mu.Lock()
		n := len(requested)
		mu.Unlock()
		if n >= working {
			break
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d requests arrived", n, working)
		}
	}
	if b.Failed() {
		b.FailNow()
	}
	mu.Lock()
	defer mu.Unlock()
	for id, called := range stored {
		waits = append(waits, requested[id].Sub(called).Seconds())
	}
	return waits
}
