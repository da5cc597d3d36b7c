// Package load measures task queues: how fast tasks are accepted, and run, how soon one that comes alone is picked up,
// and how punctually one that was delayed. It knows queues by three methods, so that the same measurements are taken of
// every kind.
//
// Every measurement ends with an error, not with a figure, when its tasks do not arrive.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Queue is a connection to a task queue. Its methods may be called concurrently.
type Queue interface {
	// Fill stores many tasks at once, in whatever way suits the queue best. When it returns, they are accepted. It leaves
	// the payloads as they are.
	Fill(ctx context.Context, payloads [][]byte) error
	// Put stores one task that is due after a delay. When it returns, it is accepted.
	Put(ctx context.Context, payload []byte, delay time.Duration) error
	// Work runs a worker until ctx is done, and returns when every result is stored.
	Work(ctx context.Context, handle func(payload []byte) error) error
}

// Options say how much is measured.
type Options struct {
	Payload int           // bytes of a payload; at least 32
	Batch   int           // tasks of one Fill
	Ahead   int           // tasks that may wait in a steady state before the next Fill
	WarmUp  time.Duration // of a steady state, from its first task to the measurement
	For     time.Duration // of a steady state, of batches, and of calls one by one
	// Patience is how long nothing may arrive until a measurement gives up. It must be longer than any delay.
	Patience time.Duration
}

// Defaults are the Options that published figures are measured with.
func Defaults() Options {
	return Options{Payload: 200, Batch: 1000, Ahead: 20_000, WarmUp: 3 * time.Second, For: 10 * time.Second, Patience: 30 * time.Second}
}

// Rate is a number of tasks and the time they took.
type Rate struct {
	Tasks int
	Took  time.Duration
}

// PerSecond is the rate in tasks a second.
func (r Rate) PerSecond() float64 { return float64(r.Tasks) / r.Took.Seconds() }

// Bulk stores n tasks, batch by batch.
func (o Options) Bulk(ctx context.Context, q Queue, n int) (Rate, error) {
	batch := o.payloads(o.Batch)
	began := time.Now()
	for left := n; left > 0; left -= len(batch) {
		if err := q.Fill(ctx, batch[:min(left, len(batch))]); err != nil {
			return Rate{}, fmt.Errorf("store tasks: %w", err)
		}
	}
	return Rate{n, time.Since(began)}, nil
}

// Batches stores tasks for a while, batch by batch. The last batch may take longer.
func (o Options) Batches(ctx context.Context, q Queue) (Rate, error) {
	batch := o.payloads(o.Batch)
	stored := 0
	began := time.Now()
	for time.Since(began) < o.For {
		if err := q.Fill(ctx, batch); err != nil {
			return Rate{}, fmt.Errorf("store tasks: %w", err)
		}
		stored += len(batch)
	}
	return Rate{stored, time.Since(began)}, nil
}

// Drain runs n stored tasks, from the start of the worker to the last handler's return.
func (o Options) Drain(ctx context.Context, q Queue, n int) (Rate, error) {
	var last time.Time
	began := time.Now()
	err := o.work(ctx, q, n, func([]byte) bool { last = time.Now(); return true }, func(context.Context) error { return nil })
	return Rate{n, last.Sub(began)}, err
}

// Steady stores and runs tasks at the same time, for a while, with at most Ahead and a batch in between. before is called
// once, between the warm-up and the measurement, and can look at clocks and counters; so can after, when it has ended.
// When Steady returns, tasks may be left.
func (o Options) Steady(ctx context.Context, q Queue, before, after func()) (Rate, error) {
	var stored, done atomic.Int64
	some := make(chan struct{})
	return together(ctx, q, func([]byte) error {
		if done.Add(1) == 1 {
			close(some)
		}
		return nil
	}, func(ctx context.Context) (Rate, error) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var failed error
		var filling sync.WaitGroup
		filling.Go(func() {
			if failed = o.fill(ctx, q, &stored, &done); failed != nil {
				stop()
			}
		})
		var rate Rate
		err := o.first(ctx, some)
		if err == nil {
			err = pause(ctx, o.WarmUp)
		}
		if err == nil {
			before()
			first, began := done.Load(), time.Now()
			err = pause(ctx, o.For)
			rate = Rate{int(done.Load() - first), time.Since(began)}
			after()
		}
		stop()
		filling.Wait()
		switch {
		case failed != nil:
			return Rate{}, failed
		case err == nil && rate.Tasks == 0:
			err = fmt.Errorf("no task was run in %s; measure for longer", o.For)
		}
		return rate, err
	})
}

