package measure

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/rig"
)

// inFlight is the number of tasks that are running when a process ends.
const inFlight = 8

// gate blocks the answers to first attempts until it is opened or the sender has disconnected.
type gate struct{ current atomic.Pointer[chan struct{}] }

// shut closes the gate for later calls. The returned function opens the gate for them.
func (g *gate) shut() (open func()) {
	ch := make(chan struct{})
	g.current.Store(&ch)
	return func() { close(ch) }
}

// await waits until the call may be answered.
func (g *gate) await(c *call) {
	if c.attempt > 1 {
		return
	}
	select {
	case <-*g.current.Load():
	case <-c.ctx.Done():
	}
}

// trialPause is the pause between two trials. If two workers end within a second, the janitor waits for their leases.
const trialPause = 1500 * time.Millisecond

// measureKill kills one of two workers with kill -9 while both run tasks. The janitor is a separate process.
func measureKill(ctx context.Context, tb *testbed) ([]Figure, error) {
	samples, err := tb.endOneOfTwo(ctx, syscall.SIGKILL)
	return []Figure{{Name: "A worker is killed", What: "kill -9 of one of two workers, until the other one runs the last of its tasks", Unit: seconds, Samples: samples}}, err
}

// measureDrain drains one of two workers, whose tasks do not end within the drain timeout. On a file it drains the only
// process and starts the next one.
func measureDrain(ctx context.Context, tb *testbed) ([]Figure, error) {
	if tb.embedded {
		samples, _, err := tb.endOnlyProcess(ctx, syscall.SIGTERM)
		return []Figure{{Name: "A drain hands its tasks over", What: "SIGTERM (drain timeout 0.1 s, which the tasks exceed), until the next process runs the last of the tasks", Unit: seconds, Samples: samples}}, err
	}
	samples, err := tb.endOneOfTwo(ctx, syscall.SIGTERM)
	return []Figure{{Name: "A drain hands its tasks over", What: "SIGTERM (drain timeout 0.1 s, which the tasks exceed), until another worker runs the last of the tasks", Unit: seconds, Samples: samples}}, err
}

// measureRestart kills the only process and starts it again at once, as a supervisor does.
func measureRestart(ctx context.Context, tb *testbed) ([]Figure, error) {
	if err := tb.storeFinished(ctx); err != nil {
		return nil, err
	}
	fromKill, fromStart, err := tb.endOnlyProcess(ctx, syscall.SIGKILL)
	return []Figure{
		{Name: "The only process is killed and started again", What: "kill -9 of the only process, until the next one runs the last of the tasks" + tb.finishedNote(), Unit: seconds, Samples: fromKill},
		{Name: "The only process is killed and started again", What: "start of the next process, until it runs the last of the tasks" + tb.finishedNote(), Unit: seconds, Samples: fromStart},
	}, err
}

