package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// faulty is a world whose tables are changed by hand, so that tasks break invariants.
type faulty struct {
	*testing.T
	*world
	want map[store.FaultCode]holdfast.TaskID
}

// exec executes a statement. The words past, future and epoch stand for times of the backend.
func (f *faulty) exec(statement string) {
	f.Helper()
	times := []string{"past", "now() - interval '2 minutes'", "future", "now() + interval '1 year'", "epoch", "to_timestamp(0)"}
	if f.embedded {
		times = []string{"past", "(unixepoch() - 120) * 1000000", "future", "(unixepoch() + 31536000) * 1000000", "epoch", "0"}
	}
	f.change(f.T, strings.NewReplacer(times...).Replace(statement))
}

// insert stores a task and returns its ticket. The task has an outbox entry until confirm is called.
func (f *faulty) insert(task holdfast.NewTask) (ticket message.Ticket, confirm func()) {
	f.Helper()
	task.Type, task.Queue, task.MaxAttempts = "work", holdfast.DefaultQueue, 3
	inserted, err := f.Store.Insert(f.Context(), []holdfast.NewTask{task}, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	return message.Ticket{Task: inserted.Tasks[0].ID, Attempt: 1}, func() {
		for _, entry := range inserted.Entries {
			if err := f.Store.DeleteOutbox(f.Context(), []int64{entry.ID}); err != nil {
				f.Fatal(err)
			}
		}
	}
}

// register registers a worker that no process serves.
func (f *faulty) register() holdfast.WorkerID {
	f.Helper()
	worker, err := f.Store.RegisterWorker(f.Context(), store.WorkerInfo{Name: "no process", Concurrency: 4, Types: []string{"work"}}, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	return worker
}

// running stores a task and claims it for a new worker.
func (f *faulty) running() (holdfast.TaskID, holdfast.WorkerID) {
	f.Helper()
	ticket, confirm := f.insert(holdfast.NewTask{})
	confirm()
	worker := f.register()
	claims, err := f.Store.Claim(f.Context(), worker, store.AnyOf("work"), []message.Ticket{ticket}, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		f.Fatalf("claim: %v, %v", claims, err)
	}
	return ticket.Task, worker
}

// deliverSentinel sends a sentinel and records its arrival, as a janitor and a worker do.
func (f *faulty) deliverSentinel() {
	f.Helper()
	sentinels, err := f.Store.SentinelsDue(f.Context(), 0, 0)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range sentinels {
		if err := f.Store.Drained(f.Context(), s); err != nil {
			f.Fatal(err)
		}
	}
}

// inject makes one task of each kind of fault.
func (f *faulty) inject() {
	f.Helper()
	f.want = make(map[store.FaultCode]holdfast.TaskID)

	ticket, confirm := f.insert(holdfast.NewTask{}) // published by no component
	confirm()
	f.want[store.LostTicket] = ticket.Task
	f.deliverSentinel()
	if err := f.Store.KeepSentinels(f.Context(), time.Hour); err != nil {
		f.Fatal(err)
	}
	f.deliverSentinel()

	task, worker := f.running()
	f.exec("update {workers} set state = 'dead', ended_at = past where id = " + worker.String())
	f.want[store.ZombieEnded] = task
	task, worker = f.running()
	f.exec("update {tasks} set started_at = past where id = " + task.String())
	f.exec("delete from {workers} where id = " + worker.String())
	f.want[store.ZombieMissing] = task
	task, worker = f.running()
	f.exec("update {workers} set renewed_at = past, lease_until = past where id = " + worker.String())
	f.want[store.ZombieExpired] = task

	idle := f.register()
	f.exec("update {workers} set started_at = past where id = " + idle.String())
	ticket, _ = f.insert(holdfast.NewTask{Delay: time.Hour})
	f.exec("update {tasks} set due_at = past, next_run_at = past where id = " + ticket.Task.String())
	f.want[store.OverdueDispatch] = ticket.Task
	ticket, _ = f.insert(holdfast.NewTask{Delay: time.Hour})
	f.exec("update {tasks} set due_at = future, next_run_at = past where id = " + ticket.Task.String())
	f.want[store.OverduePostponed] = ticket.Task
	if !f.embedded { // the file has a constraint against it
		ticket, _ = f.insert(holdfast.NewTask{Delay: time.Hour})
		f.exec("update {tasks} set due_at = null where id = " + ticket.Task.String())
		f.want[store.LostRecord] = ticket.Task
	}

	ticket, confirm = f.insert(holdfast.NewTask{})
	confirm()
	f.exec("insert into {attempts} (task_id, attempt, event, worker_name, finished_at, class, error) values (" +
		ticket.Task.String() + ", 1, 'retry', 'somebody', past, 'error', 'failed')")
	f.want[store.DuplicatedAttempt] = ticket.Task
	ticket, _ = f.insert(holdfast.NewTask{})
	f.exec("insert into {outbox} (queue, task_ids, created_at, publish_after) select queue, task_ids, created_at, publish_after from {outbox}")
	f.want[store.DuplicatedEntry] = ticket.Task
}

// verify returns the faulty tasks by code.
func (f *faulty) verify() map[store.FaultCode]holdfast.TaskID {
	f.Helper()
	report, err := janitor.Verify(f.Context(), f.Store, janitor.VerifyOptions{Limits: store.VerifyLimits{Slack: time.Microsecond}, Confirm: time.Millisecond})
	if err != nil {
		f.Fatal(err)
	}
	found := make(map[store.FaultCode]holdfast.TaskID)
	for _, finding := range report.Findings {
		if other, twice := found[finding.Code]; twice {
			f.Errorf("%s: task %s and task %s", finding.Code, other, finding.Task)
		}
		found[finding.Code] = finding.Task
	}
	return found
}

// Each kind of fault is shown as soon as its time limit has passed. With a janitor and a worker, the tasks finish,
// except those that need a new attempt by hand.
func TestInjectedFaultsAreShownAndRepaired(t *testing.T) {
	onServersFirst(t, injectedFaultsAreShownAndRepaired)
}

func injectedFaultsAreShownAndRepaired(t *testing.T, w *world) {
	f := &faulty{T: t, world: w}
	if found := f.verify(); len(found) > 0 {
		t.Fatalf("before any fault: %v", found)
	}
	f.inject()
	found := f.verify()
	for _, fault := range store.Faults() {
		if want, injected := f.want[fault.Code]; found[fault.Code] != want && (injected || fault.Code != store.OverdueTicket) {
			t.Errorf("%s: task %s, want task %s", fault.Code, found[fault.Code], want)
		}
	}
	if len(found) != len(f.want) {
		t.Errorf("found %v, want %v", found, f.want)
	}
	results, err := w.Store.VerifyResults(t.Context())
	if err != nil || len(results) != len(store.VerifyParts()) {
		t.Errorf("the stored results are %v, %v", results, err)
	}

	for _, code := range []store.FaultCode{store.OverduePostponed, store.DuplicatedAttempt} { // a person must repair these
		w.move(t, store.ActionCancel, f.want[code])
		w.move(t, store.ActionRetry, f.want[code])
	}
	f.exec("update {outbox} set publish_after = past")
	w.runJanitor(t, w.Backend, nil)
	w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{"work": consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil })})
	for code, id := range f.want {
		w.awaitTask(t, id, string(code)+" repaired", in(holdfast.Done))
	}
	poll(t, func() string { return "the janitor still shows faults" }, func(ctx context.Context) bool {
		results, err := w.Store.VerifyResults(ctx)
		return err == nil && !slices.ContainsFunc(results, func(r store.VerifyResult) bool { return len(r.Counts) > 0 })
	})

	if found := f.verify(); len(found) > 0 {
		t.Errorf("after the repair: %v", found)
	}
}

