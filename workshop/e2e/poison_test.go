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
	"github.com/holdfastq/holdfast/workshop/slow"
)

// A task that kills its worker at every attempt is dead when it has reached its crash limit.
func TestPoisonTaskEndsAfterItsCrashLimit(t *testing.T) {
	onAFileFirst(t, poisonTaskEndsAfterItsCrashLimit)
}

func poisonTaskEndsAfterItsCrashLimit(t *testing.T, w *world) {
	poisoned(t, w, 2, 1, 0)
}

// Three tasks kill their worker whenever they start. They share its page and its executors with 27 healthy tasks. The
// three tasks are dead when they have reached their crash limit, their attempts are recorded, and all others are done.
func TestPoisonTasksTakeNoHealthyTaskAlong(t *testing.T) {
	onServersFirst(t, poisonTasksTakeNoHealthyTaskAlong)
}

func poisonTasksTakeNoHealthyTaskAlong(t *testing.T, w *world) {
	poisoned(t, w, 3, 3, 27)
}

// poisoned runs poison tasks and healthy tasks on one worker process. It starts the process again after each kill.
func poisoned(t *testing.T, w *world, limit, poison, healthy int) {
	w.lease = shortLease()
	settings := []string{"HOLDFAST_DEFAULTS_MAX_CRASHES=" + strconv.Itoa(limit)}
	if !w.embedded { // on a file, the killed process is the only one
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
	var poisonIDs []holdfast.TaskID
	for i := range poison { // put healthy tasks next to each poison task
		w.enqueue(t, (healthy+i)/poison, httpTask(good))
		poisonIDs = append(poisonIDs, w.enqueue(t, 1, httpTask(bad))...)
	}
	began, patience := time.Now(), slow.Times(4*time.Minute)
	for w.unfinished(t) > 0 {
		if time.Since(began) > patience {
			t.Fatalf("%d tasks are not final after %d kills", w.unfinished(t), kills.Load())
		}
		p := w.spawn(t, settings, append(w.workerFlags(), "--concurrency", "50")...)
		victim.Store(p)
		for ended := false; !ended && w.unfinished(t) > 0 && time.Since(began) < patience; {
			select {
			case <-p.Ended():
				ended = true
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	t.Logf("%d kills until all tasks were final, in %s", kills.Load(), time.Since(began).Round(time.Second))
	w.checkPoison(t, poisonIDs, limit)
}

// unfinished returns the number of tasks that are not final.
func (w *world) unfinished(t *testing.T) int64 {
	t.Helper()
	counts, err := w.Store.Count(t.Context(), store.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return counts.By[holdfast.Ready] + counts.By[holdfast.Running]
}

// sender returns the PID of the process that runs the attempt of a call, and 0 if none runs it. The target may read a
// call after its sender was killed. The test must not kill the next process because of such a call.
func (w *world) sender(t *testing.T, c call) int {
	task, err := w.Store.Task(t.Context(), c.task)
	if err != nil || task.Attempt != c.attempt {
		return 0
	}
	workers, err := w.Store.Workers(t.Context(), true)
	if err != nil {
		t.Errorf("find the worker of task %s: %v", c.task, err)
	}
	for _, worker := range workers {
		if worker.ID == task.Worker {
			return worker.PID
		}
	}
	return 0
}

// checkPoison checks the final state and the attempts of every task.
func (w *world) checkPoison(t *testing.T, poisonIDs []holdfast.TaskID, limit int) {
	t.Helper()
	page, err := w.Store.List(t.Context(), store.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	tasks := page.Tasks
	lastWorkers := map[holdfast.WorkerID]holdfast.TaskID{}
	for _, id := range poisonIDs {
		task := w.task(t, id)
		attempts, err := w.Store.Attempts(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		// A crash of a task that was claimed into the buffer is not charged, but that never happens twice in a row.
		uncharged := func(a holdfast.Attempt) bool { return a.Event == holdfast.EventInterrupt }
		charged := slices.DeleteFunc(slices.Clone(attempts), uncharged)
		if task.State != holdfast.Dead || task.Crashes != limit || task.Failures != 0 || len(charged) != limit {
			t.Fatalf("the poison task %s is %s with %d crashes and %d failures; want dead with %d and 0; its attempts: %+v",
				id, task.State, task.Crashes, task.Failures, limit, attempts)
		}
		for i := range attempts[1:] {
			if uncharged(attempts[i]) && uncharged(attempts[i+1]) {
				t.Errorf("two crashes of the poison task %s in a row are not charged: %+v", id, attempts)
			}
		}
		for i, a := range charged {
			event := holdfast.EventCrash
			if i == limit-1 {
				event = holdfast.EventGiveUp
				lastWorkers[a.Worker] = id
			}
			if a.Event != event || a.Class != "crash" || a.WorkerName == "" {
				t.Errorf("crash %d of the poison task %s is %+v", i+1, id, a)
			}
		}
	}
	most := 0
	for _, task := range tasks {
		if slices.Contains(poisonIDs, task.ID) {
			continue
		}
		if most = max(most, task.Crashes); task.State != holdfast.Done {
			t.Errorf("the healthy task %s is %s with %d crashes: %s", task.ID, task.State, task.Crashes, task.LastError)
		}
		attempts, err := w.Store.Attempts(t.Context(), task.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attempts { // a success does not count: the task may have run before the poison task
			if killer, last := lastWorkers[a.Worker]; last && a.Event != holdfast.EventComplete {
				t.Errorf("the healthy task %s was in flight during the last-chance execution of the poison task %s", task.ID, killer)
			}
		}
	}
	t.Logf("%d healthy tasks, at most %d crashes of one of them, the limit is %d", len(tasks)-len(poisonIDs), most, limit)
}
