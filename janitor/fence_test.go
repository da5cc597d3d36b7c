package janitor

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// guard allows fencing only after the store has answered without a gap for long enough.
func TestGuardRequiresAnswersWithoutAGap(t *testing.T) {
	t.Parallel()
	const need = 5 * time.Second
	type step struct {
		at     time.Duration
		jump   time.Duration // total jump of the store's clock
		failed bool
		want   bool
	}
	answers := func(from, to time.Duration, want bool) (steps []step) {
		for at := from; at <= to; at += 500 * time.Millisecond {
			steps = append(steps, step{at: at, want: want})
		}
		return steps
	}
	jumped := func(steps []step, jump time.Duration) []step {
		for i := range steps {
			steps[i].jump = jump
		}
		return steps
	}
	const s = time.Second
	join := func(lists ...[]step) (all []step) {
		for _, list := range lists {
			all = append(all, list...)
		}
		return all
	}
	for name, steps := range map[string][]step{
		"first answer":                     {{at: 0}},
		"long enough":                      join(answers(0, 4*s+500*time.Millisecond, false), answers(5*s, 9*s, true)),
		"one nanosecond too soon":          join(answers(0, 4*s+500*time.Millisecond, false), []step{{at: 5*s - 1}, {at: 5 * s, want: true}}),
		"two answers far apart":            {{at: 0}, {at: 5 * s}, {at: 10 * s}, {at: 15 * s}},
		"the longest gap":                  join(answers(0, 4*s+500*time.Millisecond, false), []step{{at: 4*s + 500*time.Millisecond + maxGap, want: true}}),
		"a longer gap":                     join(answers(0, 4*s+500*time.Millisecond, false), []step{{at: 4*s + 500*time.Millisecond + maxGap + 1}}, answers(6*s, 10*s+500*time.Millisecond, false), answers(11*s, 12*s, true)),
		"a failure":                        join(answers(0, 4*s, false), []step{{at: 4 * s, failed: true}}, answers(4*s+500*time.Millisecond, 9*s, false), answers(9*s+500*time.Millisecond, 10*s, true)),
		"a failure after the quiet period": join(answers(0, 4*s+500*time.Millisecond, false), answers(5*s, 6*s, true), []step{{at: 6 * s, failed: true}}, answers(6*s, 10*s+500*time.Millisecond, false), answers(11*s, 11*s, true)),
		"a stopped process":                join(answers(0, 4*s+500*time.Millisecond, false), answers(5*s, 6*s, true), answers(60*s, 64*s+500*time.Millisecond, false), answers(65*s, 65*s, true)),
		"a jump of the clock":              join(answers(0, 4*s, false), jumped(answers(4*s+500*time.Millisecond, 9*s, false), time.Minute), jumped(answers(9*s+500*time.Millisecond, 10*s, true), time.Minute)),
		"a jump back":                      join(answers(0, 4*s, false), jumped(answers(4*s+500*time.Millisecond, 9*s, false), -time.Minute), jumped(answers(9*s+500*time.Millisecond, 10*s, true), -time.Minute)),
		"a jump within the margin":         join(answers(0, 4*s+500*time.Millisecond, false), jumped(answers(5*s, 6*s, true), s)),
		"failures only":                    {{at: 0, failed: true}, {at: s, failed: true}, {at: 6 * s}},
	} {
		g := &guard{need: need}
		begin := time.Now()
		for _, step := range steps {
			if step.failed {
				g.failed()
			} else if got := g.answered(begin.Add(step.at), begin.Add(step.at+step.jump)); got != step.want {
				t.Errorf("%s: at %s: %t, want %t", name, step.at, got, step.want)
			}
		}
	}
}

// fenceRecorder is a store that records the calls of Fence.
type fenceRecorder struct {
	Store
	begin time.Time
	fault func(since time.Duration) (fails bool, delay time.Duration) // behavior of Now; nil means no fault

	mu     sync.Mutex
	fenced []time.Duration
	grace  time.Duration
	settle time.Duration
}

