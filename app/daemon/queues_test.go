package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// queueSource is a store with queues and workers that counts its reads.
type queueSource struct {
	queues  []store.Queue
	gates   []store.Gate
	workers []store.Worker
	err     error
	reads   int
}

func (s *queueSource) Queues(context.Context) ([]store.Queue, error) {
	s.reads++
	return s.queues, s.err
}

func (s *queueSource) BlockedByQueue(context.Context) (store.BlockedCounts, error) {
	return store.BlockedCounts{Tasks: map[string]int64{"mail": 5}}, nil
}

func (s *queueSource) Gates(context.Context) ([]store.Gate, error) { return s.gates, nil }

func (s *queueSource) Workers(context.Context, bool) ([]store.Worker, error) { return s.workers, nil }

// The gauges of queues are read at most once in a few seconds. The age is that of tasks that could run.
func TestQueueMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &queueSource{
			queues: []store.Queue{{
				Name: "mail", Priority: holdfast.PriorityNormal, Ready: 20, Due: 10, Running: 3, Dead: 4, Parked: 1, OldestDue: 90 * time.Second,
			}},
			workers: []store.Worker{
				{WorkerInfo: store.WorkerInfo{Concurrency: 10}, Running: 3},
				{WorkerInfo: store.WorkerInfo{Concurrency: 10}, Running: 2, Draining: true},
			},
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(newQueueCollector(source))
		check := func(want ...string) {
			t.Helper()
			if got := gauges(t, registry); !slices.Equal(got, want) {
				t.Errorf("the metrics are %q, want %q", got, want)
			}
		}
		states := []string{
			"holdfast_queue_tasks normal mail blocked 5", "holdfast_queue_tasks normal mail dead 4", "holdfast_queue_tasks normal mail due 10",
			"holdfast_queue_tasks normal mail parked 1", "holdfast_queue_tasks normal mail ready 20", "holdfast_queue_tasks normal mail running 3",
		}
		workers := []string{"holdfast_workers draining 1", "holdfast_workers live 1"}
		executors := []string{"holdfast_executors busy 5", "holdfast_executors free 7"}
		all := func(age string) []string {
			return slices.Concat(executors, []string{"holdfast_queue_oldest_seconds normal mail " + age}, states, workers)
		}
		check(all("90")...)
		source.gates = []store.Gate{{Kind: store.GatePause, Subject: store.Subject{Queue: "mail"}}}
		check(all("90")...)
		if source.reads != 1 {
			t.Errorf("%d reads", source.reads)
		}
		time.Sleep(backlogAge)
		check(all("0")...) // a person has paused the queue
		source.gates = []store.Gate{{Kind: store.GatePause, Subject: store.Subject{Queue: "mail", Key: "a"}}}
		time.Sleep(backlogAge)
		check(all("90")...)
		time.Sleep(backlogAge)
		source.err = errors.New("the store does not answer")
		check()
		source.err = nil
		check(all("90")...)
	})
}