// endOneOfTwo repeatedly ends the busier one of two workers with a signal. For each trial it returns how many seconds
// passed until the other worker, which has capacity for all tasks, ran the last of the interrupted tasks.
func (tb *testbed) endOneOfTwo(ctx context.Context, sig syscall.Signal) (samples []float64, err error) {
	var answers gate
	answers.shut()
	tg, err := newTarget(answers.await)
	if err != nil {
		return nil, err
	}
	defer tg.close()
	if _, err := tb.serve(ctx, "--roles", "janitor"); err != nil {
		return nil, err
	}
	workers := map[int]*rig.Process{}   // by PID
	for n := -1; n < tb.o.Trials; n++ { // the first trial does not count: the janitor may not be ready to fence early
		for len(workers) < 2 {
			worker, err := tb.serve(ctx, "--roles", "worker", "--concurrency", fmt.Sprint(2*inFlight), "--drain-timeout", "100ms")
			if err != nil {
				return nil, err
			}
			workers[worker.PID()] = worker
		}
		if err := sleep(ctx, trialPause); err != nil {
			return nil, err
		}
		first, open := (n+1)*inFlight, answers.shut()
		if err := tb.enqueue(ctx, tg, first, inFlight, nil); err != nil {
			return nil, err
		}
		if err := tg.await(ctx, "all tasks run", func() bool { return tg.open(first, inFlight) == inFlight }); err != nil {
			return nil, err
		}
		pid, tasks, err := tb.busiest(ctx)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		workers[pid].Signal(sig)
		<-workers[pid].Ended()
		delete(workers, pid)
		var last time.Time
		if err := tg.await(ctx, "the tasks of the ended worker run again", func() bool {
			var retried int
			_, retried, last = tg.interrupted(first, inFlight)
			return retried == tasks
		}); err != nil {
			return nil, err
		}
		open()
		if n >= 0 {
			samples = append(samples, last.Sub(began).Seconds())
		}
		if err := tb.awaitDone(ctx, int64(first+inFlight)); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// busiest returns the PID of the worker process that runs the most tasks, and the number of these tasks.
func (tb *testbed) busiest(ctx context.Context) (pid, tasks int, err error) {
	running, err := tb.Store.List(ctx, store.Filter{States: []holdfast.State{holdfast.Running}, Limit: 10 * inFlight})
	if err != nil {
		return 0, 0, err
	}
	workers, err := tb.Store.Workers(ctx, false)
	if err != nil {
		return 0, 0, err
	}
	for _, worker := range workers {
		n := 0
		for _, task := range running.Tasks {
			if task.Worker == worker.ID {
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

// endOnlyProcess repeatedly ends the only process with a signal, waits for its end and starts the next one. For each
// trial it returns how many seconds passed until all interrupted tasks ran again: from the signal, and from the start
// of the next process.
func (tb *testbed) endOnlyProcess(ctx context.Context, sig syscall.Signal) (fromSignal, fromStart []float64, err error) {
	var answers gate
	answers.shut()
	tg, err := newTarget(answers.await)
	if err != nil {
		return nil, nil, err
	}
	defer tg.close()
	flags := []string{"--drain-timeout", "100ms"}
	process, err := tb.serve(ctx, flags...)
	if err != nil {
		return nil, nil, err
	}
	for n := range tb.o.Trials {
		first, open := n*inFlight, answers.shut()
		if err := tb.enqueue(ctx, tg, first, inFlight, nil); err != nil {
			return nil, nil, err
		}
		if err := tg.await(ctx, "all tasks run", func() bool { return tg.open(first, inFlight) == inFlight }); err != nil {
			return nil, nil, err
		}
		began := time.Now()
		process.Signal(sig)
		<-process.Ended()
		started := time.Now()
		if process, err = tb.start(flags...); err != nil {
			return nil, nil, err
		}
		var last time.Time
		if err := tg.await(ctx, "the tasks run again", func() bool {
			var retried int
			_, retried, last = tg.interrupted(first, inFlight)
			return retried == inFlight && tg.open(first, inFlight) == 0
		}); err != nil {
			return nil, nil, err
		}
		open()
		fromSignal = append(fromSignal, last.Sub(began).Seconds())
		fromStart = append(fromStart, last.Sub(started).Seconds())
		if err := process.Ready(ctx); err != nil {
			return nil, nil, err
		}
		// The store receives the results during this pause. A query would have to count all finished tasks.
		if err := sleep(ctx, trialPause); err != nil {
			return nil, nil, err
		}
	}
	return fromSignal, fromStart, nil
}

// measureDelayed stores delayed tasks, 200 of which become due each second, and measures how late they start.
func measureDelayed(ctx context.Context, tb *testbed) ([]Figure, error) {
	tg, err := newTarget(func(*call) {})
	if err != nil {
		return nil, err
	}
	defer tg.close()
	if err := tb.serveWarm(ctx, tg); err != nil {
		return nil, err
	}
	n := tb.o.Tasks
	from := time.Now().Add(3 * time.Second)
	due := func(i int) time.Time { return from.Add(time.Duration(i) * 5 * time.Millisecond) } // 200 a second
	if err := tb.enqueue(ctx, tg, 1, n, func(i int, task *holdfast.NewTask) { task.At = due(i) }); err != nil {
		return nil, err
	}
	if late := time.Since(from); late > 0 {
		return nil, fmt.Errorf("storing the tasks took %s too long; measure with fewer tasks", late)
	}
	if err := tb.awaitDone(ctx, int64(n+1)); err != nil {
		return nil, err
	}
	var samples []float64
	tg.mu.Lock()
	defer tg.mu.Unlock()
	for i := range n {
		samples = append(samples, tg.calls[1+i][0].begin.Sub(due(i)).Seconds())
	}
	return []Figure{{Name: "Delayed tasks start", What: "due time of a delayed task (200 per second), until the task runs", Unit: seconds, Samples: samples}}, nil
}

// serveWarm starts one process with all roles and returns after the process has run the task number 0.
func (tb *testbed) serveWarm(ctx context.Context, tg *target) error {
	if _, err := tb.serve(ctx); err != nil {
		return err
	}
	if err := tb.enqueue(ctx, tg, 0, 1, nil); err != nil {
		return err
	}
	return tb.awaitDone(ctx, 1)
}

// measurePickUp stores one task at a time in an idle system and measures how soon another process runs the task.
func measurePickUp(ctx context.Context, tb *testbed) ([]Figure, error) {
	tg, err := newTarget(func(*call) {})
	if err != nil {
		return nil, err
	}
	defer tg.close()
	if err := tb.serveWarm(ctx, tg); err != nil {
		return nil, err
	}
	producer := tb.Producer(nil)
	defer producer.Close()
	var samples []float64
	for n := 1; n <= 4*tb.o.Trials; n++ {
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
	return []Figure{{Name: "A task is picked up", What: "return of Enqueue in another process, until the task runs", Unit: seconds, Samples: samples}}, nil
}
