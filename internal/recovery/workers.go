package recovery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// shared has several workers run tasks of one large call, one in ten of which is slow, and measures for how long a worker had
// nothing to do while a task waited.
func shared(ctx context.Context, p *place) (figures []Figure, err error) {
	const executors, tasks, slowOnes = 8, 600, 10 // one in slowOnes
	done := int64(0)
	for _, workers := range []int{2, 4} {
		f := Figure{Name: "Tasks are shared fairly", What: fmt.Sprintf("longest time that one of %d workers was idle while a task of a call of %d waited", workers, tasks), Unit: seconds}
		for range p.o.Rounds {
			idle := newIdleness(workers)
			c := p.crew(ctx)
			err := c.janitor()
			for i := range workers {
				if err == nil {
					err = c.worker(fmt.Sprint("worker ", i), "mixed", executors, func(ctx context.Context, task holdfast.Task) error {
						defer idle.begins(i)()
						d := 5 * time.Millisecond
						if task.ID%slowOnes == 0 {
							d = 800 * time.Millisecond
						}
						return sleep(ctx, d)
					})
				}
			}
			if err == nil {
				err = c.store("mixed", tasks)
				idle.reset() // nothing waited before it was stored
			}
			if done += tasks; err == nil {
				err = p.awaitDone(ctx, done)
			}
			longest := idle.longest()
			if ending := c.end(); err == nil {
				err = ending
			}
			if err != nil {
				return nil, err
			}
			f.Samples = append(f.Samples, longest.Seconds())
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// idleness notes how long workers had nothing to do when a task began, which had waited until then.
type idleness struct {
	mu      sync.Mutex
	running []int
	since   []time.Time
	most    time.Duration
}

func newIdleness(workers int) *idleness {
	i := &idleness{running: make([]int, workers), since: make([]time.Time, workers)}
	i.reset()
	return i
}

// reset lets the idleness of all workers begin now.
func (i *idleness) reset() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for worker := range i.since {
		i.since[worker] = time.Now()
	}
	i.most = 0
}

// begins notes that a worker begins a task; the returned function, that the task has ended.
func (i *idleness) begins(worker int) (ends func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for other, n := range i.running {
		if n == 0 {
			i.most = max(i.most, time.Since(i.since[other]))
		}
	}
	i.running[worker]++
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.running[worker]--; i.running[worker] == 0 {
			i.since[worker] = time.Now()
		}
	}
}

func (i *idleness) longest() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.most
}

// saturated has a worker run more tasks than it has executors and measures how long an executor waits for its next task.
func saturated(ctx context.Context, p *place) ([]Figure, error) {
	const executors, tasks, each = 10, 200, 300 * time.Millisecond
	var mu sync.Mutex
	var free []time.Time // when executors became free that have no task since
	var waits []float64
	begun := 0
	c := p.crew(ctx)
	err := c.janitor()
	if err == nil {
		err = c.worker("worker", "work", executors, func(ctx context.Context, _ holdfast.Task) error {
			mu.Lock()
			if begun++; len(free) > 0 {
				waits = append(waits, time.Since(free[0]).Seconds())
				free = free[1:]
			}
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				if begun < tasks { // else no task waits
					free = append(free, time.Now())
				}
			}()
			return sleep(ctx, each)
		})
	}
	for round := range p.o.Rounds {
		mu.Lock()
		begun, free = 0, nil
		mu.Unlock()
		if err == nil {
			err = c.store("work", tasks)
		}
		if err == nil {
			err = p.awaitDone(ctx, int64(tasks*(round+1)))
		}
	}
	if ending := c.end(); err == nil {
		err = ending
	}
	return []Figure{{Name: "A saturated worker stays busy", What: fmt.Sprintf("end of a task, until its executor has another one (%d executors, tasks of %s)", executors, each), Unit: seconds, Samples: waits}}, err
}

