package benchmarks

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var (
	topicRounds = flag.Int("topics.rounds", 5, "BenchmarkTopics: number of rounds")
	topicTopics = flag.Int("topics.topics", 5_000, "BenchmarkTopics: number of topics")
	topicEach   = flag.Int("topics.each", 10, "BenchmarkTopics: tasks of each topic")
	topicFlood  = flag.Int("topics.flood", 50_000, "BenchmarkFirstOfTopic: tasks of the topic that floods the queue")
	topicFirsts = flag.Int("topics.firsts", 40, "BenchmarkFirstOfTopic: topics whose first task is measured")
)

// BenchmarkTopics measures how many tasks of many topics run in a second, and how many without topics. The conditions
// take turns.
func BenchmarkTopics(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			s := fixtures(b, backend, 1)[0]
			rates := make(map[bool][]float64)
			for b.Loop() {
				for round := range *topicRounds {
					for i := range 2 {
						topical := (i+round)%2 == 1
						rates[topical] = append(rates[topical], s.runTopics(b, *topicTopics, *topicEach, topical))
					}
				}
				b.ReportMetric(quantile(rates[false], 0.5), "without/s")
				b.ReportMetric(quantile(rates[true], 0.5), "with/s")
				b.ReportMetric(quantile(rates[true], 0.5)/quantile(rates[false], 0.5), "ratio")
				b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
			}
		})
	}
}

// runTopics stores tasks of topics, the first task of each topic before the second ones. It returns how many of them
// ran in a second, from the first Enqueue to the last start.
func (s *txFixture) runTopics(b *testing.B, topics, each int, topical bool) (rate float64) {
	b.Helper()
	tasks := make([]holdfast.NewTask, topics*each)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "timed"}
		if topical {
			tasks[i].Topic = fmt.Sprint("topic-", i%topics)
		}
	}
	began := time.Now()
	for part := range slices.Chunk(tasks, 1000) {
		if _, err := s.producer.EnqueueMany(b.Context(), part); err != nil {
			b.Fatal(err)
		}
	}
	last := began
	for _, at := range s.awaitStarts(b, len(tasks)) {
		if at.After(last) {
			last = at
		}
	}
	return float64(len(tasks)) / last.Sub(began).Seconds()
}

// awaitStarts waits until n tasks have started. It deletes and returns the records of their starts.
func (s *txFixture) awaitStarts(b *testing.B, n int) map[holdfast.TaskID]time.Time {
	b.Helper()
	for deadline := time.Now().Add(20 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		started := s.started
		if len(started) >= n {
			s.started = make(map[holdfast.TaskID]time.Time)
		}
		s.mu.Unlock()
		switch {
		case len(started) >= n:
			return started
		case time.Now().After(deadline):
			b.Fatalf("%d of %d tasks have run", len(started), n)
		}
	}
}

// BenchmarkFirstOfTopic measures the time from Enqueue to the start of the first task of a topic: in an idle queue, and
// while another topic has many tasks, which end at once or take long. Each condition has a process and a store of its
// own. The benchmark also reports how many tasks of the other topic were open before the first start and after the last
// one. If none is left, the flood was too small for the number of starts.
func BenchmarkFirstOfTopic(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		for _, condition := range []struct{ name, flood string }{{"idle", ""}, {"short", "noop"}, {"long", "slow"}} {
			b.Run(backend+"/"+condition.name, func(b *testing.B) {
				s := fixtures(b, backend, 1)[0]
				for b.Loop() {
					s.storeFlood(b, condition.flood, *topicFlood)
					before := s.open(b, condition.flood)
					starts := s.firstStarts(b, *topicFirsts)
					b.ReportMetric(1000*quantile(starts, 0.5), "p50-ms")
					b.ReportMetric(1000*quantile(starts, 0.99), "p99-ms")
					if condition.flood != "" {
						b.ReportMetric(float64(before), "open-before")
						b.ReportMetric(float64(s.open(b, condition.flood)), "open-after")
					}
					b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
				}
			})
		}
	}
}

// storeFlood stores n tasks of a type in one topic, unless the type is empty.
func (s *txFixture) storeFlood(b *testing.B, flood string, n int) {
	b.Helper()
	if flood == "" {
		return
	}
	part := slices.Repeat([]holdfast.NewTask{{Type: flood, Topic: "flood"}}, 1000)
	for left := n; left > 0; left -= len(part) {
		if _, err := s.producer.EnqueueMany(b.Context(), part[:min(left, len(part))]); err != nil {
			b.Fatal(err)
		}
	}
}

// open returns the number of open tasks of a type, and 0 for the empty type.
func (s *txFixture) open(b *testing.B, kind string) int64 {
	b.Helper()
	if kind == "" {
		return 0
	}
	counts, err := s.backend.Store.Count(b.Context(), store.Filter{Type: kind, States: []holdfast.State{holdfast.Ready, holdfast.Running}})
	if err != nil {
		b.Fatal(err)
	}
	return counts.By[holdfast.Ready] + counts.By[holdfast.Running]
}

// firstStarts stores the first tasks of n topics, one after the other, and returns the seconds until each has started.
func (s *txFixture) firstStarts(b *testing.B, n int) (starts []float64) {
	b.Helper()
	for i := range n {
		time.Sleep(30 * time.Millisecond)
		began := time.Now()
		result, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: "timed", Topic: fmt.Sprint("first-", i)})
		if err != nil {
			b.Fatal(err)
		}
		starts = append(starts, s.awaitStarts(b, 1)[result.ID].Sub(began).Seconds())
	}
	return starts
}