// fill stores batches until ctx is done, while no more than Ahead tasks wait. It breaks none of them off.
func (o Options) fill(ctx context.Context, q Queue, stored, done *atomic.Int64) error {
	batch := o.payloads(o.Batch)
	for ctx.Err() == nil {
		if stored.Load()-done.Load() > int64(o.Ahead) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err := q.Fill(context.WithoutCancel(ctx), batch); err != nil {
			return fmt.Errorf("store tasks: %w", err)
		}
		stored.Add(int64(len(batch)))
	}
	return nil
}

// first waits for the first task.
func (o Options) first(ctx context.Context, came <-chan struct{}) error {
	select {
	case <-came:
		return nil
	case <-time.After(o.Patience):
		return fmt.Errorf("the first task was not run in %s", o.Patience)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause waits for d. The error is the reason why ctx ended before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Singles stores tasks one by one, from several goroutines at once.
func (o Options) Singles(ctx context.Context, q Queue, callers int) (Rate, error) {
	payload := o.payloads(1)[0]
	var stored atomic.Int64
	began := time.Now()
	err := atOnce(ctx, callers, func(ctx context.Context) error {
		for ctx.Err() == nil && time.Since(began) < o.For {
			if err := q.Put(ctx, payload, 0); err != nil {
				return fmt.Errorf("store a task: %w", err)
			}
			stored.Add(1)
		}
		return nil
	})
	return Rate{int(stored.Load()), time.Since(began)}, err
}

// atOnce runs n calls at once until all have returned. The first error ends the others' context, and is returned.
func atOnce(ctx context.Context, n int, call func(context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			if err := call(ctx); err != nil {
				fail(err)
			}
		})
	}
	calls.Wait()
	return context.Cause(ctx)
}

