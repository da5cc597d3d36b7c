package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// errPaused is the state of an intake whose queue is paused.
var errPaused = errors.New("a person has paused the queue")

// pausedQueues are the queues that were paused at the latest renewal. The zero value has none.
type pausedQueues struct {
	mu      sync.Mutex
	names   []string
	changed chan struct{} // closed at the next change; nil if no intake waits
}

// set replaces the paused queues.
func (p *pausedQueues) set(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(p.names, names) {
		return
	}
	p.names = names
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// look reports whether the queue is paused, and returns a channel that is closed at the next change.
func (p *pausedQueues) look(queue string) (paused bool, change <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return slices.Contains(p.names, queue), p.changed
}

// awaitOpen waits until the queue is not paused or ctx is done.
func (p *pausedQueues) awaitOpen(ctx context.Context, queue string) {
	for {
		paused, change := p.look(queue)
		if !paused {
			return
		}
		select {
		case <-change:
		case <-ctx.Done():
			return
		}
	}
}

// whileOpen returns a context that ends when the queue is paused or parent ends. The caller must call stop, which waits
// for the goroutine of whileOpen to end.
func (p *pausedQueues) whileOpen(parent context.Context, queue string) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			paused, change := p.look(queue)
			if paused {
				cancel(errPaused)
				return
			}
			select {
			case <-change:
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		watcher.Wait()
	}
}
