package benchmarks

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
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
// while another topic has many tasks, which end at once or take long.
func BenchmarkFirstOfTopic(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			for b.Loop() {
				for _, flood := range []string{"", "noop", "slow"} {
					s := fixtures(b, backend, 1)[0]
					starts := s.firstStarts(b, flood, *topicFlood, *topicFirsts)
					for _, q := range []float64{0.5, 0.99} {
						b.ReportMetric(1000*quantile(starts, q), fmt.Sprintf("%s-p%.0f-ms", map[string]string{"": "idle"}[flood]+flood, 100*q))
					}
				}
				b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
			}
		})
	}
}

// firstStarts stores n tasks of a type in one topic, unless the type is empty. Then it stores the first tasks of other
// topics, and returns the seconds until each has started.
func (s *txFixture) firstStarts(b *testing.B, flood string, n, firsts int) (starts []float64) {
	b.Helper()
	if flood != "" {
		tasks := slices.Repeat([]holdfast.NewTask{{Type: flood, Topic: "flood"}}, n)
		for part := range slices.Chunk(tasks, 1000) {
			if _, err := s.producer.EnqueueMany(b.Context(), part); err != nil {
				b.Fatal(err)
			}
		}
	}
	for i := range firsts {
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
