package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/settings"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

var anna = store.Actor{Name: "anna", Surface: store.CommandLine, Reason: "test"}

// set stores settings, given as keys and values.
func (w *world) set(t *testing.T, pairs ...string) {
	t.Helper()
	r := app.SettingsRequest{Set: make(map[string]string)}
	for i := 0; i < len(pairs); i += 2 {
		r.Set[pairs[i]] = pairs[i+1]
	}
	if _, err := w.ChangeSettings(t.Context(), anna, r); err != nil {
		t.Fatal(err)
	}
}

// severed is a store of settings that a test cuts off.
type severed struct {
	desk.Store
	cut atomic.Bool
}

func (s *severed) StoredSettings(ctx context.Context, known int64) (store.StoredSettings, error) {
	if s.cut.Load() {
		return store.StoredSettings{}, fmt.Errorf("cut off: %w", holdfast.ErrUnavailable)
	}
	return s.Store.StoredSettings(ctx, known)
}

// settingsWorker is a worker whose tasks are in a queue of its own.
type settingsWorker struct {
	queue    string
	settings holdfast.SettingsSource
	failures atomic.Int64
}

// TestThreeWorkersSeeChangedSettings changes the delay of tasks that fail all the time. Each of three workers uses the
// new delay for its tasks. One worker is cut off from the store meanwhile, and uses the delay after it has reconnected.
func TestThreeWorkersSeeChangedSettings(t *testing.T) {
	onServersFirst(t, func(t *testing.T, w *world) {
		const kind, tasks = "failing", 5
		var workers []*settingsWorker
		var cut, heal func()
		for i := range 3 {
			b := w.Backend
			source := b.Settings()
			switch {
			case w.embedded && i == 2: // all workers are in the process that serves the file
				gate := &severed{Store: w.Store}
				cut, heal = func() { gate.cut.Store(true) }, func() { gate.cut.Store(false) }
				own := settings.New(gate, nil)
				background(t, own.Run)
				source = own.Over(w.Config)
			case !w.embedded:
				address := w.databaseURL
				if i == 2 {
					proxy, through := proxied(t, address)
					cut, heal, address = proxy.Cut, proxy.Heal, through
				}
				b = w.connect(t, address, w.amqpURL)
				t.Cleanup(func() { _ = b.Close() })
				source = b.Settings()
			}
			worker := &settingsWorker{queue: fmt.Sprintf("q%d", i+1), settings: source}
			workers = append(workers, worker)
			w.runWorker(t, b, func(o *consumer.Options) {
				o.Name, o.Queues, o.Settings, o.Concurrency = fmt.Sprintf("%s of %s", worker.queue, t.Name()), []string{worker.queue}, source, 5
			}, map[string]consumer.Handler{kind: consumer.HandlerFunc(func(context.Context, holdfast.Task) error {
				worker.failures.Add(1)
				return errors.New("always")
			})})
			w.enqueue(t, tasks, holdfast.NewTask{Type: kind, Queue: worker.queue, MaxAttempts: 1_000_000})
		}
		w.runJanitor(t, w.Backend, nil)
		for _, worker := range workers {
			poll(t, func() string { return worker.queue + ": its tasks do not run" }, func(context.Context) bool {
				return worker.failures.Load() > 2*tasks
			})
		}
		asleep := func(worker *settingsWorker) func(context.Context) bool {
			return func(ctx context.Context) bool {
				page, err := w.Store.List(ctx, store.Filter{Queue: worker.queue})
				if err != nil || len(page.Tasks) != tasks {
					return false
				}
				for _, task := range page.Tasks {
					if task.State != holdfast.Ready || time.Until(task.NextRunAt) < 30*time.Minute {
						return false
					}
				}
				return true
			}
		}
		cut()
		w.set(t, "types."+kind+".retry.base", "1h")
		changed := time.Now()
		for _, worker := range workers[:2] {
			poll(t, func() string { return worker.queue + ": its tasks are retried too early" }, func(context.Context) bool {
				return worker.settings.For(kind).Policy.Base == time.Hour
			})

			t.Logf("%s: the worker has seen the change after %s", worker.queue, time.Since(changed))
		}
		for _, worker := range workers[:2] {
			poll(t, func() string { return worker.queue + ": its tasks are retried too early" }, asleep(worker))
		}
		if got := workers[2].settings.For(kind).Policy.Base; got != 200*time.Millisecond {
			t.Errorf("the worker that is cut off has the delay %s", got)
		}
		heal()
		poll(t, func() string { return workers[2].queue + ": its tasks are retried too early" }, asleep(workers[2]))
	})
}

// TestEveryRoleSeesChangedSettings changes settings while a producer, a janitor, a worker and explanations use them.
func TestEveryRoleSeesChangedSettings(t *testing.T) {
	onAFileFirst(t, func(t *testing.T, w *world) {
		const kind = "crashing"
		p := w.Producer(nil)
		defer p.Close()
		enqueue := func(n holdfast.NewTask) holdfast.TaskID {
			r, err := p.Enqueue(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			return r.ID
		}
		// The janitor charges the task of a dead worker a crash. By then, one crash is the limit.
		w.runJanitor(t, w.Backend, nil)
		dying, err := w.Store.RegisterWorker(t.Context(), store.WorkerInfo{Name: "dying"}, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		crashing := enqueue(holdfast.NewTask{Type: kind})
		claims, err := w.Store.Claim(t.Context(), dying, store.AnyOf(kind), []message.Ticket{{Task: crashing, Attempt: 1}}, store.IntoExecutors)
		if err != nil || len(claims) != 1 {
			t.Fatalf("claims %+v: %v", claims, err)
		}
		w.set(t, "types."+kind+".max_crashes", "1", "types.new.queue", "elsewhere", "types.new.max_attempts", "3", "defaults.retry.base", "20m")
		if died := w.awaitTask(t, crashing, "dead", in(holdfast.Dead)); died.Crashes != 1 {
			t.Errorf("the task of the dead worker has %d crashes", died.Crashes)
		}

		poll(t, func() string { return "the producer stores tasks with the old queue" }, func(context.Context) bool {
			task := w.task(t, enqueue(holdfast.NewTask{Type: "new"}))
			return task.Queue == "elsewhere" && task.MaxAttempts == 3
		})

		e, err := w.Explain(t.Context(), enqueue(holdfast.NewTask{Type: "new", Queue: "other"}))
		if err != nil || !regexp.MustCompile(`fails, attempt 2 is due (1[89]|2[0-2])m`).MatchString(fmt.Sprint(e.Next)) {
			t.Errorf("the explanation is %q: %v", e.Next, err)
		}

		// An attempt uses the timeout that is set when the attempt starts.
		runs := make(chan time.Time, 100)
		w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{"limited": consumer.HandlerFunc(func(ctx context.Context, _ holdfast.Task) error {
			deadline, _ := ctx.Deadline()
			runs <- deadline
			return nil
		})})
		enqueue(holdfast.NewTask{Type: "limited"})
		if deadline := <-runs; !deadline.IsZero() {
			t.Errorf("without a timeout the handler ends at %s", deadline)
		}
		w.set(t, "types.limited.timeout", "30m")
		poll(t, func() string { return "the attempts have no timeout" }, func(context.Context) bool {
			enqueue(holdfast.NewTask{Type: "limited"})
			return time.Until(<-runs) > 20*time.Minute
		})
	})
}
