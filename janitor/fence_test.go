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

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

func TestGuardNeedsAnUnbrokenRowOfAnswers(t *testing.T) {
	t.Parallel()
	const need = 5 * time.Second
	type step struct {
		at     time.Duration
		leap   time.Duration // of the store's clock, so far
		failed bool
		want   bool
	}
	yes := func(from, to time.Duration, want bool) (steps []step) {
		for at := from; at <= to; at += 500 * time.Millisecond {
			steps = append(steps, step{at: at, want: want})
		}
		return steps
	}
	leapt := func(steps []step, leap time.Duration) []step {
		for i := range steps {
			steps[i].leap = leap
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
		"first answer":             {{at: 0}},
		"long enough":              join(yes(0, 4*s+500*time.Millisecond, false), yes(5*s, 9*s, true)),
		"one nanosecond too soon":  join(yes(0, 4*s+500*time.Millisecond, false), []step{{at: 5*s - 1}, {at: 5 * s, want: true}}),
		"two answers far apart":    {{at: 0}, {at: 5 * s}, {at: 10 * s}, {at: 15 * s}},
		"the longest gap":          join(yes(0, 4*s+500*time.Millisecond, false), []step{{at: 4*s + 500*time.Millisecond + maxGap, want: true}}),
		"a longer gap":             join(yes(0, 4*s+500*time.Millisecond, false), []step{{at: 4*s + 500*time.Millisecond + maxGap + 1}}, yes(6*s, 10*s+500*time.Millisecond, false), yes(11*s, 12*s, true)),
		"a failure":                join(yes(0, 4*s, false), []step{{at: 4 * s, failed: true}}, yes(4*s+500*time.Millisecond, 9*s, false), yes(9*s+500*time.Millisecond, 10*s, true)),
		"a failure after it":       join(yes(0, 4*s+500*time.Millisecond, false), yes(5*s, 6*s, true), []step{{at: 6 * s, failed: true}}, yes(6*s, 10*s+500*time.Millisecond, false), yes(11*s, 11*s, true)),
		"a stopped process":        join(yes(0, 4*s+500*time.Millisecond, false), yes(5*s, 6*s, true), yes(60*s, 64*s+500*time.Millisecond, false), yes(65*s, 65*s, true)),
		"a leap of the clock":      join(yes(0, 4*s, false), leapt(yes(4*s+500*time.Millisecond, 9*s, false), time.Minute), leapt(yes(9*s+500*time.Millisecond, 10*s, true), time.Minute)),
		"a leap back":              join(yes(0, 4*s, false), leapt(yes(4*s+500*time.Millisecond, 9*s, false), -time.Minute), leapt(yes(9*s+500*time.Millisecond, 10*s, true), -time.Minute)),
		"a leap within the margin": join(yes(0, 4*s+500*time.Millisecond, false), leapt(yes(5*s, 6*s, true), s)),
		"failures only":            {{at: 0, failed: true}, {at: s, failed: true}, {at: 6 * s}},
	} {
		g := &guard{need: need}
		begin := time.Now()
		for _, step := range steps {
			if step.failed {
				g.failed()
			} else if got := g.answered(begin.Add(step.at), begin.Add(step.at+step.leap)); got != step.want {
				t.Errorf("%s: at %s: %t, want %t", name, step.at, got, step.want)
			}
		}
	}
}

// court is a store that notes when it is asked to fence.
type court struct {
	Store
	begin time.Time
	away  func(since time.Duration) (fails bool, after time.Duration)

	mu     sync.Mutex
	fenced []time.Duration
	grace  time.Duration
	settle time.Duration
}

func (c *court) Now(ctx context.Context) (time.Time, error) {
	if c.away == nil {
		return time.Now(), nil
	}
	fails, after := c.away(time.Since(c.begin))
	if backoff.Sleep(ctx, after) != nil {
		return time.Time{}, ctx.Err()
	}
	if fails {
		return time.Time{}, errFault
	}
	return time.Now(), nil
}

func (c *court) Fence(_ context.Context, _ time.Time, grace, settle time.Duration) ([]holdfast.RunID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fenced = append(c.fenced, time.Since(c.begin))
	c.grace, c.settle = grace, settle
	return nil, nil
}

// Nobody is fenced until the store has answered without a gap for a lease and its grace.
func TestFenceWaitsForTheStore(t *testing.T) {
	t.Parallel()
	const s = time.Second
	const need = 5*s + 100*time.Millisecond
	for name, test := range map[string]struct {
		away func(time.Duration) (bool, time.Duration)
		for_ time.Duration
		want [][2]time.Duration // only in these spans, and in each of them
	}{
		"always there":       {nil, 10 * s, [][2]time.Duration{{need, 10 * s}}},
		"never there":        {func(time.Duration) (bool, time.Duration) { return true, 0 }, 60 * s, nil},
		"away at first":      {func(at time.Duration) (bool, time.Duration) { return at < 3*s, 0 }, 12 * s, [][2]time.Duration{{3*s + need, 12 * s}}},
		"away in between":    {func(at time.Duration) (bool, time.Duration) { return at > 8*s && at < 20*s, 0 }, 30 * s, [][2]time.Duration{{need, 8*s + 1}, {20*s + need, 30 * s}}},
		"away for an answer": {func(at time.Duration) (bool, time.Duration) { return at > 8*s && at <= 8*s+200*time.Millisecond, 0 }, 16 * s, [][2]time.Duration{{need, 8*s + 1}, {8*s + need, 16 * s}}},
		"hangs in between":   {func(at time.Duration) (bool, time.Duration) { return false, hang(at, 8*s, 20*s) }, 30 * s, [][2]time.Duration{{need, 8*s + 1}, {20*s + need, 30 * s}}},
		"slow, but there":    {func(at time.Duration) (bool, time.Duration) { return false, 700 * time.Millisecond }, 12 * s, [][2]time.Duration{{need, 12 * s}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &court{begin: time.Now(), away: test.away}
				j, ctx, end := offline(t, c)
				go j.fenceLoop(ctx)
				time.Sleep(test.for_)
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
						t.Errorf("nobody was fenced in %v, but at %v", test.want[i], c.fenced)
					}
				}
				if len(c.fenced) > 0 && (c.grace != 100*time.Millisecond || c.settle != need) {
					t.Errorf("fenced with the grace %s and a settled server of %s", c.grace, c.settle)
				}
			})
		})
	}
}

