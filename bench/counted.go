package main

import (
	"context"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// progress is how far a worker has come. The times are those when handlers began.
type progress struct {
	Done        int
	First, Last time.Time
}

// counted is a queue that counts what its worker runs. Its progress may be read at any time.
type counted struct {
	load.Queue
	mu   sync.Mutex
	seen progress
}

func (c *counted) Work(ctx context.Context, handle func([]byte) error) error {
	return c.Queue.Work(ctx, func(payload []byte) error {
		c.count()
		return handle(payload)
	})
}

func (c *counted) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.Last = time.Now()
	if c.seen.Done == 0 {
		c.seen.First = c.seen.Last
	}
	c.seen.Done++
}

func (c *counted) progress() progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}
