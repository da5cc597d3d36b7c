package e2e

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slow"
)

// Fifty tasks in flight on a worker that is killed with kill -9 start again on another, once and uncounted as failures, at
// default settings; nothing else runs twice. How soon is measured by make recovery.
func TestKilledWorkersTasksStartAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
	doomed := w.serve(t, nil, "--roles", "worker,janitor", "--name", "doomed")
	finished := newTarget(t, func(call) int { return 200 })
	w.enqueue(t, 100, deliver(finished))
	w.awaitCount(t, 30*time.Second, holdfast.Done, 100)

	w.enqueue(t, 50, deliver(tg))
	tg.await(t, 30*time.Second, "50 tasks are in flight", func(calls []call) bool { return len(open(calls)) == 50 })
	heir := w.serve(t, nil, "--roles", "worker,janitor", "--name", "heir")
	waiting := w.enqueue(t, 30, deliver(finished)) // the heir takes these, the doomed one is full
	w.awaitCount(t, 30*time.Second, holdfast.Done, int64(100+len(waiting)))
	warm(t, w)

	killed := time.Now()
	doomed.signal(syscall.SIGKILL)
	var slowest time.Duration
	calls := tg.await(t, 60*time.Second, "all 50 have started again", func(calls []call) bool { return len(calls) == 100 })
	for id, cs := range byTask(calls) {
		if len(cs) != 2 || cs[0].attempt == cs[1].attempt {
			t.Errorf("task %s ran %d times, attempts %d and %d", id, len(cs), cs[0].attempt, cs[1].attempt)
		}
		slowest = max(slowest, cs[1].begin.Sub(killed))
	}
	t.Logf("all 50 tasks started again %s after the kill", slowest.Round(time.Millisecond))
	w.awaitCount(t, 15*time.Second, holdfast.Done, int64(150+len(waiting)))
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
	heir.signal(syscall.SIGTERM)
	if code := heir.exit(40 * time.Second); code != 0 {
		t.Errorf("a drained worker exits with %d", code)
	}
}

// warm waits until a janitor that has just started would fence: it must have seen the
// store for a lease and a bit.
func warm(t *testing.T, w *world) {
	t.Helper()
	bystander := w.spawn(t, nil, "--roles", "worker", "--lanes", "bystander")
	poll(t, 20*time.Second, func() string { return "no run to fence" }, func(ctx context.Context) bool {
		runs, err := w.Store.Runs(ctx, false)
		return err == nil && len(runs) >= 3
	})
	bystander.signal(syscall.SIGKILL)
	poll(t, 30*time.Second, func() string { return "no janitor fenced the dead bystander" }, func(ctx context.Context) bool {
		runs, err := w.Store.Runs(ctx, false)
		return err == nil && len(runs) == 2
	})
}