// hang is for how long the store does not answer if it is asked between from and to.
func hang(at, from, to time.Duration) time.Duration {
	if at > from && at < to {
		return to - at
	}
	return 0
}

// When the store comes back after an outage longer than a lease, every lease looks expired; the
// live run must get its time to renew. One that does not is fenced.
func TestAnOutageOfTheStoreFencesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const lease, grace = time.Second, 250 * time.Millisecond
	remote, proxy := w.proxiedStore()
	var asked atomic.Int32
	j := w.janitor(func(o *Options) {
		o.Store = &faulty{Store: remote, fence: func() { asked.Add(1) }}
		o.Lease, o.FenceGrace = lease, grace
	})
	w.background(j.fenceLoop)
	run := w.openRunFor(lease)
	var renewed atomic.Int32
	stopRenewing := w.background(func(ctx context.Context) {
		for ctx.Err() == nil {
			if _, err := remote.Renew(ctx, store.Renewal{Run: run, Lease: lease}); err == nil {
				renewed.Add(1)
			}
			_ = backoff.Sleep(ctx, 100*time.Millisecond)
		}
	})
	w.eventually("the janitor may fence", func() bool { return asked.Load() > 0 })

	proxy.Refuse()
	expired := "select (lease_until < now() - interval '400 milliseconds')::int from holdfast.runs where id = $1"
	w.eventually("the lease is over", func() bool { return w.number(expired, int64(run)) == 1 })
	before, signs := asked.Load(), renewed.Load()
	healed := time.Now()
	proxy.Heal()
	w.eventually("the janitor may fence again", func() bool { return asked.Load() > before })
	if waited := time.Since(healed); waited < lease+grace {
		t.Errorf("the janitor fenced %s after the outage, before %s", waited, lease+grace)
	}
	w.eventually("the run is renewed", func() bool { return renewed.Load() > signs })
	if states, err := w.store.RunStates(t.Context(), []holdfast.RunID{run}); err != nil || states[run].State != store.RunLive {
		t.Fatalf("after the outage the run is %v, %v", states[run].State, err)
	}

	stopRenewing()
	w.eventually("a run that is gone is fenced", func() bool {
		states, err := w.store.RunStates(t.Context(), []holdfast.RunID{run})
		return err == nil && states[run].State == store.RunDead
	})
}