// flooded publishes malformed messages into every queue at once, and compares the rate of healthy tasks meanwhile with that
// before and after.
func flooded(ctx context.Context, p *place) ([]Figure, error) {
	const window = 2 * time.Second
	loss := Figure{Name: "Malformed messages do not stop the others", What: fmt.Sprintf("share of the healthy rate that is lost while janitors quarantine %d malformed messages in every queue", p.o.Flood), Unit: percent}
	took := Figure{Name: loss.Name, What: fmt.Sprintf("begin of the flood (%d messages in every queue), until all are in the quarantine", p.o.Flood), Unit: seconds}
	var executed atomic.Int64
	c := p.crew(ctx)
	err := c.janitor()
	if err == nil {
		err = c.worker("worker", "work", 50, func(ctx context.Context, _ holdfast.Task) error {
			executed.Add(1)
			return sleep(ctx, 200*time.Millisecond)
		})
	}
	if err == nil {
		c.run(func(ctx context.Context) error { return feed(ctx, c, &executed) })
		err = poll(ctx, patience, func(context.Context) (bool, error) { return executed.Load() > 200, nil })
	}
	if err == nil {
		err = p.rounds(ctx, window, &executed, &loss, &took)
	}
	if ending := c.end(); err == nil {
		err = ending
	}
	return []Figure{loss, took}, err
}

func (p *place) rounds(ctx context.Context, window time.Duration, executed *atomic.Int64, loss, took *Figure) error {
	queues := slices.Concat(p.Topology.Lane(holdfast.DefaultLane), p.Topology.Holds(), []string{p.Topology.Rescue()})
	rate := func(do func() error) (float64, error) {
		began, before := time.Now(), executed.Load()
		if err := do(); err != nil {
			return 0, err
		}
		if err := sleep(ctx, window-time.Since(began)); err != nil {
			return 0, err
		}
		return float64(executed.Load()-before) / time.Since(began).Seconds(), nil
	}
	nothing := func() error { return nil }
	calm, err := rate(nothing)
	if err != nil {
		return err
	}
	for round := 1; round <= p.o.Rounds; round++ {
		beside, err := rate(func() error {
			began := time.Now()
			for _, queue := range queues {
				if _, err := p.Broker.Publish(ctx, malformed(queue, p.o.Flood)); err != nil {
					return err
				}
			}
			err := poll(ctx, 5*patience, func(ctx context.Context) (bool, error) {
				depths, err := p.Broker.Depths(ctx, []string{p.Topology.Quarantine()})
				return depths[p.Topology.Quarantine()].Ready >= round*p.o.Flood*len(queues), err
			})
			took.Samples = append(took.Samples, time.Since(began).Seconds())
			return err
		})
		if err != nil {
			return err
		}
		after, err := rate(nothing)
		if err != nil {
			return err
		}
		loss.Samples = append(loss.Samples, max(0, 100*(1-beside/((calm+after)/2))))
		calm = after
	}
	return nil
}

// feed keeps a worker busy: some tasks always wait, and never many.
func feed(ctx context.Context, c *crew, executed *atomic.Int64) error {
	stored := int64(0)
	for ctx.Err() == nil {
		if stored-executed.Load() < 200 {
			if err := c.store("work", 100); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			stored += 100
		}
		_ = sleep(ctx, 10*time.Millisecond)
	}
	return nil
}

// malformed are n messages that no queue takes.
func malformed(queue string, n int) []broker.Message {
	bodies := []string{"", "hello", "null", `{"v":1}`, `{"v":99,"t":[[1,1]]}`, `{"v":1,"t":[[-1,1]]}`, `{"v":1,"t":[[1,1]],"x":1}`, `{"v":1,"t":[[1,1]]} {}`, strings.Repeat("[", 1000)}
	messages := make([]broker.Message, n)
	for i := range messages {
		messages[i] = broker.Message{Queue: queue, Body: []byte(bodies[i%len(bodies)])}
	}
	return messages
}