// A worker that is stopped for twice its lease and goes on finds its results refused:
// one result per attempt.
func TestStoppedWorkersLateResultsAreRefused(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	tg := newTarget(t, func(c call) int {
		if c.attempt == 1 {
			<-release // also when the sender is gone: it may only be asleep
		}
		return 200
	})
	sleeper := w.serve(t, nil, "--roles", "worker,janitor", "--name", "sleeper", "--concurrency", "10")
	ids := w.enqueue(t, 10, deliver(tg))
	tg.await(t, 30*time.Second, "10 tasks are in flight", func(calls []call) bool { return len(open(calls)) == 10 })
	w.serve(t, nil, "--roles", "worker,janitor", "--name", "heir")

	sleeper.freeze()
	close(release) // the answers wait in the sleeper's sockets
	w.awaitCount(t, 40*time.Second, holdfast.Done, 10)
	stopped := time.NewTimer(10 * time.Second) // twice the lease
	<-stopped.C
	sleeper.signal(syscall.SIGCONT)
	sleeper.awaitReady(time.Minute) // as a new run

	more := w.enqueue(t, 20, deliver(tg))
	w.awaitCount(t, 30*time.Second, holdfast.Done, int64(10+len(more)))
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

// A first SIGTERM stops the intake and lets tasks finish; what does not finish in time is handed back at
// once, uncounted, and runs elsewhere.
func TestDrainFinishesOrHandsBack(t *testing.T) { everywhere(t, drainFinishesOrHandsBack) }

func drainFinishesOrHandsBack(t *testing.T, w *world) {
	quick := make(chan struct{})
	tg := newTarget(t, func(c call) int {
		if c.attempt > 1 {
			return 200
		}
		select {
		case <-quick:
			return 200
		case <-c.ctx.Done():
			return 503
		}
	})
	stubborn := newTarget(t, func(c call) int {
		if c.attempt == 1 {
			<-c.ctx.Done()
		}
		return 200
	})
	leaving := w.serve(t, nil, "--roles", "worker,janitor", "--drain-timeout", "3s")
	quickIDs := w.enqueue(t, 5, deliver(tg))
	stubbornIDs := w.enqueue(t, 5, deliver(stubborn))
	tg.await(t, 30*time.Second, "5 in flight", func(c []call) bool { return len(open(c)) == 5 })
	stubborn.await(t, 30*time.Second, "5 stubborn in flight", func(c []call) bool { return len(open(c)) == 5 })
	leaving.signal(syscall.SIGTERM)
	close(quick)
	if code := leaving.exit(time.Minute); code != 0 {
		t.Errorf("a drained worker exits with %d", code)
	}
	for _, id := range quickIDs {
		if task := w.task(t, id); task.State != holdfast.Done || task.Attempt != 1 {
			t.Errorf("task %s is %s at attempt %d; it had the time to finish", id, task.State, task.Attempt)
		}
	}
	for _, id := range stubbornIDs {
		if task := w.task(t, id); task.State != holdfast.Ready || task.Failures != 0 || task.Crashes != 0 {
			t.Errorf("task %s is %s with %d failures and %d crashes; want it handed back uncounted", id, task.State, task.Failures, task.Crashes)
		}
	}
	w.serve(t, nil, "--roles", "worker,janitor")
	w.awaitCount(t, 30*time.Second, holdfast.Done, 10)
}

// The second signal stops a drain at once.
func TestSecondSignalStopsAtOnce(t *testing.T) { everywhere(t, secondSignalStopsAtOnce) }

func secondSignalStopsAtOnce(t *testing.T, w *world) {
	tg := newTarget(t, func(c call) int { <-c.ctx.Done(); return 503 })
	p := w.serve(t, nil, "--drain-timeout", "10m")
	id := w.enqueue(t, 1, deliver(tg))[0]
	tg.await(t, 30*time.Second, "in flight", func(c []call) bool { return len(open(c)) == 1 })
	p.signal(syscall.SIGTERM)
	poll(t, 20*time.Second, func() string { return "it still does not drain" }, func(context.Context) bool { return p.logged("draining") })
	p.signal(syscall.SIGTERM)
	p.exit(time.Minute)
	if task := w.task(t, id); task.State != holdfast.Ready || task.Failures != 0 {
		t.Errorf("the task is %s with %d failures, want ready with 0", task.State, task.Failures)
	}
}

// What was in flight on a killed worker does not wait behind the backlog once more.
func TestKilledWorkersTasksGoBeforeTheBacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const tasks, each = 800, 10
	tg := newTarget(t, func(c call) int {
		select {
		case <-time.After(300 * time.Millisecond):
		case <-c.ctx.Done():
		}
		return 200
	})
	doomed := w.serve(t, nil, "--concurrency", fmt.Sprint(each), "--name", "doomed")
	w.serve(t, nil, "--concurrency", fmt.Sprint(each), "--name", "heir")
	warm(t, w)
	w.enqueue(t, tasks, deliver(tg)) // 24 s of work for one worker
	tg.await(t, 30*time.Second, "a part is done", func(calls []call) bool { return len(calls) > 150 })
	doomed.signal(syscall.SIGKILL)
	again := func(calls []call) (broken int, second []time.Time) {
		for _, cs := range byTask(calls) {
			if cs[0].aborted {
				broken++
				if len(cs) > 1 {
					second = append(second, cs[1].begin)
				}
			}
		}
		slices.SortFunc(second, time.Time.Compare)
		return broken, second
	}
	calls := tg.await(t, 60*time.Second, "all broken off tasks have started again", func(calls []call) bool {
		broken, second := again(calls)
		return broken > 0 && broken == len(second)
	})
	broken, second := again(calls)
	meanwhile := 0 // tasks of the backlog that began after the first of them had started again
	for _, cs := range byTask(calls) {
		if begin := cs[0].begin; begin.After(second[0]) && begin.Before(second[broken-1]) {
			meanwhile++
		}
	}
	left := tasks - len(byTask(calls))
	t.Logf("%d tasks were broken off; %d others began before the last of them had started again, %d had not yet begun", broken, meanwhile, left)
	// The heir has tickets in hand when they come, for each of its executors some.
	if meanwhile > 10*each {
		t.Errorf("%d others began before the last of them had started again: it waited behind the backlog", meanwhile)
	}
	if left == 0 {
		t.Error("they started again when there was no backlog any more")
	}
}
