// Package load measures task queues: how fast tasks are accepted, and run, how soon one that comes alone is picked up,
// and how punctually one that was delayed. It knows queues by four methods, so that the same measurements are taken of
// every kind.
//
// Every measurement ends with an error, not with a figure, when its tasks do not arrive.
package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Queue is a connection to a task queue. Its methods may be called concurrently.
type Queue interface {
	// Fill stores many tasks at once, in whatever way suits the queue best. When it returns, they are accepted.
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
	Ahead   int           // tasks that producers are ahead of workers in a steady state
	WarmUp  time.Duration // of a steady state, before it is measured
	For     time.Duration // of a steady state, and of calls one by one
	// Patience is how long nothing may arrive until a measurement gives up.
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

// Drain runs n stored tasks, from the start of the worker to the last handler's return.
func (o Options) Drain(ctx context.Context, q Queue, n int) (Rate, error) {
	var last time.Time
	began := time.Now()
	err := o.work(ctx, q, n, func([]byte, int) { last = time.Now() }, func(context.Context) error { return nil })
	return Rate{n, last.Sub(began)}, err
}

// Steady stores and runs tasks at the same time, for a while, with a bounded number in between. before is called once,
// between the warm-up and the measurement, and can look at clocks and counters; so can after, when it has ended.
func (o Options) Steady(ctx context.Context, q Queue, before, after func()) (Rate, error) {
	var stored, done atomic.Int64
	return together(ctx, q, func([]byte) error { done.Add(1); return nil }, func(ctx context.Context) (Rate, error) {
		filling, stop := context.WithCancel(ctx)
		defer stop()
		failed := make(chan error, 1)
		batch := o.payloads(o.Batch)
		go func() {
			for filling.Err() == nil {
				if stored.Load()-done.Load() > int64(o.Ahead) {
					time.Sleep(time.Millisecond)
					continue
				}
				if err := q.Fill(context.WithoutCancel(filling), batch); err != nil {
					failed <- fmt.Errorf("store tasks: %w", err)
					return
				}
				stored.Add(int64(len(batch)))
			}
			failed <- nil
		}()
		if err := wait(ctx, o.WarmUp, failed); err != nil {
			return Rate{}, err
		}
		before()
		first, began := done.Load(), time.Now()
		err := wait(ctx, o.For, failed)
		rate := Rate{int(done.Load() - first), time.Since(began)}
		after()
		stop()
		if err == nil {
			err = <-failed
		}
		if err == nil && rate.Tasks == 0 {
			err = errors.New("no task was run")
		}
		return rate, err
	})
}

func wait(ctx context.Context, d time.Duration, failed <-chan error) error {
	select {
	case <-time.After(d):
		return nil
	case err := <-failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Singles stores tasks one by one, from several goroutines at once.
func (o Options) Singles(ctx context.Context, q Queue, callers int) (Rate, error) {
	payload := o.payloads(1)[0]
	var stored atomic.Int64
	problems := make([]error, callers)
	began := time.Now()
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			for problems[i] == nil && time.Since(began) < o.For {
				if problems[i] = q.Put(ctx, payload, 0); problems[i] == nil {
					stored.Add(1)
				}
			}
		})
	}
	calling.Wait()
	return Rate{int(stored.Load()), time.Since(began)}, errors.Join(problems...)
}

// PickUp stores n tasks, one every gap, and returns how long each took from the call to its handler, in ascending order.
func (o Options) PickUp(ctx context.Context, q Queue, n int, gap time.Duration) ([]time.Duration, error) {
	return o.late(ctx, q, n, func(ctx context.Context) error {
		tick := time.NewTicker(gap)
		defer tick.Stop()
		for range n {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := q.Put(ctx, o.stamped(time.Now()), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// Delayed stores n tasks that become due at a steady rate a second, the first after lead, and returns how late each was,
// in ascending order.
func (o Options) Delayed(ctx context.Context, q Queue, n, perSecond int, lead time.Duration) ([]time.Duration, error) {
	return o.late(ctx, q, n, func(ctx context.Context) error {
		due := time.Now().Add(lead)
		turns := make(chan time.Time)
		problems := make([]error, 16)
		var putting sync.WaitGroup
		for i := range problems {
			putting.Go(func() {
				for at := range turns {
					if problems[i] == nil {
						problems[i] = q.Put(ctx, o.stamped(at), time.Until(at))
					}
				}
			})
		}
		for i := range n {
			turns <- due.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		}
		close(turns)
		putting.Wait()
		return errors.Join(problems...)
	})
}

// late runs a worker beside put, until n stamped tasks have come.
func (o Options) late(ctx context.Context, q Queue, n int, put func(context.Context) error) ([]time.Duration, error) {
	var all []time.Duration
	var unreadable error
	err := o.work(ctx, q, n, func(payload []byte, _ int) {
		at, err := stamp(payload)
		unreadable = errors.Join(unreadable, err)
		all = append(all, time.Since(at))
	}, put)
	slices.Sort(all)
	return all, errors.Join(err, unreadable)
}

// work runs a worker, and beside it meanwhile, until n tasks have been seen. see is called for one task at a time.
func (o Options) work(ctx context.Context, q Queue, n int, see func(payload []byte, n int), meanwhile func(context.Context) error) error {
	var mu sync.Mutex
	seen := 0
	some := make(chan struct{}, 1)
	all := make(chan struct{})
	_, err := together(ctx, q, func(payload []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if seen++; seen > n {
			return nil // it runs a second time, which is not this package's to judge
		}
		see(payload, seen)
		if seen == n {
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
	return rate, errors.Join(err, <-ended)
}

// payloads are n JSON strings of the length that is asked for.
func (o Options) payloads(n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = o.stamped(time.Unix(0, 0))
	}
	return list
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
