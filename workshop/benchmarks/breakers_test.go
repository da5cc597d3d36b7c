package benchmarks

import (
	"encoding/json"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

var (
	deadTargets = flag.Int("dead.targets", 99, "BenchmarkDeadTarget: number of targets that work")
	deadTasks   = flag.Int("dead.tasks", 330, "BenchmarkDeadTarget: number of tasks for each target in a round")
	deadRounds  = flag.Int("dead.rounds", 3, "BenchmarkDeadTarget: number of rounds, each with all conditions")
	deadRate    = flag.Int("dead.rate", 500, "BenchmarkDeadTarget: number of tasks a second for all targets together")
)

// BenchmarkDeadTarget measures the time from Enqueue to the request at targets that work: alone, beside one that
// refuses connections, and beside one that never answers. The conditions have separate stores and take turns.
func BenchmarkDeadTarget(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			conditions := []*deadCondition{{name: "alone"}, {name: "refusing", dead: refusing(b)}, {name: "silent", dead: silent(b)}}
			for i, fixture := range fixtures(b, backend, len(conditions), "HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8") {
				conditions[i].txFixture = fixture
			}
			for b.Loop() {
				for round := range *deadRounds {
					for i := range conditions {
						condition := conditions[(i+round)%len(conditions)]
						condition.waits = append(condition.waits, condition.deliver(b, condition.dead)...)
					}
				}
				for _, condition := range conditions {
					b.ReportMetric(1000*quantile(condition.waits, 0.5), condition.name+"-p50-ms")
					b.ReportMetric(1000*quantile(condition.waits, 0.99), condition.name+"-p99-ms")
				}
				b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
			}
		})
	}
}

type deadCondition struct {
	*txFixture
	name  string
	dead  string // the URL of the target that does not work, or ""
	waits []float64
}

// refusing returns the URL of a port on which no process listens.
func refusing(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
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

// deliver stores tasks for targets that work, and for the URL unless it is empty, in random order. It returns the
// seconds from each Enqueue to the request at a target that works.
func (s *txFixture) deliver(b *testing.B, url string) (waits []float64) {
	b.Helper()
	var mu sync.Mutex
	requested := make(map[holdfast.TaskID]time.Time)
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
		b.Cleanup(server.Close)
		urls[i] = server.URL
	}
	if url != "" {
		urls = append(urls, url)
	}
	stored := make(map[holdfast.TaskID]time.Time)
	tick := time.NewTicker(time.Second / time.Duration(*deadRate))
	defer tick.Stop()
	for range *deadTasks * len(urls) {
		target := urls[rand.IntN(len(urls))]
		payload, err := json.Marshal(map[string]any{"url": target, "body": "hello"})
		if err != nil {
			b.Fatal(err)
		}
		<-tick.C
		began := time.Now()
		result, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: holdfast.TypeHTTP, Payload: payload})
		if err != nil {
			b.Fatal(err)
		}
		if target != url {
			stored[result.ID] = began
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		mu.Lock()
		n := len(requested)
		mu.Unlock()
		if n >= len(stored) {
			break
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d requests arrived", n, len(stored))
		}
	}
	for id, began := range stored {
		waits = append(waits, requested[id].Sub(began).Seconds())
	}
	return waits
}
