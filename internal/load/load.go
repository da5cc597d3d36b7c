// Package load measures task queues. It measures how many tasks per second a queue stores and runs, how soon a single
// task starts, and how late delayed tasks start. It uses a queue through an interface with three methods, so that all
// queues are measured in the same way.
//
// If the queue does not run the tasks in time, a measurement returns an error instead of a figure.
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

	"github.com/holdfastq/holdfast/internal/backoff"
)

// Queue is a connection to a task queue. Its methods must be safe for concurrent use.
type Queue interface {
	// Fill stores many tasks in the way that is fastest for the queue. The queue has accepted the tasks when Fill
	// returns. Fill does not modify the payloads.
	Fill(ctx context.Context, payloads [][]byte) error
	// Put stores one task that is due after a delay. The queue has accepted the task when Put returns.
	Put(ctx context.Context, payload []byte, delay time.Duration) error
	// Work runs a worker until ctx is done. It returns when all results are stored.
	Work(ctx context.Context, handle func(payload []byte) error) error
}

// Options configures the measurements.
type Options struct {
	Payload int           // size of a payload in bytes; at least 32
	Batch   int           // number of tasks in one Fill
	Ahead   int           // Steady calls Fill while no more than this number of tasks wait
	WarmUp  time.Duration // time from the first task of Steady to the measurement
	For     time.Duration // duration of Steady, Batches and Singles
	// Patience limits the time between two tasks. If no task is run for so long, a measurement returns an error.
	// Patience must be longer than any delay.
	Patience time.Duration
}

// Defaults returns the options for the published figures.
func Defaults() Options {
	return Options{Payload: 200, Batch: 1000, Ahead: 20_000, WarmUp: 3 * time.Second, For: 10 * time.Second, Patience: 30 * time.Second}
}

// Rate is a number of tasks and the time that they took.
type Rate struct {
	Tasks int
	Took  time.Duration
}

// PerSecond returns the rate in tasks per second.
func (r Rate) PerSecond() float64 { return float64(r.Tasks) / r.Took.Seconds() }

// Bulk stores n tasks in batches, one batch at a time.
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

// Batches stores tasks in batches for the duration For, one batch at a time. The last batch may end later.
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

// Drain runs n stored tasks. It measures from the call of Work until the handler of the last task is called.
func (o Options) Drain(ctx context.Context, q Queue, n int) (Rate, error) {
	var last time.Time
	began := time.Now()
	err := o.work(ctx, q, n, func([]byte) bool { last = time.Now(); return true }, func(context.Context) error { return nil })
	return Rate{n, last.Sub(began)}, err
}

// Steady stores and runs tasks at the same time for the duration For. If no task is run in that time, Steady measures
// until the next one is run. At most Ahead tasks and one batch wait at any time. Steady calls the function before when
// the measurement starts, and the function after when it ends. When Steady returns, the queue may still have tasks.
func (o Options) Steady(ctx context.Context, q Queue, before, after func()) (Rate, error) {
	var stored, done atomic.Int64
	first := make(chan struct{})
	var rate Rate
	err := together(ctx, q, func([]byte) error {
		if done.Add(1) == 1 {
			close(first)
		}
		return nil
	}, func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var failed error
		var filling sync.WaitGroup
		filling.Go(func() {
			if failed = o.fill(ctx, q, &stored, &done); failed != nil {
				stop()
			}
		})
		err := o.awaitFirst(ctx, first)
		if err == nil {
			err = backoff.Sleep(ctx, o.WarmUp)
		}
		if err == nil {
			before()
			start, began := done.Load(), time.Now()
			err = backoff.Sleep(ctx, o.For)
			for err == nil && done.Load() == start && time.Since(began) < o.Patience {
				err = backoff.Sleep(ctx, 10*time.Millisecond)
			}
			rate = Rate{int(done.Load() - start), time.Since(began)}
			after()
		}
		stop()
		filling.Wait()
		switch {
		case failed != nil:
			return failed
		case err == nil && rate.Tasks == 0:
			err = fmt.Errorf("no task was run in %s", rate.Took.Round(time.Second))
		}
		return err
	})
	return rate, err
}

// Bursts stores bursts of n tasks, each after a pause of the duration idle in which no task waits, until the duration For
// has passed. It returns the tasks and the added times of the bursts. A burst is measured from the call that stores its
// first task until the handler of its last task is called. The first burst is not measured; Bursts calls the function
// before after it.
func (o Options) Bursts(ctx context.Context, q Queue, n int, idle time.Duration, before func()) (Rate, error) {
	var all Rate
	var done, target atomic.Int64
	last := make(chan struct{}, 1)
	err := together(ctx, q, func([]byte) error {
		if done.Add(1) == target.Load() {
			last <- struct{}{}
		}
		return nil
	}, func(ctx context.Context) error {
		burst := func() (time.Duration, error) {
			began := time.Now()
			target.Add(int64(n))
			if _, err := o.Bulk(ctx, q, n); err != nil {
				return 0, err
			}
			for seen := done.Load(); ; seen = done.Load() {
				select {
				case <-last:
					return time.Since(began), nil
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				case <-time.After(o.Patience):
					if done.Load() == seen {
						return 0, fmt.Errorf("%d of %d tasks were run, and none for %s", seen, target.Load(), o.Patience)
					}
				}
			}
		}
		if _, err := burst(); err != nil {
			return err
		}
		before()
		for began := time.Now(); time.Since(began) < o.For; {
			if err := backoff.Sleep(ctx, idle); err != nil {
				return err
			}
			took, err := burst()
			if err != nil {
				return err
			}
			all.Tasks += n
			all.Took += took
		}
		return nil
	})
	return all, err
}

