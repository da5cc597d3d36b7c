package recovery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/rig"
	"github.com/holdfastq/holdfast/store"
)

// inFlight is how many tasks run on the process that ends in a trial.
const inFlight = 8

// gate keeps first attempts from ending until it is opened, or until their sender has gone away.
type gate struct{ now atomic.Pointer[chan struct{}] }

func (g *gate) shut() (open func()) {
	ch := make(chan struct{})
	g.now.Store(&ch)
	return func() { close(ch) }
}

func (g *gate) answer(c *call) {
	if c.attempt > 1 {
		return
	}
	select {
	case <-*g.now.Load():
	case <-c.ctx.Done():
	}
}

// between is how long nothing happens between two trials: two workers that die within a second are left to their leases.
const between = 1500 * time.Millisecond

// killed kills one of two workers with kill -9 while tasks run on both; a janitor is a process of its own.
func killed(ctx context.Context, p *place) ([]Figure, error) {
	samples, err := p.replaced(ctx, syscall.SIGKILL)
	return []Figure{{Name: "A worker is killed", What: "kill -9 of one of two workers, until the last of its tasks runs on the other", Unit: seconds, Samples: samples}}, err
}

// drained drains one of two workers whose tasks do not end in time; in a file the next process takes over.
func drained(ctx context.Context, p *place) ([]Figure, error) {
	if p.embedded {
		samples, _, err := p.succeeded(ctx, syscall.SIGTERM)
		return []Figure{{Name: "A drain hands its tasks over", What: "SIGTERM (drain timeout 0.1 s, which the tasks exceed), until the last of its tasks runs in the next process", Unit: seconds, Samples: samples}}, err
	}
	samples, err := p.replaced(ctx, syscall.SIGTERM)
	return []Figure{{Name: "A drain hands its tasks over", What: "SIGTERM (drain timeout 0.1 s, which the tasks exceed), until the last of its tasks runs on another worker", Unit: seconds, Samples: samples}}, err
}

// restarted kills the one process there is and starts it again, as its supervisor would.
func restarted(ctx context.Context, p *place) ([]Figure, error) {
	if err := p.fill(ctx); err != nil {
		return nil, err
	}
	fromKill, fromStart, err := p.succeeded(ctx, syscall.SIGKILL)
	return []Figure{
		{Name: "The only process is killed and started again", What: "kill -9 of the only process, until the last of its tasks runs in the next one" + p.beside(), Unit: seconds, Samples: fromKill},
		{Name: "The only process is killed and started again", What: "exec of the next process, until the last of the tasks runs in it" + p.beside(), Unit: seconds, Samples: fromStart},
	}, err
}