func (r *fenceRecorder) ReportDuty(context.Context, store.DutyFailure) error {
	return holdfast.ErrUnavailable
}

func (c *fenceRecorder) Now(ctx context.Context) (time.Time, error) {
	if c.fault == nil {
		return time.Now(), nil
	}
	fails, delay := c.fault(time.Since(c.begin))
	if backoff.Sleep(ctx, delay) != nil {
		return time.Time{}, ctx.Err()
	}
	if fails {
		return time.Time{}, errFault
	}
	return time.Now(), nil
}

func (c *fenceRecorder) Fence(_ context.Context, _ time.Time, grace, settle time.Duration) ([]holdfast.WorkerID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fenced = append(c.fenced, time.Since(c.begin))
	c.grace, c.settle = grace, settle
	return nil, nil
}

// The janitor does not fence until the store has answered without a gap for a lease and its grace.
func TestFenceWaitsForTheStore(t *testing.T) {
	t.Parallel()
	const s = time.Second
	const need = 5*s + 100*time.Millisecond
	for name, test := range map[string]struct {
		fault    func(time.Duration) (bool, time.Duration)
		duration time.Duration
		want     [][2]time.Duration // periods in which fences are allowed; each must have one
	}{
		"always available":     {nil, 10 * s, [][2]time.Duration{{need, 10 * s}}},
		"never available":      {func(time.Duration) (bool, time.Duration) { return true, 0 }, 60 * s, nil},
		"unavailable at first": {func(at time.Duration) (bool, time.Duration) { return at < 3*s, 0 }, 12 * s, [][2]time.Duration{{3*s + need, 12 * s}}},
		"unavailable later":    {func(at time.Duration) (bool, time.Duration) { return at > 8*s && at < 20*s, 0 }, 30 * s, [][2]time.Duration{{need, 8*s + 1}, {20*s + need, 30 * s}}},
		"one answer fails":     {func(at time.Duration) (bool, time.Duration) { return at > 8*s && at <= 8*s+200*time.Millisecond, 0 }, 16 * s, [][2]time.Duration{{need, 8*s + 1}, {8*s + need, 16 * s}}},
		"hangs later":          {func(at time.Duration) (bool, time.Duration) { return false, hangTime(at, 8*s, 20*s) }, 30 * s, [][2]time.Duration{{need, 8*s + 1}, {20*s + need, 30 * s}}},
		"slow":                 {func(at time.Duration) (bool, time.Duration) { return false, 700 * time.Millisecond }, 12 * s, [][2]time.Duration{{need, 12 * s}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &fenceRecorder{begin: time.Now(), fault: test.fault}
				j, ctx, end := offlineJanitor(t, c)
				go j.fenceLoop(ctx)
				time.Sleep(test.duration)
				end()
				synctest.Wait()
				hits := make([]int, len(test.want))
				for _, at := range c.fenced {
					allowed := false
					for i, span := range test.want {
						if at >= span[0] && at <= span[1] {
							hits[i]++
							allowed = true
						}
					}
					if !allowed {
						t.Errorf("fenced at %s, allowed in %v", at, test.want)
					}
				}
				for i, n := range hits {
					if n == 0 {
						t.Errorf("no fence within %v, but at %v", test.want[i], c.fenced)
					}
				}
				if len(c.fenced) > 0 && (c.grace != 100*time.Millisecond || c.settle != need) {
					t.Errorf("fenced with grace %s and settle time %s", c.grace, c.settle)
				}
			})
		})
	}
}

// hangTime returns how long a call at the given time hangs, if all calls between from and to hang until to.
func hangTime(at, from, to time.Duration) time.Duration {
	if at > from && at < to {
		return to - at
	}
	return 0
}

