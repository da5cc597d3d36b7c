package main

import (
	"context"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// progress contains how many tasks a worker has started, and when it started the first and the last of them.
type progress struct {
	Done        int
	First, Last time.Time
}

// countingQueue is a queue that counts the tasks of its worker. Its method progress is safe for concurrent use.
type countingQueue struct {
	load.Queue
	mu     sync.Mutex
	latest progress
}

func (q *countingQueue) Work(ctx context.Context, handle func([]byte) error) error {
	return q.Queue.Work(ctx, func(payload []byte) error {
		q.count()
		return handle(payload)
	})
}

func (q *countingQueue) count() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.latest.Last = time.Now()
	if q.latest.Done == 0 {
		q.latest.First = q.latest.Last
	}
	q.latest.Done++
}

func (q *countingQueue) progress() progress {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.latest
}