// PickUp stores n tasks, and returns how long each took from the call to its handler, in ascending order. From one to the
// next it waits for gap on average, at random from half of it to one and a half: in a fixed rhythm they would meet, or miss,
// always the same of whatever else a queue does in one.
func (o Options) PickUp(ctx context.Context, q Queue, n int, gap time.Duration) ([]time.Duration, error) {
	return o.late(ctx, q, n, func(ctx context.Context) error {
		for range n {
			select {
			case <-time.After(gap/2 + rand.N(gap)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := q.Put(ctx, o.stamped(time.Now()), 0); err != nil {
				return fmt.Errorf("store a task: %w", err)
			}
		}
		return nil
	})
}

// delayedCallers is how many goroutines store delayed tasks at once.
const delayedCallers = 16

// Delayed stores n tasks that become due at a steady rate a second, and returns how late each was, in ascending order.
// Every task is stored lead before it is due, at least: where storing is slower than the rate, they become due as fast
// as they are stored. The Rate is the one at which they did become due.
func (o Options) Delayed(ctx context.Context, q Queue, n, perSecond int, lead time.Duration) (Rate, []time.Duration, error) {
	interval := time.Second / time.Duration(perSecond)
	var mu sync.Mutex
	var first, last time.Time
	started := 0
	turn := func() (due time.Time, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if started == n {
			return due, false
		}
		due = time.Now().Add(lead)
		if started == 0 {
			first = due
		} else if next := last.Add(interval); next.After(due) {
			due = next
		}
		started, last = started+1, due
		return due, true
	}
	lates, err := o.late(ctx, q, n, func(ctx context.Context) error {
		return atOnce(ctx, delayedCallers, func(ctx context.Context) error {
			for ctx.Err() == nil {
				due, ok := turn()
				if !ok {
					return nil
				}
				if err := q.Put(ctx, o.stamped(due), time.Until(due)); err != nil {
					return fmt.Errorf("store a task: %w", err)
				}
			}
			return nil
		})
	})
	return Rate{n, last.Sub(first) + interval}, lates, err
}

// late runs a worker, puts tasks when it works, and returns when n of them have come.
func (o Options) late(ctx context.Context, q Queue, n int, put func(context.Context) error) ([]time.Duration, error) {
	var all []time.Duration
	var unreadable error
	first, ready := true, make(chan struct{})
	err := o.work(ctx, q, n, func(payload []byte) bool {
		at, err := stamp(payload)
		if err == nil && at.Equal(unstamped) {
			if first {
				close(ready)
				first = false
			}
			return false
		}
		if err != nil {
			unreadable = err
		}
		all = append(all, time.Since(at))
		return true
	}, func(ctx context.Context) error {
		if err := q.Put(ctx, o.stamped(unstamped), 0); err != nil {
			return fmt.Errorf("store a task: %w", err)
		}
		if err := o.first(ctx, ready); err != nil {
			return err
		}
		return put(ctx)
	})
	slices.Sort(all)
	return all, errors.Join(err, unreadable)
}

// work runs a worker, and beside it meanwhile, until n tasks have been run that count: see, which is called for one task
// at a time, says which do.
func (o Options) work(ctx context.Context, q Queue, n int, see func(payload []byte) bool, meanwhile func(context.Context) error) error {
	var mu sync.Mutex
	seen := 0
	some := make(chan struct{}, 1)
	all := make(chan struct{})
	_, err := together(ctx, q, func(payload []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if seen == n || !see(payload) { // all have come, so it runs a second time, which is not this package's to judge
			return nil
		}
		if seen++; seen == n {
			close(all)
		}
		select {
		case some <- struct{}{}:
		default:
		}
		return nil
	}, func(ctx context.Context) (Rate, error) {
		if err := meanwhile(ctx); err != nil {
			return Rate{}, err
		}
		quiet := time.NewTimer(o.Patience)
		defer quiet.Stop()
		for {
			select {
			case <-all:
				return Rate{}, nil
			case <-some:
				quiet.Reset(o.Patience)
			case <-quiet.C:
				mu.Lock()
				defer mu.Unlock()
				return Rate{}, fmt.Errorf("%d of %d tasks were run, and none for %s", seen, n, o.Patience)
			case <-ctx.Done():
				return Rate{}, context.Cause(ctx)
			}
		}
	})
	return err
}

// together runs a worker while do runs.
func together(ctx context.Context, q Queue, handle func([]byte) error, do func(context.Context) (Rate, error)) (Rate, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		err := q.Work(working, handle)
		if err == nil && working.Err() == nil {
			err = errors.New("the worker ended by itself")
		}
		if err != nil {
			cancel(err)
		}
		ended <- err
	}()
	rate, err := do(ctx)
	stop()
	if failed := <-ended; failed != nil && !errors.Is(err, failed) {
		err = errors.Join(err, failed)
	}
	return rate, err
}

// unstamped is the time in payloads whose time nobody reads.
var unstamped = time.Unix(0, 0)

// payloads are n JSON strings of the length that is asked for, which share their bytes.
func (o Options) payloads(n int) [][]byte {
	return slices.Repeat([][]byte{o.stamped(unstamped)}, n)
}

// stamped is a payload that carries a time.
func (o Options) stamped(at time.Time) []byte {
	text := strconv.FormatInt(at.UnixNano(), 10) + "."
	return []byte(`"` + text + strings.Repeat("x", max(0, o.Payload-2-len(text))) + `"`)
}

func stamp(payload []byte) (time.Time, error) {
	number, _, _ := strings.Cut(strings.TrimPrefix(string(payload), `"`), ".")
	nanos, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("a payload is not one of ours: %w", err)
	}
	return time.Unix(0, nanos), nil
}

// Percentile is the value below which p percent of an ascending list are; 0 of an empty one.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*p/100))]
}
