package e2e

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// A worker with 50 tasks in flight is killed with kill -9. With default settings, each of these tasks starts once more
// on another worker and counts a crash, not a failure. No other task runs twice. `make recovery` measures how soon they
// start.
func TestKilledWorkersTasksStartAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lease = shortLease()
	block := make(chan struct{})
	tg := newTarget(t, func(c call) int {
		if c.attempt == 1 {
			select {
			case <-block:
			case <-c.ctx.Done():
			}
		}
		return 200
	})
	victim := w.serve(t, nil, "--roles", "worker,janitor", "--name", "victim")
	finished := newTarget(t, func(call) int { return 200 })
	w.enqueue(t, 100, httpTask(finished))
	w.awaitCount(t, holdfast.Done, 100)

	w.enqueue(t, 50, httpTask(tg))
	tg.await(t, "50 tasks are in flight", func(calls []call) bool { return len(open(calls)) == 50 })
	successor := w.serve(t, nil, "--roles", "worker,janitor", "--name", "successor")
	waiting := w.enqueue(t, 30, httpTask(finished)) // the successor takes these, because the victim has no capacity
	w.awaitCount(t, holdfast.Done, int64(100+len(waiting)))
	awaitFencing(t, w)

	killed := time.Now()
	victim.signal(syscall.SIGKILL)
	var slowest time.Duration
	calls := tg.await(t, "all 50 tasks have started again", func(calls []call) bool { return len(calls) == 100 })
	for id, cs := range byTask(calls) {
		if len(cs) != 2 || cs[0].attempt == cs[1].attempt {
			t.Errorf("task %s ran %d times, attempts %d and %d", id, len(cs), cs[0].attempt, cs[1].attempt)
		}
		slowest = max(slowest, cs[1].begin.Sub(killed))
	}
	t.Logf("all 50 tasks started again %s after the kill", slowest.Round(time.Millisecond))
	w.awaitCount(t, holdfast.Done, int64(150+len(waiting)))
	done, _ := finished.snapshot()
	for id, cs := range byTask(done) {
		if len(cs) != 1 {
			t.Errorf("task %s was not running at the kill, but ran %d times", id, len(cs))
		}
	}
	for id := range byTask(calls) {
		if task := w.task(t, id); task.Failures != 0 || task.Crashes != 1 {
			t.Errorf("task %s has %d failures and %d crashes, want 0 and 1", id, task.Failures, task.Crashes)
		}
	}
	successor.signal(syscall.SIGTERM)
	if code := successor.exit(); code != 0 {
		t.Errorf("a drained worker exits with %d", code)
	}
}

// awaitFencing waits until a janitor fences workers: it kills a spare worker and waits until that worker is fenced. A
// janitor that has just started must first observe the store for longer than a lease. Two other workers must be live.
func awaitFencing(t *testing.T, w *world) {
	t.Helper()
	spare := w.spawn(t, nil, "--roles", "worker", "--queues", "spare")
	poll(t, func() string { return "fewer than 3 workers are live" }, func(ctx context.Context) bool {
		workers, err := w.Store.Workers(ctx, false)
		return err == nil && len(workers) >= 3
	})

	spare.signal(syscall.SIGKILL)
	poll(t, func() string { return "no janitor has fenced the killed worker" }, func(ctx context.Context) bool {
		workers, err := w.Store.Workers(ctx, false)
		return err == nil && len(workers) == 2
	})
}

// A worker is stopped for twice its lease and then continued. The store refuses its late results, so that each attempt
// has one result.
func TestStoppedWorkersLateResultsAreRefused(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	w := newWorld(t)
	w.lease = shortLease()
	release := make(chan struct{})
	tg := newTarget(t, func(c call) int {
		if c.attempt == 1 {
			<-release // A lost connection does not end the wait, because the sender may be stopped, not dead.
		}
		return 200
	})
	stopped := w.serve(t, nil, "--roles", "worker,janitor", "--name", "stopped", "--concurrency", "10")
	ids := w.enqueue(t, 10, httpTask(tg))
	tg.await(t, "10 tasks are in flight", func(calls []call) bool { return len(open(calls)) == 10 })
	w.serve(t, nil, "--roles", "worker,janitor", "--name", "successor")

	stopped.freeze()
	close(release) // the answers wait in the sockets of the stopped process
	w.awaitCount(t, holdfast.Done, 10)
	pause := time.NewTimer(2 * w.lease)
	<-pause.C
	stopped.signal(syscall.SIGCONT)
	stopped.awaitReady() // as a new worker

	more := w.enqueue(t, 20, httpTask(tg))
	w.awaitCount(t, holdfast.Done, int64(10+len(more)))
	for _, id := range ids {
		task := w.task(t, id)
		if task.Attempt != 2 || task.Crashes != 1 || task.State != holdfast.Done {
			t.Errorf("task %s is %s at attempt %d with %d crashes, want done, 2, 1", id, task.State, task.Attempt, task.Crashes)
		}
	}
	calls, _ := tg.snapshot()
	for id, cs := range byTask(calls) {
		seen := map[int]bool{}
		for _, c := range cs {
			if seen[c.attempt] {
				t.Errorf("task %s ran attempt %d twice", id, c.attempt)
			}
			seen[c.attempt] = true
		}
	}
}

