package simbroker_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

// slow is a network that takes a random time for every frame, and keeps the order of the frames of each link.
type slow struct {
	mu     sync.Mutex
	lines  [][]func() // one for each link, request and answer
	links  map[uint64]int
	wakeup chan struct{}
}

func newSlow(t testing.TB) *slow {
	n := &slow{links: map[uint64]int{}, wakeup: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { n.run(ctx) })
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	return n
}

func (n *slow) run(ctx context.Context) {
	for {
		effect := n.choose()
		if effect != nil {
			effect()
			if rand.IntN(8) == 0 {
				time.Sleep(time.Duration(rand.IntN(50)) * time.Microsecond)
			}
			continue
		}
		select {
		case <-n.wakeup:
		case <-ctx.Done():
			return
		}
	}
}

// choose takes the first frame of a random line that has one.
func (n *slow) choose() (effect func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.lines) == 0 {
		return nil
	}
	start := rand.IntN(len(n.lines))
	for i := range n.lines {
		line := &n.lines[(start+i)%len(n.lines)]
		if len(*line) > 0 {
			effect, *line = (*line)[0], (*line)[1:]
			return effect
		}
	}
	n.lines = n.lines[:0]
	clear(n.links)
	return nil
}

func (n *slow) add(line int, effect func()) {
	if line < 0 {
		n.lines = append(n.lines, []func(){effect})
	} else {
		n.lines[line] = append(n.lines[line], effect)
	}
	select {
	case n.wakeup <- struct{}{}:
	default:
	}
}

func (n *slow) Post(link uint64, step simbroker.Step, effect func()) {
	_ = step.Note()
	n.mu.Lock()
	defer n.mu.Unlock()
	line, known := n.links[link]
	if !known {
		line = -1
		n.links[link] = len(n.lines)
	}
	n.add(line, effect)
}

func (n *slow) Call(ctx context.Context, step simbroker.Step, effect func(simbroker.Fate)) error {
	_ = step.Note()
	done := make(chan struct{})
	n.mu.Lock()
	n.add(-1, func() {
		effect(simbroker.Fine())
		n.mu.Lock()
		defer n.mu.Unlock()
		n.add(-1, func() { close(done) })
	})
	n.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