// After an outage of the store that is longer than a lease, every lease looks expired. The janitor fences no worker
// before live workers have had time to renew. A worker that does not renew is fenced.
func TestAnOutageOfTheStoreFencesNoWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lease, grace := slow.Times(time.Second), slow.Times(250*time.Millisecond)
	remote, proxy := w.proxiedStore()
	var fences atomic.Int32
	j := w.janitor(func(o *Options) {
		o.Store = &faultyStore{Store: remote, fence: func() { fences.Add(1) }}
		o.Lease, o.FenceGrace = lease, grace
	})
	w.background(j.fenceLoop)
	worker := w.registerWorkerFor(lease)
	var renewed atomic.Int32
	stopRenewing := w.background(func(ctx context.Context) {
		for ctx.Err() == nil {
			if _, err := remote.Renew(ctx, store.Renewal{Worker: worker, Lease: lease}); err == nil {
				renewed.Add(1)
			}
			_ = backoff.Sleep(ctx, 100*time.Millisecond)
		}
	})
	w.eventually("the janitor may fence", func() bool { return fences.Load() > 0 })

	proxy.Refuse()
	expired := "select (lease_until < now() - interval '400 milliseconds')::int from holdfast.workers where id = $1"
	w.eventually("the lease has expired", func() bool { return w.number(expired, int64(worker)) == 1 })
	fencesBefore, renewalsBefore := fences.Load(), renewed.Load()
	healed := time.Now()
	proxy.Heal()
	w.eventually("the janitor may fence again", func() bool { return fences.Load() > fencesBefore })
	if waited := time.Since(healed); waited < lease+grace {
		t.Errorf("the janitor fenced %s after the outage, before %s", waited, lease+grace)
	}
	w.eventually("the worker has renewed its lease", func() bool { return renewed.Load() > renewalsBefore })
	if states, err := w.store.WorkerStates(t.Context(), []holdfast.WorkerID{worker}); err != nil || states[worker].State != store.WorkerLive {
		t.Fatalf("after the outage the worker is %v, %v", states[worker].State, err)
	}

	stopRenewing()
	w.eventually("the worker that does not renew is fenced", func() bool {
		states, err := w.store.WorkerStates(t.Context(), []holdfast.WorkerID{worker})
		return err == nil && states[worker].State == store.WorkerDead
	})
}

// One of several janitors fences a worker, once. Its tasks are taken back once, without delay, even if no manifest
// lists them.
func TestOneOfSeveralJanitorsTakesTheTasksBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lease := slow.Times(500 * time.Millisecond) // long enough for the claim
	for range 3 {
		w.run(w.janitor(func(o *Options) { o.Lease, o.FenceGrace = lease, lease/5 }))
	}
	list := w.ticketed(30)
	w.claim(w.registerWorkerFor(lease), list...)
	w.eventually("the tasks have tickets again", func() bool {
		return w.number("select count(*) from holdfast.tasks where state = 'ready' and ticketed_at is not null") == len(list)
	})
	want := make([]message.Ticket, len(list))
	for i, ticket := range list {
		want[i] = next(ticket)
		if task := w.task(ticket.Task); task.Crashes != 1 || task.Attempt != 2 || task.Failures != 0 {
			t.Errorf("got %+v", task)
		}
	}
	w.sameTickets("in the requeue queue", w.takeTickets(w.requeue()), want)
	if fenced, back := w.observed.Of(holdfast.ObservedFenced), w.observed.Of(holdfast.ObservedRecovered); fenced != 1 || back != len(list) {
		t.Errorf("%d workers fenced, %d tasks taken back, want 1 and %d", fenced, back, len(list))
	}
	attempts, err := w.store.Attempts(t.Context(), list[0].Task)
	if err != nil || len(attempts) != 1 || attempts[0].Class != "crash" || attempts[0].Event != holdfast.EventCrash {
		t.Errorf("attempts are %+v, %v", attempts, err)
	}
}