// fill stores a batch whenever no more than Ahead tasks wait, until ctx is done. It does not cancel a batch.
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

// awaitFirst waits until the channel is closed, which means that the first task has run.
func (o Options) awaitFirst(ctx context.Context, first <-chan struct{}) error {
	select {
	case <-first:
		return nil
	case <-time.After(o.Patience):
		return fmt.Errorf("the first task was not run in %s", o.Patience)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Singles stores single tasks from several goroutines for the duration For.
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

// atOnce runs n calls concurrently and waits for all of them. The first error cancels the context of the others. atOnce
// returns that error.
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

// PickUp stores n single tasks. It returns, in ascending order, the time from each call of Put to the call of the
// handler. Before each task it waits for a random time between 0.5 and 1.5 times gap, because a fixed interval could be
// in step with periodic work of the queue.
func (o Options) PickUp(ctx context.Context, q Queue, n int, gap time.Duration) ([]time.Duration, error) {
	return o.late(ctx, q, n, func(ctx context.Context) error {
		for range n {
			if err := backoff.Sleep(ctx, gap/2+rand.N(gap)); err != nil {
				return err
			}
			if err := q.Put(ctx, o.stamped(time.Now()), 0); err != nil {
				return fmt.Errorf("store a task: %w", err)
			}
		}
		return nil
	})
}

// delayedCallers is the number of goroutines that store delayed tasks.
const delayedCallers = 16

// Delayed stores n tasks, perSecond of which become due each second. It returns, in ascending order, how late each task
// started. Each task is due at least lead after the call that stores it. So if the queue stores tasks more slowly than
// perSecond, the tasks also become due more slowly. The returned Rate is the rate at which they became due.
func (o Options) Delayed(ctx context.Context, q Queue, n, perSecond int, lead time.Duration) (Rate, []time.Duration, error) {
	interval := time.Second / time.Duration(perSecond)
	var mu sync.Mutex
	var first, last time.Time
	started := 0
	next := func() (due time.Time, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if started == n {
			return due, false
		}
		due = time.Now().Add(lead)
		if started == 0 {
			first = due
		} else if after := last.Add(interval); after.After(due) {
			due = after
		}
		started, last = started+1, due
		return due, true
	}
	lates, err := o.late(ctx, q, n, func(ctx context.Context) error {
		return atOnce(ctx, delayedCallers, func(ctx context.Context) error {
			for ctx.Err() == nil {
				due, ok := next()
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

// late runs a worker. It calls put after the worker has run a first task, and waits until n further tasks have run. It
// returns, in ascending order, how long after its time stamp each of them ran.
func (o Options) late(ctx context.Context, q Queue, n int, put func(context.Context) error) ([]time.Duration, error) {
	var all []time.Duration
	var unreadable error
	waiting, ready := true, make(chan struct{})
	err := o.work(ctx, q, n, func(payload []byte) bool {
		at, err := stamp(payload)
		if err == nil && at.Equal(unstamped) {
			if waiting {
				close(ready)
				waiting = false
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
		if err := o.awaitFirst(ctx, ready); err != nil {
			return err
		}
		return put(ctx)
	})
	slices.Sort(all)
	return all, errors.Join(err, unreadable)
}

// work runs a worker and do at the same time, until counts has returned true for the payloads of n tasks. work calls
// counts for one task at a time.
func (o Options) work(ctx context.Context, q Queue, n int, counts func(payload []byte) bool, do func(context.Context) error) error {
	var mu sync.Mutex
	counted := 0
	progress := make(chan struct{}, 1)
	all := make(chan struct{})
	return together(ctx, q, func(payload []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if counted == n || !counts(payload) { // after n tasks, this is a second execution, which this package ignores
			return nil
		}
		if counted++; counted == n {
			close(all)
		}
		select {
		case progress <- struct{}{}:
		default:
		}
		return nil
	}, func(ctx context.Context) error {
		if err := do(ctx); err != nil {
			return err
		}
		timeout := time.NewTimer(o.Patience)
		defer timeout.Stop()
		for {
			select {
			case <-all:
				return nil
			case <-progress:
				timeout.Reset(o.Patience)
			case <-timeout.C:
				mu.Lock()
				defer mu.Unlock()
				return fmt.Errorf("%d of %d tasks were run, and none for %s", counted, n, o.Patience)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// together runs a worker until do returns, and waits for the end of the worker. If the worker ends first, it cancels
// the context of do and returns an error.
func together(ctx context.Context, q Queue, handle func([]byte) error, do func(context.Context) error) error {
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
	err := do(ctx)
	stop()
	if failed := <-ended; failed != nil && !errors.Is(err, failed) {
		err = errors.Join(err, failed)
	}
	return err
}

// unstamped is the time stamp of payloads whose time stamp is not used.
var unstamped = time.Unix(0, 0)

// payloads returns n payloads of the configured size. All of them share one array.
func (o Options) payloads(n int) [][]byte {
	return slices.Repeat([][]byte{o.stamped(unstamped)}, n)
}

// stamped returns a payload with a time stamp: a JSON string of the configured size.
func (o Options) stamped(at time.Time) []byte {
	text := strconv.FormatInt(at.UnixNano(), 10) + "."
	return []byte(`"` + text + strings.Repeat("x", max(0, o.Payload-2-len(text))) + `"`)
}

func stamp(payload []byte) (time.Time, error) {
	number, _, _ := strings.Cut(strings.TrimPrefix(string(payload), `"`), ".")
	nanos, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("payload without a time stamp: %w", err)
	}
	return time.Unix(0, nanos), nil
}

// Percentile returns the p-th percentile of a list in ascending order: the value with p percent of the list before it.
// p is from 0 to 100. For an empty list it returns 0.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*p/100))]
}