// Whichever of several janitors fences a run: once, and its tasks come back once, at once, also
// if no manifest says that it had them.
func TestOneOfSeveralJanitorsTakesTheTasksBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		w.run(w.janitor(func(o *Options) { o.Lease, o.FenceGrace = 600*time.Millisecond, 100*time.Millisecond }))
	}
	list := w.ticketed(30)
	w.claim(w.openRunFor(500*time.Millisecond), list...)
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
	w.sameTickets("again", w.takeTickets(w.again()), want)
	if fenced, back := w.seen.of(holdfast.ObservedFenced), w.seen.of(holdfast.ObservedRecovered); fenced != 1 || back != len(list) {
		t.Errorf("%d runs fenced, %d tasks taken back", fenced, back)
	}
	attempts, err := w.store.Attempts(t.Context(), list[0].Task)
	if err != nil || len(attempts) != 1 || attempts[0].Class != "crash" || attempts[0].Event != holdfast.EventCrash {
		t.Errorf("kept are %+v, %v", attempts, err)
	}
}

// Taking back is tried until it succeeds, and a task that kills every worker is given up.
func TestTakingBackIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int32
	log, hook := test.NewNullLogger()
	j := w.janitor(func(o *Options) {
		o.Log = log
		o.Store = &faulty{Store: w.store, apply: func() error {
			if tries.Add(1) <= 2 {
				return errFault
			}
			return nil
		}}
		policy := holdfast.DefaultPolicy()
		policy.MaxCrashes = 1
		o.Settings = holdfast.Settings{Defaults: holdfast.TypeSettings{Policy: policy}}
	})
	run := w.openRun()
	task := w.claim(run, w.ticketed(1)...)[0]
	w.kill(run)
	j.fenced <- struct{}{}
	w.background(j.sweepFenced)
	w.eventually("the task is given up", func() bool { return w.task(task.ID).State == holdfast.Dead })
	if n := tries.Load(); n != 3 {
		t.Errorf("%d tries", n)
	}
	w.eventually("the death is logged", func() bool {
		return slices.ContainsFunc(hook.AllEntries(), func(e *logrus.Entry) bool {
			return e.Message == "task is dead" && e.Data["task"] == task.ID
		})
	})
}

// The look at all tasks finds those of a run that ended in any way, and leaves the others alone.
func TestSweepAllFindsWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead, closed, live := w.openRun(), w.openRun(), w.openRun()
	list := w.ticketed(4)
	w.claim(dead, list[0])
	w.claim(closed, list[1])
	kept := w.claim(live, list[2])[0]
	w.kill(dead)
	w.must(w.store.CloseRun(t.Context(), closed, false))
	ready := w.task(list[3].Task)
	w.must(w.janitor(nil).sweepAll(t.Context()))
	for _, ticket := range list[:2] {
		if task := w.task(ticket.Task); task.State != holdfast.Ready || task.Attempt != 2 || task.Crashes != 1 || w.position(ticket).Ticketed {
			t.Errorf("got %+v", task)
		}
	}
	w.untouched(kept)
	w.untouched(ready)
}