// The janitor tries to take tasks back until it succeeds. A task that has crashed too many workers becomes dead.
func TestTakingTasksBackIsRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int32
	log, hook := test.NewNullLogger()
	j := w.janitor(func(o *Options) {
		o.Log = log
		o.Store = &faultyStore{Store: w.store, apply: func() error {
			if tries.Add(1) <= 2 {
				return errFault
			}
			return nil
		}}
		policy := holdfast.DefaultPolicy()
		policy.MaxCrashes = 1
		o.Settings = holdfast.Settings{Defaults: holdfast.TypeSettings{Policy: policy}}
	})
	worker := w.registerWorker()
	task := w.claim(worker, w.ticketed(1)...)[0]
	w.kill(worker)
	j.fenced <- struct{}{}
	w.background(j.sweepFenced)
	w.eventually("the task is dead", func() bool { return w.task(task.ID).State == holdfast.Dead })
	if n := tries.Load(); n < 3 { // more, if the store does not answer in time
		t.Errorf("%d tries, want 3", n)
	}
	w.eventually("the death is logged", func() bool {
		return slices.ContainsFunc(hook.AllEntries(), func(e *logrus.Entry) bool {
			return e.Message == "task is dead" && e.Data["task"] == task.ID
		})
	})
}

// sweepAll takes back the tasks of dead and stopped workers, and no others.
func TestSweepAllTakesBackTasksOfEndedWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead, stopped, live := w.registerWorker(), w.registerWorker(), w.registerWorker()
	list := w.ticketed(4)
	w.claim(dead, list[0])
	w.claim(stopped, list[1])
	kept := w.claim(live, list[2])[0]
	w.kill(dead)
	w.must(w.store.DeregisterWorker(t.Context(), stopped, false))
	ready := w.task(list[3].Task)
	w.must(w.janitor(nil).sweepAll(t.Context()))
	for _, ticket := range list[:2] {
		if task := w.task(ticket.Task); task.State != holdfast.Ready || task.Attempt != 2 || task.Crashes != 1 || w.position(ticket).Ticketed {
			t.Errorf("got %+v", task)
		}
	}
	w.unchanged(kept)
	w.unchanged(ready)
}

// A handler that hangs after CompleteTx locks the row of its task. The janitor takes back the other tasks of the worker,
// and that task when the transaction ends.
func TestAHungTransactionDelaysOnlyItsTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker, err := w.store.RegisterWorker(t.Context(), store.WorkerInfo{Name: "hangs"}, time.Hour)
	w.must(err)
	inserted, err := w.store.Insert(t.Context(), slices.Repeat([]holdfast.NewTask{{Type: "x", Queue: "default", MaxAttempts: 3}}, 5), time.Hour)
	w.must(err)
	var tickets []message.Ticket
	for _, task := range inserted.Tasks {
		tickets = append(tickets, message.Ticket{Task: task.ID, Attempt: 1})
	}
	claims, err := w.store.Claim(t.Context(), worker, store.AnyOf("x"), tickets, store.IntoExecutors)
	w.must(err)
	hung := claims[2].Task
	success, err := holdfast.Settle(*hung, holdfast.Returned(nil), claims[2].Now, holdfast.DefaultPolicy())
	w.must(err)
	tx, err := pgtest.Admin(t).BeginTx(t.Context(), nil)
	w.must(err)
	defer func() { _ = tx.Rollback() }()
	if accepted, err := w.store.ApplyTx(t.Context(), tx, success); err != nil || !accepted {
		t.Fatalf("accepted %t, %v", accepted, err)
	}
	w.must(w.store.DeregisterWorker(t.Context(), worker, false))
	j, err := New(Options{Store: w.store, Broker: w.broker, Topology: w.topology})
	w.must(err)
	if err := j.sweep(t.Context()); err == nil {
		t.Error("the sweep reports no error, although it has left a task")
	}
	for _, claim := range claims {
		task, err := w.store.Task(t.Context(), claim.Task.ID)
		w.must(err)
		if want := task.ID == hung.ID; (task.State == holdfast.Running) != want {
			t.Errorf("task %s is %s while the transaction of task %s is open", task.ID, task.State, hung.ID)
		}
	}
	w.must(tx.Rollback())
	w.must(j.sweep(t.Context()))
	if task, err := w.store.Task(t.Context(), hung.ID); err != nil || task.State != holdfast.Ready || task.Crashes != 1 {
		t.Errorf("after the rollback: %+v, %v", task, err)
	}
}
