package load

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/backoff"
)

// memory is a queue in memory. Its operations take exact durations on the clock of a synctest bubble.
type memory struct {
	fills, puts, starts, runs time.Duration // durations of a Fill, of a Put, of the start of a worker, and of a task

	failFill func(n int) error               // returns the error of the Fill number n, from 0 on; may be nil
	failPut  func(n int) error               // returns the error of the Put number n, from 0 on; may be nil
	lose     func(n int) bool                // reports whether the task number n is lost; may be nil
	work     func(ctx context.Context) error // replaces Work if it is not nil

	mu      sync.Mutex
	waiting []task
	more    chan struct{} // closed and replaced when a task is stored
	batches []int         // numbers of tasks in the calls of Fill
	calls   int           // number of calls of Put
	stored  int           // number of stored tasks, with the lost ones
	most    int           // highest number of waiting tasks
}

type task struct {
	payload []byte
	due     time.Time
}

func (m *memory) Fill(ctx context.Context, payloads [][]byte) error {
	m.mu.Lock()
	n := len(m.batches)
	m.batches = append(m.batches, len(payloads))
	m.mu.Unlock()
	if m.failFill != nil {
		if err := m.failFill(n); err != nil {
			return err
		}
	}
	if err := backoff.Sleep(ctx, m.fills); err != nil {
		return err
	}
	m.store(payloads, time.Now())
	return nil
}

func (m *memory) Put(ctx context.Context, payload []byte, delay time.Duration) error {
	due := time.Now().Add(delay)
	if delay < 0 {
		return errors.New("the delay is negative")
	}
	m.mu.Lock()
	n := m.calls
	m.calls++
	m.mu.Unlock()
	if m.failPut != nil {
		if err := m.failPut(n); err != nil {
			return err
		}
	}
	if err := backoff.Sleep(ctx, m.puts); err != nil {
		return err
	}
	m.store([][]byte{payload}, due)
	return nil
}

func (m *memory) store(payloads [][]byte, due time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range payloads {
		if m.lose == nil || !m.lose(m.stored) {
			m.waiting = append(m.waiting, task{p, due})
		}
		m.stored++
	}
	m.most = max(m.most, len(m.waiting))
	if m.more != nil {
		close(m.more)
		m.more = nil
	}
}

func (m *memory) Work(ctx context.Context, handle func([]byte) error) error {
	if m.work != nil {
		return m.work(ctx)
	}
	if backoff.Sleep(ctx, m.starts) != nil {
		return nil
	}
	for ctx.Err() == nil {
		payload, more := m.next()
		if payload == nil {
			select {
			case <-more:
			case <-time.After(time.Millisecond): // a task may have become due
			case <-ctx.Done():
			}
			continue
		}
		_ = backoff.Sleep(context.WithoutCancel(ctx), m.runs)
		if err := handle(payload); err != nil {
			return err
		}
	}
	return nil
}

// next removes the first task that is due and returns its payload. If no task is due, it returns a channel that is
// closed when a task is stored.
func (m *memory) next() (payload []byte, more <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if i := slices.IndexFunc(m.waiting, func(t task) bool { return !t.due.After(now) }); i >= 0 {
		payload = m.waiting[i].payload
		m.waiting = slices.Delete(m.waiting, i, i+1)
		return payload, nil
	}
	if m.more == nil {
		m.more = make(chan struct{})
	}
	return nil, m.more
}
