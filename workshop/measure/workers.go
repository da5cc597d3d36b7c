package measure

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

// measureFairness lets several workers run the tasks of one large call, one in ten of which is slow. It measures the
// longest time that a worker was idle while a task waited.
func measureFairness(ctx context.Context, tb *testbed) (figures []Figure, err error) {
	const executors, tasks, slowOnes = 8, 600, 10 // one in slowOnes tasks is slow
	done := int64(0)
	for _, workers := range []int{2, 4} {
		f := Figure{Name: "Tasks are shared fairly", What: fmt.Sprintf("longest time that one of %d workers was idle while one of %d tasks waited", workers, tasks), Unit: seconds}
		for range tb.o.Rounds {
			idle := newIdleness(workers)
			c := tb.services(ctx)
			err := c.janitor()
			for i := range workers {
				if err == nil {
					err = c.worker(fmt.Sprint("worker ", i), "mixed", executors, func(ctx context.Context, task holdfast.Task) error {
						defer idle.begin(i)()
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
				idle.reset() // no task waited before all were stored
			}
			if done += tasks; err == nil {
				err = tb.awaitDone(ctx, done)
			}
			longest := idle.result()
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

// idleness records how long workers were idle while a task waited. It checks this whenever a task begins, because that
// task has waited until then.
type idleness struct {
	mu      sync.Mutex
	running []int       // number of running tasks by worker
	since   []time.Time // when each idle worker became idle
	longest time.Duration
}

func newIdleness(workers int) *idleness {
	i := &idleness{running: make([]int, workers), since: make([]time.Time, workers)}
	i.reset()
	return i
}

// reset deletes the record. The idle time of all idle workers then begins now.
func (i *idleness) reset() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for worker := range i.since {
		i.since[worker] = time.Now()
	}
	i.longest = 0
}

// begin records that a worker has begun a task. The returned function records the end of the task.
func (i *idleness) begin(worker int) (end func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for other, n := range i.running {
		if n == 0 {
			i.longest = max(i.longest, time.Since(i.since[other]))
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

// result returns the longest time that a worker was idle while a task waited.
func (i *idleness) result() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.longest
}

// measureSaturation gives a worker more tasks than it has executors. It measures how long an executor waits for its
// next task.
func measureSaturation(ctx context.Context, tb *testbed) ([]Figure, error) {
	const executors, tasks, each = 10, 200, 300 * time.Millisecond
	var mu sync.Mutex
	var free []time.Time // when each free executor became free, oldest first
	var waits []float64
	begun := 0
	c := tb.services(ctx)
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
				if begun < tasks { // otherwise no task waits
					free = append(free, time.Now())
				}
			}()
			return sleep(ctx, each)
		})
	}
	for round := range tb.o.Rounds {
		mu.Lock()
		begun, free = 0, nil
		mu.Unlock()
		if err == nil {
			err = c.store("work", tasks)
		}
		if err == nil {
			err = tb.awaitDone(ctx, int64(tasks*(round+1)))
		}
	}
	if ending := c.end(); err == nil {
		err = ending
	}
	return []Figure{{Name: "A saturated worker stays busy", What: fmt.Sprintf("end of a task, until its executor runs the next task (%d executors, tasks of %s)", executors, each), Unit: seconds, Samples: waits}}, err
}

// measureFlood publishes malformed messages to every AMQP queue. It compares the rate of healthy tasks during the flood
// with the rates before and after it.
func measureFlood(ctx context.Context, tb *testbed) ([]Figure, error) {
	const window = 2 * time.Second
	loss := Figure{Name: "Malformed messages do not stop healthy tasks", What: fmt.Sprintf("loss in the rate of healthy tasks while %d malformed messages in each AMQP queue are quarantined", tb.o.Flood), Unit: percent}
	took := Figure{Name: loss.Name, What: fmt.Sprintf("start of the flood (%d messages in each AMQP queue), until all are in the quarantine", tb.o.Flood), Unit: seconds}
	var executed atomic.Int64
	c := tb.services(ctx)
	err := c.janitor()
	if err == nil {
		err = c.worker("worker", "work", 50, func(ctx context.Context, _ holdfast.Task) error {
			executed.Add(1)
			return sleep(ctx, 200*time.Millisecond)
		})
	}
	if err == nil {
		c.run(func(ctx context.Context) error { return feed(ctx, c, &executed) })
		err = poll(ctx, waitLimit, func(context.Context) (bool, error) { return executed.Load() > 200, nil })
	}
	if err == nil {
		err = tb.rounds(ctx, window, &executed, &loss, &took)
	}
	if ending := c.end(); err == nil {
		err = ending
	}
	return []Figure{loss, took}, err
}

// rounds makes the rounds of measureFlood and adds one sample of each round to loss and to took.
func (tb *testbed) rounds(ctx context.Context, window time.Duration, executed *atomic.Int64, loss, took *Figure) error {
	queues := slices.Concat(tb.Topology.Queue(holdfast.DefaultQueue), tb.Topology.HoldingQueueNames(), []string{tb.Topology.Rescue()})
	rate := func(do func() error) (float64, error) {
		began, start := time.Now(), executed.Load()
		if err := do(); err != nil {
			return 0, err
		}
		if err := sleep(ctx, window-time.Since(began)); err != nil {
			return 0, err
		}
		return float64(executed.Load()-start) / time.Since(began).Seconds(), nil
	}
	nothing := func() error { return nil }
	before, err := rate(nothing)
	if err != nil {
		return err
	}
	for round := 1; round <= tb.o.Rounds; round++ {
		during, err := rate(func() error {
			began := time.Now()
			for _, queue := range queues {
				if _, err := tb.Broker.Publish(ctx, malformed(queue, tb.o.Flood)); err != nil {
					return err
				}
			}
			err := poll(ctx, 5*waitLimit, func(ctx context.Context) (bool, error) {
				depths, err := tb.Broker.Depths(ctx, []string{tb.Topology.Quarantine()})
				return depths[tb.Topology.Quarantine()].Ready >= round*tb.o.Flood*len(queues), err
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
		loss.Samples = append(loss.Samples, max(0, 100*(1-during/((before+after)/2))))
		before = after
	}
	return nil
}

// feed keeps a worker busy until ctx is done. It adds 100 tasks whenever fewer than 200 wait.
func feed(ctx context.Context, c *services, executed *atomic.Int64) error {
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

// malformed returns n messages for an AMQP queue. All of them are malformed, so they are quarantined.
func malformed(queue string, n int) []broker.Message {
	bodies := []string{"", "hello", "null", `{"v":1}`, `{"v":-1,"t":[[1,1]]}`, `{"v":1,"t":[[-1,1]]}`, `{"v":1,"t":[1,1],"x":1}`, `{"v":1,"t":[[1,1]]} {}`, strings.Repeat("[", 1000)}
	messages := make([]broker.Message, n)
	for i := range messages {
		messages[i] = broker.Message{Queue: queue, Body: []byte(bodies[i%len(bodies)])}
	}
	return messages
}