// After the first SIGTERM, a worker takes no new tasks and lets the running ones finish. It hands back the tasks that
// do not finish in time. This is neither a failure nor a crash of the tasks, and they run on another worker.
func TestDrainFinishesOrHandsBack(t *testing.T) { onServersFirst(t, drainFinishesOrHandsBack) }

func drainFinishesOrHandsBack(t *testing.T, w *world) {
	release := make(chan struct{})
	tg := newTarget(t, func(c call) int {
		if c.attempt > 1 {
			return 200
		}
		select {
		case <-release:
			return 200
		case <-c.ctx.Done():
			return 503
		}
	})
	stuckTarget := newTarget(t, func(c call) int {
		if c.attempt == 1 {
			<-c.ctx.Done()
		}
		return 200
	})
	draining := w.serve(t, nil, "--roles", "worker,janitor", "--drain-timeout", "3s")
	finishingIDs := w.enqueue(t, 5, httpTask(tg))
	stuckIDs := w.enqueue(t, 5, httpTask(stuckTarget))
	tg.await(t, "5 tasks are in flight", func(c []call) bool { return len(open(c)) == 5 })
	stuckTarget.await(t, "5 stuck tasks are in flight", func(c []call) bool { return len(open(c)) == 5 })
	draining.signal(syscall.SIGTERM)
	close(release)
	if code := draining.exit(); code != 0 {
		t.Errorf("a drained worker exits with %d", code)
	}
	for _, id := range finishingIDs {
		if task := w.task(t, id); task.State != holdfast.Done || task.Attempt != 1 {
			t.Errorf("task %s is %s at attempt %d, although it had time to finish", id, task.State, task.Attempt)
		}
	}
	for _, id := range stuckIDs {
		if task := w.task(t, id); task.State != holdfast.Ready || task.Failures != 0 || task.Crashes != 0 {
			t.Errorf("task %s is %s with %d failures and %d crashes, want ready with 0 and 0", id, task.State, task.Failures, task.Crashes)
		}
	}
	w.serve(t, nil, "--roles", "worker,janitor")
	w.awaitCount(t, holdfast.Done, 10)
}

// The second SIGTERM ends a drain at once.
func TestSecondSignalStopsAtOnce(t *testing.T) { onAFileFirst(t, secondSignalStopsAtOnce) }

func secondSignalStopsAtOnce(t *testing.T, w *world) {
	tg := newTarget(t, func(c call) int { <-c.ctx.Done(); return 503 })
	p := w.serve(t, nil, "--drain-timeout", "10m")
	id := w.enqueue(t, 1, httpTask(tg))[0]
	tg.await(t, "the task is in flight", func(c []call) bool { return len(open(c)) == 1 })
	p.signal(syscall.SIGTERM)
	poll(t, func() string { return "the process does not drain" }, func(context.Context) bool { return p.logged("draining") })
	p.signal(syscall.SIGTERM)
	p.exit()
	if task := w.task(t, id); task.State != holdfast.Ready || task.Failures != 0 {
		t.Errorf("the task is %s with %d failures, want ready with 0", task.State, task.Failures)
	}
}

// The tasks that were in flight on a killed worker do not wait behind the backlog again.
func TestKilledWorkersTasksGoBeforeTheBacklog(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	w := newWorld(t)
	w.lease = shortLease()
	const tasks, concurrency = 800, 10
	tg := newTarget(t, func(c call) int {
		select {
		case <-time.After(time.Duration(200+int(c.task)*37%200) * time.Millisecond): // the tasks end at different times
		case <-c.ctx.Done():
		}
		return 200
	})
	victim := w.serve(t, nil, "--concurrency", fmt.Sprint(concurrency), "--name", "victim")
	w.serve(t, nil, "--concurrency", fmt.Sprint(concurrency), "--name", "successor")
	awaitFencing(t, w)
	w.enqueue(t, tasks, httpTask(tg)) // 24 s of work for one worker
	tg.await(t, "more than 150 calls have begun", func(calls []call) bool { return len(calls) > 150 })
	victim.signal(syscall.SIGKILL)
	restarts := func(calls []call) (interrupted int, second []time.Time) {
		for _, cs := range byTask(calls) {
			if cs[0].aborted {
				interrupted++
				if len(cs) > 1 {
					second = append(second, cs[1].begin)
				}
			}
		}
		slices.SortFunc(second, time.Time.Compare)
		return interrupted, second
	}
	calls := tg.await(t, "all interrupted tasks have started again", func(calls []call) bool {
		interrupted, second := restarts(calls)
		return interrupted > 0 && interrupted == len(second)
	})

	interrupted, second := restarts(calls)
	others := 0 // tasks of the backlog that began between the first and the last restart
	for _, cs := range byTask(calls) {
		if begin := cs[0].begin; begin.After(second[0]) && begin.Before(second[interrupted-1]) {
			others++
		}
	}
	left := tasks - len(byTask(calls))
	t.Logf("%d tasks were interrupted; %d others began before the last of them had started again, and %d had not yet begun", interrupted, others, left)
	// When the tickets of the interrupted tasks arrive, the successor already has some tickets for each executor.
	if others > 10*concurrency {
		t.Errorf("%d other tasks began before the last interrupted task had started again, want at most %d", others, 10*concurrency)
	}
	if left == 0 {
		t.Error("the interrupted tasks started again only when the backlog was empty")
	}
}
