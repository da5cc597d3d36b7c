package simbroker_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/sim/simbroker"
)

// slow is a network that takes a random time for everything, and lets nothing of one lane
// overtake anything else of that lane.
type slow struct {
	mu    sync.Mutex
	roads [][]func() // by lane; requests and answers have one each, in no order
	lanes map[uint64]int
	news  chan struct{}
}

func newSlow(t testing.TB) *slow {
	n := &slow{lanes: map[uint64]int{}, news: make(chan struct{}, 1)}
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
		case <-n.news:
		case <-ctx.Done():
			return
		}
	}
}

// choose takes the first frame of a random road that has one.
func (n *slow) choose() (effect func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.roads) == 0 {
		return nil
	}
	start := rand.IntN(len(n.roads))
	for i := range n.roads {
		road := &n.roads[(start+i)%len(n.roads)]
		if len(*road) > 0 {
			effect, *road = (*road)[0], (*road)[1:]
			return effect
		}
	}
	n.roads = n.roads[:0]
	clear(n.lanes)
	return nil
}

func (n *slow) add(road int, effect func()) {
	if road < 0 {
		n.roads = append(n.roads, []func(){effect})
	} else {
		n.roads[road] = append(n.roads[road], effect)
	}
	select {
	case n.news <- struct{}{}:
	default:
	}
}

func (n *slow) Post(lane uint64, step simbroker.Step, effect func()) {
	_ = step.Note()
	n.mu.Lock()
	defer n.mu.Unlock()
	road, known := n.lanes[lane]
	if !known {
		road = -1
		n.lanes[lane] = len(n.roads)
	}
	n.add(road, effect)
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
