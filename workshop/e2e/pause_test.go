package e2e

import (
	"context"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// pauseTargets are the targets of a test of pauses. Half of the tasks call the first one, in the queue mail; the others
// call the second one, in the default queue.
type pauseTargets struct {
	first, other *target
	long         atomic.Bool   // the next call of the paused target waits until release is closed
	release      chan struct{} // closed to answer the long call
	paused       atomic.Bool   // the command that pauses has returned
}

func newPauseTargets(t *testing.T) *pauseTargets {
	p := &pauseTargets{release: make(chan struct{})}
	answer := func(c call) int {
		took := 300 * time.Millisecond // so that the test can add tasks faster than they run
		if p.paused.Load() {
			took = 10 * time.Millisecond
		}
		select {
		case <-time.After(took):
		case <-c.ctx.Done():
		}
		return 200
	}
	p.first = newTarget(t, func(c call) int {
		if p.long.CompareAndSwap(true, false) {
			select {
			case <-p.release:
			case <-c.ctx.Done():
			}
			return 200
		}
		return answer(c)
	})
	p.other = newTarget(t, answer)
	return p
}

// Three workers take the tasks of a subject that a person pauses: a queue, a target, and then a type. One of the
// workers is cut off from PostgreSQL during the command. After the command has returned, no worker claims a task of the
// subject. The handler that runs continues. After the command that resumes, each attempt runs once.
func TestNothingOfAPausedSubjectStarts(t *testing.T) {
	onServersFirst(t, nothingOfAPausedSubjectStarts)
}

func nothingOfAPausedSubjectStarts(t *testing.T, w *world) {
	cut, heal := func() {}, func() {}
	if w.embedded {
		w.serve(t, nil, "--concurrency", "5")
	} else {
		proxy, through := proxied(t, w.databaseURL)
		cut, heal = proxy.Cut, proxy.Heal
		w.serve(t, nil, "--roles", "janitor")
		for _, address := range []string{w.databaseURL, w.databaseURL, through} {
			w.serve(t, []string{"DATABASE_URL=" + address}, "--roles", "worker", "--concurrency", "5")
		}
	}
	for _, noun := range []string{"queue", "target", "type"} {
		targets := newPauseTargets(t)
		name := map[string]string{"queue": "mail", "target": targets.first.URL + "/hook", "type": "http"}[noun]
		half := slow.Pick(100, 200)
		mail := httpTask(targets.first)
		mail.Queue = "mail"
		targets.long.Store(true)
		ids := w.enqueue(t, 1, mail)
		targets.first.await(t, "the long task runs", func(calls []call) bool { return len(open(calls)) == 1 })
		ids = append(ids, w.enqueue(t, half, mail)...)
		others := w.enqueue(t, half, httpTask(targets.other))
		targets.first.await(t, "some tasks run", func(calls []call) bool { return len(calls) > 20 })

		cut()
		paused := make(chan struct{})
		go func() {
			defer close(paused)
			if _, problems, code := w.run(t, noun, "pause", name, "--reason", "test"); code != 0 {
				t.Errorf("%s pause: exit code %d\n%s", noun, code, problems)
			}
		}()
		poll(t, func() string { return noun + " pause does not return" }, func(context.Context) bool {
			if calls, _ := targets.first.snapshot(); len(ids)-len(calls) < half { // so that tasks are left, however long the command takes
				ids = append(ids, w.enqueue(t, half, mail)...)
			}
			select {
			case <-paused:
				return true
			default:
				return false
			}
		})
		concerned := ids
		if noun == "type" {
			concerned = slices.Concat(ids, others)
		}
		returned, err := w.Store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		heal()
		targets.paused.Store(true)
		if noun == "type" {
			poll(t, func() string { return "the time does not pass" }, func(ctx context.Context) bool {
				now, err := w.Store.Now(ctx)
				return err == nil && now.Sub(returned) > 2*time.Second
			})
		} else {
			for _, id := range others {
				w.awaitTask(t, id, "done", in(holdfast.Done))
			}
		}
		waiting := 0
		for _, id := range concerned {
			task := w.task(t, id)
			if task.State == holdfast.Ready {
				waiting++
			} else if task.StartedAt.After(returned) {
				t.Errorf("%s: task %s was claimed %s after the command that pauses had returned", noun, id, task.StartedAt.Sub(returned))
			}
		}
		if waiting == 0 {
			t.Fatalf("%s: no task waits, so the pause came too late", noun)
		}
		if out, problems, code := w.run(t, "verify", "tasks"); code != 0 {
			t.Errorf("%s: verify tasks: exit code %d\n%s%s", noun, code, out, problems)
		}
		if task := w.task(t, ids[0]); task.State != holdfast.Running || task.Attempt != 1 {
			t.Errorf("%s: the task that ran is %s at attempt %d", noun, task.State, task.Attempt)
		}
		close(targets.release)
		w.awaitTask(t, ids[0], "done", in(holdfast.Done))
		t.Logf("%s: %d tasks wait", noun, waiting)

		if _, problems, code := w.run(t, noun, "resume", name); code != 0 {
			t.Fatalf("%s resume: exit code %d\n%s", noun, code, problems)
		}
		for _, id := range append(append([]holdfast.TaskID{}, ids...), others...) {
			w.awaitTask(t, id, "done", in(holdfast.Done))
		}
		for _, tg := range []*target{targets.first, targets.other} {
			calls, _ := tg.snapshot()
			eachAttemptOnce(t, w, calls)
		}
	}
}

// eachAttemptOnce checks that no attempt was called twice, and that no task has more calls than attempts.
func eachAttemptOnce(t *testing.T, w *world, calls []call) {
	t.Helper()
	for id, of := range byTask(calls) {
		seen := make(map[int]bool)
		for _, c := range of {
			if seen[c.attempt] {
				t.Errorf("attempt %d of task %s was called twice", c.attempt, id)
			}
			seen[c.attempt] = true
		}
		if task := w.task(t, id); len(of) > task.Attempt {
			t.Errorf("task %s at attempt %d was called %d times", id, task.Attempt, len(of))
		}
	}
}

// A janitor is killed with kill -9 in the middle of the release of blocked tasks. Another one continues, and each
// attempt runs once.
func TestAKilledJanitorReleasesEveryTask(t *testing.T) {
	onServersFirst(t, aKilledJanitorReleasesEveryTask)
}

func aKilledJanitorReleasesEveryTask(t *testing.T, w *world) {
	n := slow.Pick(1000, 5000)
	tg := newTarget(t, func(call) int { return 200 })
	subject, anna := store.Subject{Type: "http"}, store.Actor{Name: "anna", Surface: store.CommandLine}
	paused, err := w.Store.Pause(t.Context(), anna, store.PauseFor(subject, 0))
	if err != nil {
		t.Fatal(err)
	}
	w.blockTasks(t, paused.After.ID, n, httpTask(tg))
	if _, err := w.Store.Resume(t.Context(), anna, subject); err != nil {
		t.Fatal(err)
	}
	roles := []string{}
	if !w.embedded {
		w.spawn(t, nil, "--roles", "worker", "--concurrency", "50") // ready only after a janitor has declared the queues
		roles = []string{"--roles", "janitor"}
	}
	janitor := w.spawn(t, nil, roles...)
	tg.await(t, "the first released tasks run", func(calls []call) bool { return len(calls) > 0 })
	janitor.signal(syscall.SIGKILL)
	janitor.exit()
	left, err := w.Store.ReleaseBlocked(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the killed janitor left %d of %d tasks", left.Tasks, n)
	w.spawn(t, nil, roles...)
	w.awaitCount(t, holdfast.Done, int64(n))
	calls, _ := tg.snapshot()
	if tasks := byTask(calls); len(tasks) != n {
		t.Errorf("%d tasks were called, want %d", len(tasks), n)
	}
	eachAttemptOnce(t, w, calls)
}

// blockTasks stores n copies of a task and blocks them at the gate, as a worker does.
func (w *world) blockTasks(t *testing.T, gate store.ID, n int, task holdfast.NewTask) {
	t.Helper()
	worker, err := w.Store.RegisterWorker(t.Context(), store.WorkerInfo{Name: "no process"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	task.Queue, task.MaxAttempts = holdfast.DefaultQueue, 3
	for stored := 0; stored < n; {
		tasks := make([]holdfast.NewTask, min(n-stored, message.MaxTickets))
		for i := range tasks {
			tasks[i] = task
		}
		inserted, err := w.Store.Insert(t.Context(), tasks, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		entry := inserted.Entries[0]
		if err := w.Store.DeleteOutbox(t.Context(), []int64{entry.ID}); err != nil {
			t.Fatal(err)
		}
		claims, err := w.Store.Claim(t.Context(), worker, store.AnyOf(task.Type), entry.Tickets, store.IntoExecutors)
		if err != nil {
			t.Fatal(err)
		}
		for _, claim := range claims {
			if claim.Verdict != store.Blocked || claim.Gate != gate {
				t.Fatalf("the claim is %+v", claim)
			}
		}
		if err := w.Store.Block(t.Context(), gate, entry.Tickets); err != nil {
			t.Fatal(err)
		}
		stored += len(tasks)
	}
	if err := w.Store.DeregisterWorker(t.Context(), worker, true); err != nil {
		t.Fatal(err)
	}
}
