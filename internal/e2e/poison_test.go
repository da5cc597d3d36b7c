package e2e

import (
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// A task that kills its worker every time is dead after its crash limit.
func TestPoisonTaskEndsAfterItsCrashLimit(t *testing.T) {
	everywhere(t, poisonTaskEndsAfterItsCrashLimit)
}

func poisonTaskEndsAfterItsCrashLimit(t *testing.T, w *world) {
	poisoned(t, w, 2, 1, 0)
}

// Three tasks that kill their worker each time they start share its page and its executors with 27 that do no
// harm: the three are dead after their crash limit, with their story, and the others are done.
func TestPoisonTasksTakeNoHealthyTaskAlong(t *testing.T) {
	everywhere(t, poisonTasksTakeNoHealthyTaskAlong)
}

func poisonTasksTakeNoHealthyTaskAlong(t *testing.T, w *world) {
	poisoned(t, w, 3, 3, 27)
}

// poisoned runs tasks of both kinds on one worker that is started again each time it is killed.
func poisoned(t *testing.T, w *world, limit, poison, healthy int) {
	settings := []string{"HOLDFAST_DEFAULTS_MAX_CRASHES=" + strconv.Itoa(limit), "HOLDFAST_WORKER_LEASE=5s"}
	if !w.embedded { // else the process that is killed is all there is
		w.serve(t, settings, "--roles", "janitor")
	}
	var victim atomic.Pointer[process]
	var kills atomic.Int32
	bad := newTarget(t, func(c call) int {
		if p := victim.Load(); w.sender(t, c) == p.PID() {
			kills.Add(1)
			p.signal(syscall.SIGKILL)
		}
		<-c.ctx.Done()
		return 200
	})
	good := newTarget(t, func(c call) int {
		select {
		case <-time.After(150 * time.Millisecond):
		case <-c.ctx.Done():
		}
		return 200
	})
	var doomed []holdfast.TaskID
	for i := range poison { // each among its own neighbours
		w.enqueue(t, (healthy+i)/poison, deliver(good))
		doomed = append(doomed, w.enqueue(t, 1, deliver(bad))...)
	}
	began := time.Now()
	for w.open(t) > 0 {
		if time.Since(began) > 4*time.Minute {
			t.Fatalf("%d tasks are still open after %d kills", w.open(t), kills.Load())
		}
		p := w.spawn(t, settings, append(w.worker(), "--concurrency", "50")...)
		victim.Store(p)
		for over := false; !over && w.open(t) > 0 && time.Since(began) < 4*time.Minute; {
			select {
			case <-p.Ended():
				over = true
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	t.Logf("%d kills until everything was final, %s", kills.Load(), time.Since(began).Round(time.Second))
	w.checkPoison(t, doomed, limit)
}

// open counts the tasks that are not final.
func (w *world) open(t *testing.T) int64 {
	t.Helper()
	counts, err := w.Store.Count(t.Context(), store.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return counts[holdfast.Ready] + counts[holdfast.Running]
}

// sender is the process that runs the call's attempt. A call may be read after its sender died, and must not be
// laid at its successor's door.
func (w *world) sender(t *testing.T, c call) int {
	task, err := w.Store.Task(t.Context(), c.task)
	if err != nil || task.Attempt != c.attempt {
		return 0
	}
	runs, err := w.Store.Runs(t.Context(), true)
	if err != nil {
		t.Errorf("who runs task %s: %v", c.task, err)
	}
	for _, run := range runs {
		if run.ID == task.Run {
			return run.PID
		}
	}
	return 0
}

// checkPoison looks at every task's end and story.
func (w *world) checkPoison(t *testing.T, doomed []holdfast.TaskID, limit int) {
	t.Helper()
	tasks, err := w.Store.List(t.Context(), store.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	lastRuns := map[holdfast.RunID]holdfast.TaskID{}
	for _, id := range doomed {
		task := w.task(t, id)
		attempts, err := w.Store.Attempts(t.Context(), id)
		if err != nil || task.State != holdfast.Dead || task.Crashes != limit || task.Failures != 0 || len(attempts) != limit {
			t.Fatalf("the poison task %s is %s with %d crashes, %d failures and %d attempts told, %v; want dead with %d, 0 and %d",
				id, task.State, task.Crashes, task.Failures, len(attempts), err, limit, limit)
		}
		for i, a := range attempts {
			event := holdfast.EventCrash
			if i == limit-1 {
				event = holdfast.EventGiveUp
				lastRuns[a.Run] = id
			}
			if a.Event != event || a.Class != "crash" || a.Worker == "" {
				t.Errorf("attempt %d of the poison task %s: %+v", i+1, id, a)
			}
		}
	}
	most := 0
	for _, task := range tasks {
		if slices.Contains(doomed, task.ID) {
			continue
		}
		if most = max(most, task.Crashes); task.State != holdfast.Done {
			t.Errorf("the healthy task %s is %s with %d crashes: %s", task.ID, task.State, task.Crashes, task.LastError)
		}
		attempts, err := w.Store.Attempts(t.Context(), task.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attempts {
			if killer, last := lastRuns[a.Run]; last {
				t.Errorf("the healthy task %s was in flight when the poison task %s had its last chance", task.ID, killer)
			}
		}
	}
	t.Logf("of %d healthy tasks none is dead; one of them had %d crashes, the limit is %d", len(tasks)-len(doomed), most, limit)
}