// steal takes all messages out of the main queue until it has taken a sentinel and n tickets, as a purge does.
func (w *world) steal(t *testing.T, n int) {
	t.Helper()
	sub, err := w.Broker.Subscribe(t.Context(), w.Topology.Main(holdfast.DefaultQueue), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for sentinel := false; n > 0 || !sentinel; {
		select {
		case d := <-sub.Deliveries():
			m, err := message.Decode(d.Body)
			if err != nil {
				t.Fatal(err)
			}
			sentinel = sentinel || m.Sentinel != nil
			n -= len(m.Tickets)
			if err := sub.Ack(d.Tag, broker.One); err != nil {
				t.Fatal(err)
			}
		case <-time.After(slow.Patience()):
			t.Fatal("no sentinel is in the queue")
		}
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
}

var purges = flag.Int("purges", 1, "number of purges at the same time, for a distribution of times")

// With default settings, the loss of all messages of a queue is shown, also if a sentinel was among them. The log has
// the times from the purge until the fault is shown. This command measures a distribution:
//
//	HOLDFAST_TEST_ALL=1 go test -run PurgeThatTakes -v ./workshop/e2e -purges 16 -parallel 16
func TestAPurgeThatTakesASentinelIsShown(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	servers(t)
	var mu sync.Mutex
	var times []time.Duration
	t.Run("purges", func(t *testing.T) {
		for i := range *purges {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				took := newWorld(t).purge(t, time.Duration(i)*3700*time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				times = append(times, took)
			})
		}
	})
	slices.Sort(times)
	t.Log("shown after", times)
}

// purge purges a queue when the given time has passed since the arrival of a sentinel of an earlier task. It returns
// how long after the purge the lost tickets are shown.
func (w *world) purge(t *testing.T, delay time.Duration) time.Duration {
	const n = 20
	done := map[string]consumer.Handler{"work": consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil })}
	w.runJanitor(t, w.Backend, nil)
	_, stop := w.runWorker(t, w.Backend, nil, done)
	w.enqueue(t, 1, holdfast.NewTask{Type: "work"})
	poll(t, func() string { return "no sentinel arrives" }, func(ctx context.Context) bool {
		queues, err := w.Store.Queues(ctx)
		return err == nil && len(queues) == 1 && !queues[0].DrainedAt.IsZero()
	})

	time.Sleep(delay)
	stop()
	w.enqueue(t, n, holdfast.NewTask{Type: "work"})
	w.steal(t, n)
	began := time.Now()
	w.runWorker(t, w.Backend, nil, done)
	pollFor(t, slow.Times(10*time.Minute), func() string { return "no fault is shown" }, func(ctx context.Context) bool {
		results, err := w.Store.VerifyResults(ctx)
		return err == nil && slices.ContainsFunc(results, func(r store.VerifyResult) bool { return len(r.Counts) > 0 })
	})

	return time.Since(began)
}