// replaced ends the busier one of two workers with a signal, again and again, and returns how long the tasks that ran on it
// took to run on the other one, which has room for all.
func (p *place) replaced(ctx context.Context, sig syscall.Signal) (samples []float64, err error) {
	var hold gate
	hold.shut()
	tg, err := newTarget(hold.answer)
	if err != nil {
		return nil, err
	}
	defer tg.close()
	if _, err := p.serve(ctx, "--roles", "janitor"); err != nil {
		return nil, err
	}
	workers := map[int]*rig.Process{}  // by process id
	for n := -1; n < p.o.Trials; n++ { // the first one warms the janitor up and does not count
		for len(workers) < 2 {
			worker, err := p.serve(ctx, "--roles", "worker", "--concurrency", fmt.Sprint(2*inFlight), "--drain-timeout", "100ms")
			if err != nil {
				return nil, err
			}
			workers[worker.PID()] = worker
		}
		if err := sleep(ctx, between); err != nil {
			return nil, err
		}
		first, open := (n+1)*inFlight, hold.shut()
		if err := p.enqueue(ctx, tg, first, inFlight, nil); err != nil {
			return nil, err
		}
		if err := tg.await(ctx, "all tasks run", func() bool { return tg.open(first, inFlight) == inFlight }); err != nil {
			return nil, err
		}
		pid, tasks, err := p.busiest(ctx)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		workers[pid].Signal(sig)
		<-workers[pid].Ended()
		delete(workers, pid)
		var last time.Time
		if err := tg.await(ctx, "the tasks of the worker that ended run again", func() bool {
			var again int
			_, again, last = tg.broken(first, inFlight)
			return again == tasks
		}); err != nil {
			return nil, err
		}
		open()
		if n >= 0 {
			samples = append(samples, last.Sub(began).Seconds())
		}
		if err := p.awaitDone(ctx, int64(first+inFlight)); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// busiest returns the process that runs the most tasks, and how many.
func (p *place) busiest(ctx context.Context) (pid, tasks int, err error) {
	running, err := p.Store.List(ctx, store.Filter{States: []holdfast.State{holdfast.Running}, Limit: 10 * inFlight})
	if err != nil {
		return 0, 0, err
	}
	workers, err := p.Store.Runs(ctx, false)
	if err != nil {
		return 0, 0, err
	}
	for _, worker := range workers {
		n := 0
		for _, task := range running {
			if task.Run == worker.ID {
				n++
			}
		}
		if n > tasks {
			pid, tasks = worker.PID, n
		}
	}
	if tasks == 0 {
		return 0, 0, errors.New("no worker runs a task")
	}
	return pid, tasks, nil
}

// succeeded ends the only process with a signal and starts the next one when it has ended, again and again. It returns how
// long the tasks that ran took to run again, from the signal and from the start of the next process.
func (p *place) succeeded(ctx context.Context, sig syscall.Signal) (fromSignal, fromStart []float64, err error) {
	var hold gate
	hold.shut()
	tg, err := newTarget(hold.answer)
	if err != nil {
		return nil, nil, err
	}
	defer tg.close()
	flags := []string{"--drain-timeout", "100ms"}
	process, err := p.serve(ctx, flags...)
	if err != nil {
		return nil, nil, err
	}
	for n := range p.o.Trials {
		first, open := n*inFlight, hold.shut()
		if err := p.enqueue(ctx, tg, first, inFlight, nil); err != nil {
			return nil, nil, err
		}
		if err := tg.await(ctx, "all tasks run", func() bool { return tg.open(first, inFlight) == inFlight }); err != nil {
			return nil, nil, err
		}
		began := time.Now()
		process.Signal(sig)
		<-process.Ended()
		started := time.Now()
		if process, err = p.start(flags...); err != nil {
			return nil, nil, err
		}
		var last time.Time
		if err := tg.await(ctx, "they run again", func() bool {
			var again int
			_, again, last = tg.broken(first, inFlight)
			return again == inFlight && tg.open(first, inFlight) == 0
		}); err != nil {
			return nil, nil, err
		}
		open()
		fromSignal = append(fromSignal, last.Sub(began).Seconds())
		fromStart = append(fromStart, last.Sub(started).Seconds())
		if err := process.Ready(ctx); err != nil {
			return nil, nil, err
		}
		// The store gets the results during this pause. It is not asked for them, because it would count all finished tasks.
		if err := sleep(ctx, between); err != nil {
			return nil, nil, err
		}
	}
	return fromSignal, fromStart, nil
}

// delayed stores tasks that become due over some seconds.
func delayed(ctx context.Context, p *place) ([]Figure, error) {
	tg, err := newTarget(func(*call) {})
	if err != nil {
		return nil, err
	}
	defer tg.close()
	if err := p.ready(ctx, tg); err != nil {
		return nil, err
	}
	n := p.o.Tasks
	from := time.Now().Add(3 * time.Second)
	due := func(i int) time.Time { return from.Add(time.Duration(i) * 5 * time.Millisecond) } // 200 a second
	if err := p.enqueue(ctx, tg, 1, n, func(i int, task *holdfast.NewTask) { task.At = due(i) }); err != nil {
		return nil, err
	}
	if late := time.Since(from); late > 0 {
		return nil, fmt.Errorf("it took %s too long to store the tasks: measure with fewer", late)
	}
	if err := p.awaitDone(ctx, int64(n+1)); err != nil {
		return nil, err
	}
	var samples []float64
	tg.mu.Lock()
	defer tg.mu.Unlock()
	for i := range n {
		samples = append(samples, tg.calls[1+i][0].begin.Sub(due(i)).Seconds())
	}
	return []Figure{{Name: "Delayed tasks start", What: "due time of a delayed task, 200 of them a second, until it runs", Unit: seconds, Samples: samples}}, nil
}

// ready starts one process with all roles and returns when it has run a task, with the number 0.
func (p *place) ready(ctx context.Context, tg *target) error {
	if _, err := p.serve(ctx); err != nil {
		return err
	}
	if err := p.enqueue(ctx, tg, 0, 1, nil); err != nil {
		return err
	}
	return p.awaitDone(ctx, 1)
}

// pickedUp stores tasks one by one while nothing else happens; the process that runs them is another one.
func pickedUp(ctx context.Context, p *place) ([]Figure, error) {
	tg, err := newTarget(func(*call) {})
	if err != nil {
		return nil, err
	}
	defer tg.close()
	if err := p.ready(ctx, tg); err != nil {
		return nil, err
	}
	producer := p.Producer(nil)
	defer producer.Close()
	var samples []float64
	for n := 1; n <= 4*p.o.Trials; n++ {
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
		task := holdfast.NewTask{Type: "http", Payload: fmt.Appendf(nil, `{"url":%q}`, fmt.Sprint(tg.url, "/", n))}
		if _, err := producer.Enqueue(ctx, task); err != nil {
			return nil, err
		}
		returned := time.Now()
		var begin time.Time
		if err := tg.await(ctx, "the task runs", func() bool {
			if len(tg.calls[n]) == 0 {
				return false
			}
			begin = tg.calls[n][0].begin
			return true
		}); err != nil {
			return nil, err
		}
		samples = append(samples, max(0, begin.Sub(returned).Seconds()))
	}
	return []Figure{{Name: "A task is picked up", What: "return of Enqueue in another process, which stores nothing else, until the task runs", Unit: seconds, Samples: samples}}, nil
}
