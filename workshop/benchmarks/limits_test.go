package benchmarks

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var (
	limitRounds  = flag.Int("limits.rounds", 5, "BenchmarkBlockedTasks: number of rounds, each without and with blocked tasks")
	limitBlocked = flag.Int("limits.blocked", 10_000, "BenchmarkBlockedTasks: number of blocked tasks")
	limitKeys    = flag.Int("limits.keys", 1, "BenchmarkBlockedTasks: number of keys of the blocked tasks, each with a limit of its own")
	limitStarts  = flag.Int("limits.starts", 200, "BenchmarkBlockedTasks: number of starts to measure in each condition and round")
	limitTasks   = flag.Int("limits.tasks", 20_000, "BenchmarkGatesPerTask: number of tasks in each condition and round")
)

var benchmarker = store.Actor{Name: "benchmark", Surface: store.CommandLine}

func (s *txFixture) setLimit(b *testing.B, l store.Limit) {
	b.Helper()
	if _, err := s.backend.Store.SetLimit(b.Context(), benchmarker, l.Change()); err != nil {
		b.Fatal(err)
	}
}

// fixtures returns n fixtures with stores of their own.
func fixtures(b *testing.B, backend string, n int, settings ...string) []*txFixture {
	b.Helper()
	all := make([]*txFixture, n)
	for i := range all {
		env := append(os.Environ(), "HOLDFAST_DATABASE_URL=sqlite:"+filepath.Join(b.TempDir(), "holdfast.db"), "HOLDFAST_AMQP_URLS=inproc:")
		if backend == "servers" {
			if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
				b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
			}
			env = isolatedEnv(b, i)
		}
		all[i] = newTxFixture(b, append(append(env, "HOLDFAST_LISTEN="), settings...))
	}
	return all
}

// BenchmarkBlockedTasks measures the time from Enqueue to the start of single tasks, without and with many tasks of
// another type that a limit blocks. Both conditions are measured in each round.
func BenchmarkBlockedTasks(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			fixtures := fixtures(b, backend, 2)
			for b.Loop() {
				fixtures[1].block(b, *limitBlocked, *limitKeys)
				var starts [2][]float64
				for round := range *limitRounds {
					for i := range fixtures {
						which := (i + round) % len(fixtures)
						starts[which] = append(starts[which], fixtures[which].singles(b)...)
					}
				}
				for i, name := range []string{"without", "with"} {
					b.ReportMetric(1000*quantile(starts[i], 0.5), name+"-p50-ms")
					b.ReportMetric(1000*quantile(starts[i], 0.99), name+"-p99-ms")
				}
				b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
			}
		})
	}
}

// block stores n tasks with a limit that lets one of each key start, and waits until the others are blocked.
func (s *txFixture) block(b *testing.B, n, keys int) {
	b.Helper()
	s.setLimit(b, store.Limit{
		Scope: store.Scope{Subject: store.Subject{Type: "noop"}, Per: store.PerKey}, Rate: store.Rate{Count: 1, Per: 24 * time.Hour},
	})
	began := time.Now()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "noop", Key: fmt.Sprint("tenant-", i%keys)}
	}
	for part := range slices.Chunk(tasks, 1000) {
		if _, err := s.producer.EnqueueMany(b.Context(), part); err != nil {
			b.Fatal(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		counts, err := s.backend.Store.Count(b.Context(), store.Filter{Type: "noop", States: []holdfast.State{holdfast.Done}})
		if err != nil {
			b.Fatal(err)
		}
		limits, err := s.backend.Store.Limits(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if done := counts.By[holdfast.Done]; limits[0].Blocked >= min(n-keys, store.MaxCountedBlocked) && done >= int64(keys) {
			b.Logf("%d tasks have run and the others are blocked after %s", done, time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("the limits are %+v, and %v tasks have run", limits, counts.By)
		}
	}
}

// singles returns the seconds from each Enqueue to the start of its task.
func (s *txFixture) singles(b *testing.B) []float64 {
	b.Helper()
	stored := make(map[holdfast.TaskID]time.Time)
	for range *limitStarts {
		began := time.Now()
		result, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: "timed"})
		if err != nil {
			b.Fatal(err)
		}
		stored[result.ID] = began
		time.Sleep(rand.N(10 * time.Millisecond))
	}
	return s.waits(b, stored)
}

// BenchmarkGatesPerTask measures how many tasks run in a second if no, one and four limits concern each task. The
// limits allow more than a worker can do. The conditions take turns.
func BenchmarkGatesPerTask(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			s := fixtures(b, backend, 1)[0]
			types := []string{"free", "one", "four"}
			s.setLimit(b, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "one"}}, Concurrency: store.MaxConcurrency})
			for _, scope := range []store.Scope{
				{Subject: store.Subject{Type: "four"}}, {Subject: store.Subject{Type: "four"}, Per: store.PerKey},
				{Subject: store.Subject{Type: "four", Key: "tenant"}}, {Subject: store.Subject{Type: "four", Queue: holdfast.DefaultQueue}},
			} {
				s.setLimit(b, store.Limit{Scope: scope, Concurrency: store.MaxConcurrency})
			}
			rates := make(map[string][]float64)
			for b.Loop() {
				for round := range *limitRounds {
					for i := range types {
						name := types[(i+round)%len(types)]
						rates[name] = append(rates[name], s.throughput(b, name))
					}
				}
				for _, name := range types {
					b.ReportMetric(quantile(rates[name], 0.5), name+"/s")
				}
				b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
			}
		})
	}
}

// throughput stores tasks of a type and returns how many of them ran in a second, from the first Enqueue to the last
// start.
func (s *txFixture) throughput(b *testing.B, taskType string) float64 {
	b.Helper()
	tasks := make([]holdfast.NewTask, *limitTasks)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: taskType, Key: "tenant"}
	}
	began := time.Now()
	for part := range slices.Chunk(tasks, 1000) {
		if _, err := s.producer.EnqueueMany(b.Context(), part); err != nil {
			b.Fatal(err)
		}
	}
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		n := len(s.started)
		if n >= len(tasks) {
			clear(s.started)
			s.mu.Unlock()
			return float64(len(tasks)) / time.Since(began).Seconds()
		}
		s.mu.Unlock()
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d tasks of type %s have run", n, len(tasks), taskType)
		}
	}
}