var finished = flag.Int("finished", 0, "number of finished tasks for TestFaultsInALargeStoreAreShown")

// The store has many finished tasks and a tenth as many ready ones. The faults that only a scan of the open tasks finds
// are shown. The log has the times from the fault until it is shown. The test needs minutes and 1 GB for a million
// tasks:
//
//	go test -run FaultsInALargeStore -v ./workshop/e2e -finished 5000000
func TestFaultsInALargeStoreAreShown(t *testing.T) {
	if *finished == 0 {
		t.Skip("run it with -finished 5000000")
	}
	t.Parallel()
	f := &faulty{T: t, world: newWorld(t)}
	f.exec(fmt.Sprintf(`insert into {tasks} (type, queue, max_attempts, payload, state, finished_at, due_at, next_run_at)
		select 'type' || n %% 20, 'default', 10, '{"url": "https://example.com/hook", "body": {"order": 7}}',
			case when n <= %[1]d then 'done' else 'ready' end, case when n <= %[1]d then now() end,
			case when n > %[1]d then future end, case when n > %[1]d then future else now() end
		from generate_series(1, %[1]d + %[1]d / 10) n`, *finished))
	f.exec("vacuum analyze {tasks}")
	f.runJanitor(t, f.Backend, nil)
	f.runWorker(t, f.Backend, nil, map[string]consumer.Handler{"work": consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil })})
	for range *finished*11/10/100_000 + 1 { // blocks of the counters
		if _, err := f.Store.Recount(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	f.exec("update {workers} set started_at = past")
	for round := range 2 {
		for code, inject := range map[store.FaultCode]func() holdfast.TaskID{
			store.LostRecord: func() holdfast.TaskID {
				ticket, _ := f.insert(holdfast.NewTask{Delay: time.Hour})
				f.exec("update {tasks} set due_at = null where id = " + ticket.Task.String())
				return ticket.Task
			},
			store.DuplicatedAttempt: func() holdfast.TaskID {
				ticket, _ := f.insert(holdfast.NewTask{Delay: time.Hour})
				f.exec("insert into {attempts} (task_id, attempt, event, worker_name, finished_at, class, error) values (" +
					ticket.Task.String() + ", 1, 'retry', 'somebody', past, 'error', 'failed')")
				return ticket.Task
			},
			store.ZombieMissing: func() holdfast.TaskID {
				task, worker := f.running()
				f.exec("delete from {workers} where id = " + worker.String())
				return task
			},
			store.OverduePostponed: func() holdfast.TaskID {
				ticket, _ := f.insert(holdfast.NewTask{Delay: time.Hour})
				f.exec("update {tasks} set due_at = future, next_run_at = now() where id = " + ticket.Task.String())
				return ticket.Task
			},
		} {
			shown := func(ctx context.Context) (codes []store.FaultCode) {
				results, err := f.Store.VerifyResults(ctx)
				if err != nil {
					return []store.FaultCode{"?"}
				}
				for _, r := range results {
					for _, c := range r.Counts {
						codes = append(codes, c.Code)
					}
				}
				return codes
			}
			pollFor(t, slow.Times(10*time.Minute), func() string { return "an earlier fault is still shown" }, func(ctx context.Context) bool { return len(shown(ctx)) == 0 })
			time.Sleep(time.Duration(rand.IntN(15_000)) * time.Millisecond)
			began, id := time.Now(), inject()
			pollFor(t, slow.Times(10*time.Minute), func() string { return string(code) + " is not shown" }, func(ctx context.Context) bool { return slices.Contains(shown(ctx), code) })
			t.Logf("round %d: %s shown after %s", round, code, time.Since(began).Round(time.Second))
			if code == store.OverduePostponed || code == store.DuplicatedAttempt { // a person must repair these
				f.move(t, store.ActionCancel, id)
			}
		}
	}
}
