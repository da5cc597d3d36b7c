package explain_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/store"
)

var now = time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)

// facts returns the facts about a ready task with a ticket, in a queue with one worker.
func facts(changes ...func(*explain.Facts)) explain.Facts {
	f := explain.Facts{
		Now: now,
		Task: holdfast.Task{ID: 7, Type: "mail", Queue: "default", State: holdfast.Ready, Attempt: 1, MaxAttempts: 3,
			CreatedAt: now.Add(-time.Minute), NextRunAt: now.Add(-time.Minute)},
		Position: store.Position{Found: true, Ticketed: true},
		Queue:    store.Queue{Name: "default", Due: 12, Running: 3},
		Workers: []store.Worker{{ID: 5, State: store.WorkerLive, LeaseUntil: now.Add(time.Second), WorkerInfo: store.WorkerInfo{
			Name: "w1", Host: "h1", PID: 99, Concurrency: 4, Types: []string{"mail"}}}},
		Settings: holdfast.TypeSettings{Policy: holdfast.Policy{Strategy: holdfast.Fixed, Base: time.Minute,
			MaxAttempts: 5, MaxCrashes: 3, MaxDeferrals: 9}},
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func TestCauses(t *testing.T) {
	t.Parallel()
	running := func(f *explain.Facts) {
		f.Task.State, f.Task.Worker, f.Task.StartedAt = holdfast.Running, 5, now.Add(-20*time.Second)
	}
	later := func(f *explain.Facts) { f.Task.NextRunAt, f.Position.Ticketed = now.Add(90*time.Second), false }
	after := func(event holdfast.Event) func(*explain.Facts) {
		return func(f *explain.Facts) {
			later(f)
			f.Task.Attempt, f.Task.Failures, f.Task.Crashes = 3, 2, 1
			f.Attempts = []holdfast.Attempt{{Attempt: 2, Event: event, Class: "http_503", Error: "POST x: 503"}}
		}
	}
	pause := func(s store.Subject, d time.Duration) store.Gate {
		gate := store.Gate{ID: 1, Kind: store.GatePause, Subject: s, Actor: store.Actor{Name: "anna", Reason: "upkeep"}, ClosedAt: now.Add(-10 * time.Minute)}
		if d > 0 {
			gate.Until = now.Add(d)
		}
		return gate
	}
	rate := func(count, blocked, ahead int) store.TaskLimit {
		return store.TaskLimit{Limit: store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "mail"}}, Rate: store.Rate{Count: count, Per: time.Second}}, Blocked: blocked, Ahead: ahead}
	}
	running10 := func(l store.TaskLimit, inUse int) store.TaskLimit {
		l.Concurrency, l.InUse = 10, inUse
		return l
	}
	broken := func(probeIn time.Duration, probes, blocked, ahead int) store.TaskLimit {
		return store.TaskLimit{
			Limit:   store.Limit{Scope: store.Scope{Subject: store.Subject{Target: "https://a.example:443"}}, Concurrency: probes, Actor: store.Actor{Reason: "503 busy"}, SetAt: now.Add(-12 * time.Second)},
			Breaker: &store.Breaker{ProbeAt: now.Add(probeIn), Probes: probes}, InUse: 1, Blocked: blocked, Ahead: ahead,
		}
	}
	limited := func(limits ...store.TaskLimit) func(*explain.Facts) {
		return func(f *explain.Facts) { f.Position.Ticketed, f.Limited = false, limits }
	}
	kept := func(task holdfast.TaskID) store.TaskLimit {
		l := running10(rate(0, 5, 0), 9)
		l.Reserved = task
		return l
	}
	perKey := rate(100, 4000, 812)
	perKey.Per, perKey.Bucket = store.PerKey, "tenant-7"
	ordered := func(change func(*store.KeyPlace)) func(*explain.Facts) {
		return func(f *explain.Facts) {
			f.Task.Key, f.Task.Ordered, f.Position.Ticketed = "tenant-7", true, false
			f.Place = &store.KeyPlace{OrderedKey: store.OrderedKey{
				Key: "tenant-7", Active: 5, State: holdfast.Running, Since: now.Add(-2 * time.Hour), Waiting: 4}, Ahead: 3}
			if change != nil {
				change(f.Place)
			}
		}
	}
	topical := func(change func(*store.TopicPlace)) func(*explain.Facts) {
		return func(f *explain.Facts) {
			f.Task.Topic, f.Position.Ticketed = "site-7", false
			f.Slot = &store.TopicPlace{TopicPart: store.TopicPart{Topic: "site-7", Queue: "default"}, Weight: 1, Ahead: 12, Slots: 3, Others: 2, Executors: 8}
			if change != nil {
				change(f.Slot)
			}
		}
	}
	type codes = []explain.Code
	for name, c := range map[string]struct {
		change func(*explain.Facts)
		want   codes
		text   string
	}{
		"waiting": {func(*explain.Facts) {}, codes{explain.Waiting},
			"its ticket is in the queue or in the outbox; tasks of this queue and priority that are due: 12, running: 3, at once at most: 4; no estimate of its start, because no live worker has run a task of this queue and priority yet"},
		"ticketed before a setback of the clock": {func(f *explain.Facts) { later(f); f.Position.Ticketed = true }, codes{explain.Waiting}, "its ticket is in the queue"},
		"delayed":                                {later, codes{explain.NotDue}, "attempt 1 is due in 1m30s, as it was enqueued"},
		"retried":                                {after(holdfast.EventRetry), codes{explain.NotDue}, "attempt 3 is due in 1m30s, after failure 2 of 3"},
		"deferred":                               {after(holdfast.EventDefer), codes{explain.NotDue}, "because the handler deferred it"},
		"crashed":                                {after(holdfast.EventCrash), codes{explain.NotDue}, "after crash 1 of 3"},
		"handed back":                            {after(holdfast.EventInterrupt), codes{explain.NotDue}, "after attempt 2 was handed back"},
		"unrecorded":                             {func(f *explain.Facts) { after(holdfast.EventRetry)(f); f.Attempts = nil }, codes{explain.NotDue}, "after attempt 2, which has no record"},
		"no worker":                              {func(f *explain.Facts) { f.Workers = nil }, codes{explain.NoWorker, explain.Waiting}, "no live worker takes tasks of the queue default"},
		"a worker of another queue":              {func(f *explain.Facts) { f.Workers[0].Queues = []string{"other"} }, codes{explain.NoWorker, explain.Waiting}, ""},
		"a worker without handler": {func(f *explain.Facts) { f.Workers[0].Types = []string{"http"} }, codes{explain.Unhandled, explain.Waiting},
			"no live worker of the queue default has a handler for the type mail"},
		"a worker of an older build": {func(f *explain.Facts) { f.Workers[0].Types = nil }, codes{explain.Waiting}, ""},
		"a worker that drains": {func(f *explain.Facts) { f.Workers[0].Draining = true }, codes{explain.WorkersDrain, explain.Waiting},
			"every worker of the queue default that handles the type mail is draining"},
		"parked": {func(f *explain.Facts) { f.Task.Parked = "worker 5 has no handler for its type" }, codes{explain.Parked, explain.Waiting},
			"it was parked: worker 5 has no handler for its type; it gets another ticket now"},
		"parked for longer": {func(f *explain.Facts) { later(f); f.Task.Parked = "worker 5 has no handler for its type" }, codes{explain.Parked},
			"parked: worker 5 has no handler for its type; it gets another ticket in 1m30s"},
		"last chance": {func(f *explain.Facts) { f.Task.Crashes = 2 }, codes{explain.LastChance, explain.Waiting},
			"2 attempts crashed its worker, and the next crash makes it dead"},
		"not published": {func(f *explain.Facts) { f.Position.Ticketed = false }, codes{explain.NotPublished},
			"it has no ticket yet; a janitor publishes one as soon as the broker accepts it"},
		"paused": {func(f *explain.Facts) {
			f.Gates = []store.Gate{pause(store.Subject{Queue: "default"}, 0)}
			f.Workers = nil
		}, codes{explain.Paused, explain.NoWorker},
			"anna has paused the queue default for 10m0s (upkeep); the pause has no end until somebody resumes it; no live worker"},
		"paused for an hour": {func(f *explain.Facts) { f.Gates = []store.Gate{pause(store.Subject{Type: "mail"}, time.Hour)} }, codes{explain.Paused},
			"anna has paused the type mail for 10m0s (upkeep); the pause ends in 1h0m0s"},
		"paused twice": {func(f *explain.Facts) {
			f.Gates = []store.Gate{pause(store.Subject{Target: "https://example.com:443"}, time.Hour), pause(store.Subject{Queue: "default"}, 0)}
		}, codes{explain.Paused, explain.Paused}, "has paused the target https://example.com:443 for 10m0s (upkeep); the pause ends in 1h0m0s; anna has paused the queue"},
		"delayed and paused": {func(f *explain.Facts) { later(f); f.Gates = []store.Gate{pause(store.Subject{Queue: "default"}, 0)} },
			codes{explain.NotDue, explain.Paused}, "attempt 1 is due in 1m30s"},
		"waiting for its turn": {ordered(nil), codes{explain.Ordered},
			"it waits for its turn among the ordered tasks of the key tenant-7: task 5 is running; 3 waiting tasks are ahead"},
		"the next one": {ordered(func(p *store.KeyPlace) { p.State, p.Ahead = holdfast.Ready, 0 }), codes{explain.Ordered},
			"task 5 is ready; no waiting task is ahead"},
		"waiting behind one and a delay": {func(f *explain.Facts) {
			later(f)
			ordered(func(p *store.KeyPlace) { p.Ahead = 1 })(f)
		}, codes{explain.Ordered}, "; 1 waiting task is ahead; it does not start within 1m30s, as it was enqueued"},
		"waiting behind very many": {ordered(func(p *store.KeyPlace) { p.Ahead = store.MaxCountedBlocked }), codes{explain.Ordered}, "; 100000 waiting tasks or more are ahead"},
		"waiting behind a dead task": {ordered(func(p *store.KeyPlace) { p.State = holdfast.Dead }), codes{explain.Ordered},
			"task 5 has been dead for 2h0m0s and blocks the key until an operator retries, cancels or archives it; 3 waiting tasks are ahead"},
		"waiting for its doom": {ordered(func(p *store.KeyPlace) { p.State, p.Doomed = holdfast.Dead, true }), codes{explain.Ordered},
			"task 5 has been dead for 2h0m0s, and the tasks behind it die too, without an attempt"},
		"waiting for a janitor": {ordered(func(p *store.KeyPlace) { p.Active, p.State = 0, "" }), codes{explain.Ordered},
			"none of them is active, so a janitor makes the next one due"},
		"waiting for its turn, without a worker": {func(f *explain.Facts) { ordered(nil)(f); f.Workers = nil }, codes{explain.Ordered, explain.NoWorker}, ""},
		"waiting for its turn and paused": {func(f *explain.Facts) {
			ordered(nil)(f)
			f.Gates = []store.Gate{pause(store.Subject{Queue: "default"}, 0)}
		}, codes{explain.Ordered, explain.Paused}, "the pause has no end"},
		"waiting for its turn and limited": {func(f *explain.Facts) { ordered(nil)(f); f.Limited = []store.TaskLimit{rate(100, 4000, 4000)} },
			codes{explain.Ordered, explain.Limited}, "; then it needs a permit of limit type mail (100/s)"},
		"the active task of its key": {func(f *explain.Facts) {
			ordered(func(p *store.KeyPlace) { p.Active, p.Ahead = 7, -1 })(f)
			f.Position.Ticketed = true
		}, codes{explain.Waiting}, "its ticket is in the queue"},
		"doomed": {func(f *explain.Facts) {
			ordered(nil)(f)
			f.Place, f.Task.Doomed, f.Position.Ticketed = nil, true, true
		}, codes{explain.Doomed, explain.Waiting}, "an earlier ordered task of the key tenant-7 is dead, and its type has after_death dead; the next worker gives this task up without an attempt"},
		"waiting for a slot": {topical(nil), codes{explain.Topic},
			"it waits for a slot of the topic site-7: 12 tasks of the topic are ahead; the topic has 3 slots in the queue default, whose workers have 8 executors; " +
				"tasks of 2 other topics wait, so the topic may have 4 slots, or more if its tasks are short"},
		"waiting for a slot, and no other topic waits": {topical(func(p *store.TopicPlace) { p.Others, p.Ahead, p.Slots, p.Executors = 0, 0, 1, 1 }), codes{explain.Topic},
			"no task of the topic is ahead; the topic has 1 slot in the queue default, whose workers have 1 executor; " +
				"tasks of no other topic wait, so the topic may have 1 slot, or more if its tasks are short"},
		"waiting for a slot, with a weight": {topical(func(p *store.TopicPlace) { p.Others, p.Ahead, p.Weight = 1, 1, 5 }), codes{explain.Topic},
			": 1 task of the topic is ahead; the topic has 3 slots in the queue default, whose workers have 8 executors; " +
				"tasks of 1 other topic wait, so the topic may have 4 slots, or more if its tasks are short; the topic has the weight 5"},
		"waiting for a slot behind very many": {topical(func(p *store.TopicPlace) { p.Ahead, p.Others = store.MaxCountedBlocked, store.MaxCountedBlocked }), codes{explain.Topic},
			"tasks of 100000 other topics or more wait, so"},
		"waiting for a slot, without a worker": {func(f *explain.Facts) { topical(func(p *store.TopicPlace) { p.Executors = 0 })(f); f.Workers = nil },
			codes{explain.Topic, explain.NoWorker}, "12 tasks of the topic are ahead; no live worker takes the queue default, so the queue has no slots"},
		"waiting for a slot and paused": {func(f *explain.Facts) {
			topical(nil)(f)
			f.Gates = []store.Gate{pause(store.Subject{Queue: "default"}, 0)}
		}, codes{explain.Topic, explain.Paused}, "the pause has no end"},
		"waiting for a slot and limited": {func(f *explain.Facts) { topical(nil)(f); f.Limited = []store.TaskLimit{rate(100, 4000, 4000)} },
			codes{explain.Topic, explain.Limited}, "; then it needs a permit of limit type mail (100/s)"},
		"waiting for a slot, without a handler": {func(f *explain.Facts) { topical(nil)(f); f.Workers[0].Types = []string{"other"} },
			codes{explain.Topic, explain.Unhandled}, "no live worker of the queue default has a handler"},
		"with a slot": {func(f *explain.Facts) { f.Task.Topic = "site-7" }, codes{explain.Waiting}, "its ticket is in the queue"},
		"behind an open breaker": {limited(broken(8*time.Second, 1, 40, 3)), codes{explain.Broken},
			"the breaker of the target https://a.example:443 tripped 12s ago and is open; the last fault: 503 busy; the next probes start in 8s, 40 tasks wait; when the target works, the tasks start by themselves"},
		"behind a breaker that ramps":  {limited(broken(-time.Second, 6, 1, 0)), codes{explain.Broken}, "is ramping; the last fault: 503 busy; 1 of 6 probes in progress, 1 task waits"},
		"behind a half-open breaker":   {limited(broken(-time.Second, 3, store.MaxCountedBlocked, 39)), codes{explain.Broken}, "is half-open; the last fault: 503 busy; 1 of 3 probes in progress, 100000 tasks or more wait"},
		"delayed and behind a breaker": {func(f *explain.Facts) { later(f); f.Limited = []store.TaskLimit{broken(8*time.Second, 1, 40, 40)} }, codes{explain.NotDue, explain.Broken}, "the next probes start in 8s"},
		"limited by a rate":            {limited(perKey), codes{explain.Limited}, "limit type mail per key, key tenant-7 (100/s): 812 of 4000 tasks are ahead, about 8s"},
		"limited by a slow rate": {limited(store.TaskLimit{Limit: store.Limit{Scope: store.Scope{Subject: store.Subject{Queue: "default"}},
			Rate: store.Rate{Count: 1, Per: time.Hour}}, Blocked: 2, Ahead: 1}), codes{explain.Limited},
			"limit queue default (1/h): 1 of 2 tasks is ahead, about 1h0m0s to 2h0m0s"},
		"the next at a limit":      {limited(rate(100, 3, 0)), codes{explain.Limited}, "limit type mail (100/s): no task is ahead, less than a second"},
		"limited by a concurrency": {limited(running10(rate(0, 5, 3), 10)), codes{explain.Limited}, "limit type mail: 10 of 10 permits in use, 3 of 5 tasks are ahead"},
		"limited without room": {limited(store.TaskLimit{Limit: store.Limit{Scope: rate(0, 0, 0).Scope, Concurrency: 1000}, InUse: 6, Blocked: 50, Ahead: 20}), codes{explain.Limited},
			"limit type mail: 6 of 1000 permits in use, the queue gives permits as its executors become free, 20 of 50 tasks are ahead"},
		"limited by both":            {limited(running10(rate(100, 4000, 812), 9)), codes{explain.Limited}, "limit type mail (100/s): 9 of 10 permits in use, 812 of 4000 tasks are ahead, at least 8s"},
		"limited, with many blocked": {limited(rate(100, 100_000, 100_000)), codes{explain.Limited}, "100000 tasks or more are ahead, about 16m40s"},
		"limited twice": {limited(running10(rate(0, 7, 7), 10), rate(100, 2, 1)), codes{explain.Limited, explain.Limited},
			"limit type mail: 10 of 10 permits in use, 7 tasks are ahead; limit type mail (100/s): 1 of 2 tasks is ahead, less than a second"},
		"limited, with a permit kept for it": {limited(kept(7), running10(rate(0, 2, 0), 10)), codes{explain.Limited, explain.Limited},
			"limit type mail: 9 of 10 permits in use, no task is ahead; a permit is kept for it, because it waits for another limit too; limit type mail: 10 of 10"},
		"limited, with a permit kept for another": {limited(kept(12)), codes{explain.Limited},
			"limit type mail: 9 of 10 permits in use, no task is ahead; a permit is kept for task 12, which waits for another limit too"},
		"limited, with a ticket": {func(f *explain.Facts) { f.Limited = []store.TaskLimit{running10(rate(0, 0, 0), 2)} }, codes{explain.Limited, explain.Waiting},
			"limit type mail: 2 of 10 permits in use, no task is ahead; its ticket is in the queue or in the outbox; tasks of this queue and priority that are due: 12, running: 3, at once at most: 4"},
		"limited, before its ticket is published": {limited(rate(100, 1, 1)), codes{explain.Limited, explain.NotPublished}, "1 task is ahead, less than a second; it has no ticket yet"},
		"limited, without a worker":               {func(f *explain.Facts) { limited(rate(100, 2, 1))(f); f.Workers = nil }, codes{explain.Limited, explain.NoWorker}, ""},
		"delayed and limited": {func(f *explain.Facts) { later(f); f.Limited = []store.TaskLimit{rate(100, 4000, 4000)} }, codes{explain.NotDue, explain.Limited},
			"attempt 1 is due in 1m30s, as it was enqueued; then it needs a permit of limit type mail (100/s)"},
		"paused and limited": {func(f *explain.Facts) {
			limited(rate(100, 2, 2))(f)
			f.Gates = []store.Gate{pause(store.Subject{Queue: "default"}, time.Hour)}
		}, codes{explain.Paused, explain.Limited}, "; the pause ends in 1h0m0s; limit type mail (100/s): 2 tasks are ahead, less than a second"},
		"running in a paused queue": {func(f *explain.Facts) { running(f); f.Gates = []store.Gate{pause(store.Subject{Queue: "default"}, 0)} },
			codes{explain.Running}, "has run attempt 1 for 20s"},
		"running":                   {running, codes{explain.Running}, "worker 5 (w1, process 99 on h1) has run attempt 1 for 20s"},
		"running with a time limit": {func(f *explain.Facts) { running(f); f.Settings.Timeout = time.Minute }, codes{explain.Running}, "; its time limit is 1m0s"},
		"a slice of a source with a time limit": {func(f *explain.Facts) {
			running(f)
			f.Settings.Timeout, f.Task.Unique, f.Task.Payload = time.Hour, "slice/shop/a/b", json.RawMessage(`{"settings":{"timeout":"1m"}}`)
		}, codes{explain.Running}, "; its time limit is 1m0s"},
		"running with progress": {func(f *explain.Facts) {
			running(f)
			f.Values = []store.Datum{{Name: store.ProgressData, Attempt: 1, Value: []byte(`{"percent":50,"note":"charged"}`), At: now.Add(-3 * time.Second)}}
		}, codes{explain.Running}, "has run attempt 1 for 20s; 3s ago it was 50% done (charged)"},
		"in the buffer of a worker": {func(f *explain.Facts) { running(f); f.Task.Buffered = true }, codes{explain.Running}, "the attempt starts when an executor is free"},
		"stuck": {func(f *explain.Facts) {
			running(f)
			f.Settings.AbandonAfter = time.Hour
			f.Workers[0].RenewedAt = now.Add(-time.Second)
			f.Workers[0].Report.Stuck = []store.StuckTask{{Task: 7, Attempt: 1, For: 9 * time.Second}}
		}, codes{explain.Stuck},
			"has run attempt 1 for 20s; its context ended 10s ago, and its handler ignores that; in 59m50s the worker gives the attempt up"},
		"stuck without a limit": {func(f *explain.Facts) {
			running(f)
			f.Workers[0].RenewedAt = now
			f.Workers[0].Report.Stuck = []store.StuckTask{{Task: 8, Attempt: 1}, {Task: 7, Attempt: 1, For: time.Minute}}
		}, codes{explain.Stuck},
			"; abandon_after is not set for its type, so the worker waits for it"},
		"another attempt was stuck": {func(f *explain.Facts) {
			running(f)
			f.Workers[0].Report.Stuck = []store.StuckTask{{Task: 7, Attempt: 9}}
		}, codes{explain.Running}, ""},
		"running without a lease": {func(f *explain.Facts) { running(f); f.Workers[0].LeaseUntil = now.Add(-3 * time.Second) }, codes{explain.LeaseExpired},
			"its lease expired 3s ago; a janitor fences it"},
		"running on a dead worker": {func(f *explain.Facts) { running(f); f.Workers = nil }, codes{explain.LeaseExpired}, "worker 5 claimed attempt 1 20s ago and has ended"},
		"done":                     {func(f *explain.Facts) { f.Task.State, f.Task.FinishedAt = holdfast.Done, now.Add(-time.Hour) }, codes{explain.Final}, "it has been done for 1h0m0s"},
		"cancelled, and its handler continues": {func(f *explain.Facts) {
			f.Task.State, f.Task.Attempt, f.Task.Worker, f.Task.FinishedAt = holdfast.Cancelled, 2, 0, now.Add(-time.Minute)
			f.Workers[0].RenewedAt = now.Add(-time.Second)
			f.Workers[0].Report.Stuck = []store.StuckTask{{Task: 8, Attempt: 1}, {Task: 7, Attempt: 1, For: 9 * time.Second}}
		}, codes{explain.Final, explain.Stuck},
			"it has been cancelled for 1m0s; worker 5 (w1, process 99 on h1) still runs attempt 1; its context ended 10s ago, and its handler ignores that"},
		"dead": {func(f *explain.Facts) {
			after(holdfast.EventGiveUp)(f)
			f.Task.State, f.Task.FinishedAt = holdfast.Dead, now.Add(-time.Hour)
		}, codes{explain.Final}, "it died 1h0m0s ago: http_503: POST x: 503"},
	} {
		e := explain.Of(facts(c.change))
		var got codes
		var texts []string
		for _, cause := range e.Causes {
			got, texts = append(got, cause.Code), append(texts, cause.Text)
		}
		if !slices.Equal(got, c.want) || !strings.Contains(strings.Join(texts, "; "), c.text) {
			t.Errorf("%s: %+v; want %v, %s", name, e.Causes, c.want, c.text)
		}
		timed := e.Causes[0].Code == explain.NotDue || name == "stuck" || name == "parked for longer" || name == "paused for an hour" ||
			name == "paused twice" || name == "paused and limited"
		if timed != e.Causes[0].Until.After(now) && c.text != "; its time limit is 1m0s" {
			t.Errorf("%s: it ends at %s", name, e.Causes[0].Until)
		}
	}
}

// A final task is deleted when its age says so. A dead task is never deleted.
func TestWhenATaskIsDeleted(t *testing.T) {
	at, ages := time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC), store.PruneAges{Done: time.Hour, Archived: 24 * time.Hour}
	for state, want := range map[holdfast.State]string{
		holdfast.Done: "a janitor deletes it after 2030-01-31T10:00:00Z", holdfast.Archived: "a janitor deletes it after 2030-02-01T09:00:00Z",
		holdfast.Cancelled: "", holdfast.Dead: "",
	} {
		for batch, suffix := range map[holdfast.BatchID]string{0: "", 5: " and the end of its batch"} {
			e := explain.Of(facts(func(f *explain.Facts) {
				f.Task.State, f.Task.FinishedAt, f.Task.Batch, f.Ages = state, at, batch, ages
			}))
			got := e.Next[slices.IndexFunc(append(e.Next, "deletes"), func(text string) bool { return strings.Contains(text, "deletes") }):]
			if want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []string{want + suffix}) {
				t.Errorf("%s, batch %s: %q; want %q", state, batch, e.Next, want+suffix)
			}
		}
	}
}

// A task behind several gates starts after the last gate has opened. If one gate has no end, the start is not known.
func TestNextStartBehindGates(t *testing.T) {
	t.Parallel()
	gate := func(d time.Duration) store.Gate {
		g := store.Gate{Kind: store.GatePause, Subject: store.Subject{Queue: "default"}, ClosedAt: now}
		if d > 0 {
			g.Until = now.Add(d)
		}
		return g
	}
	for name, c := range map[string]struct {
		gates []store.Gate
		delay time.Duration
		want  time.Time
	}{
		"one":                  {[]store.Gate{gate(time.Hour)}, 0, now.Add(time.Hour)},
		"two":                  {[]store.Gate{gate(time.Hour), gate(time.Minute)}, 0, now.Add(time.Hour)},
		"one without end":      {[]store.Gate{gate(time.Hour), gate(0)}, 0, time.Time{}},
		"due after the pause":  {[]store.Gate{gate(time.Minute)}, time.Hour, now.Add(time.Hour)},
		"no gate":              {nil, time.Hour, now.Add(time.Hour)},
		"due during the pause": {[]store.Gate{gate(time.Hour)}, time.Minute, now.Add(time.Hour)},
	} {
		e := explain.Of(facts(func(f *explain.Facts) {
			f.Gates = c.gates
			if c.delay > 0 {
				f.Task.NextRunAt, f.Position.Ticketed = now.Add(c.delay), false
			}
		}))
		if !e.NextStart.Equal(c.want) || e.Backlog != nil && c.gates != nil {
			t.Errorf("%s: the next start is %s, want %s; backlog %+v", name, e.NextStart, c.want, e.Backlog)
		}
	}
}

// A rate gives a range for the start of a task. If a permit must become free first, the start is not known.
func TestNextStartBehindLimits(t *testing.T) {
	t.Parallel()
	limit := func(rate store.Rate, ahead, concurrency, inUse int) store.TaskLimit {
		return store.TaskLimit{Limit: store.Limit{Rate: rate, Concurrency: concurrency}, Blocked: ahead + 1, Ahead: ahead, InUse: inUse}
	}
	fast, slow := store.Rate{Count: 100, Per: time.Second}, store.Rate{Count: 1, Per: time.Minute}
	type span struct{ earliest, latest time.Duration }
	for name, c := range map[string]struct {
		limits []store.TaskLimit
		change func(*explain.Facts)
		next   time.Duration // negative: unknown
		want   *span
	}{
		"a rate":                           {[]store.TaskLimit{limit(fast, 500, 0, 0)}, nil, 4 * time.Second, &span{4 * time.Second, 5010*time.Millisecond + 2*time.Second}},
		"the first":                        {[]store.TaskLimit{limit(fast, 0, 0, 0)}, nil, 0, &span{0, 10*time.Millisecond + 2*time.Second}},
		"two rates":                        {[]store.TaskLimit{limit(slow, 1, 0, 0), limit(fast, 500, 0, 0)}, nil, 59 * time.Second, &span{59 * time.Second, 122 * time.Second}},
		"two rates, another order":         {[]store.TaskLimit{limit(fast, 500, 0, 0), limit(slow, 1, 0, 0)}, nil, 59 * time.Second, &span{59 * time.Second, 122 * time.Second}},
		"a slow rate without others ahead": {[]store.TaskLimit{limit(slow, 0, 0, 0), limit(fast, 500, 0, 0)}, nil, 4 * time.Second, &span{4 * time.Second, 62 * time.Second}},
		"a fast rate with others ahead":    {[]store.TaskLimit{limit(fast, 500, 0, 0), limit(slow, 0, 0, 0)}, nil, 4 * time.Second, &span{4 * time.Second, 62 * time.Second}},
		"no free permit":                   {[]store.TaskLimit{limit(store.Rate{}, 0, 10, 10)}, nil, -1, nil},
		"one free permit for two":          {[]store.TaskLimit{limit(store.Rate{}, 1, 10, 9)}, nil, -1, nil},
		"a free permit":                    {[]store.TaskLimit{limit(store.Rate{}, 0, 10, 3)}, nil, 0, nil},
		"a free permit, but no executor":   {[]store.TaskLimit{limit(store.Rate{}, 0, 10, 9)}, nil, -1, nil},
		"both":                             {[]store.TaskLimit{limit(fast, 500, 1000, 3)}, nil, 4 * time.Second, nil},
		"a rate and no permit":             {[]store.TaskLimit{limit(fast, 500, 0, 0), limit(store.Rate{}, 0, 10, 10)}, nil, -1, nil},
		"a pause without end":              {[]store.TaskLimit{limit(fast, 500, 0, 0)}, func(f *explain.Facts) { f.Gates = []store.Gate{{}} }, -1, nil},
		"a delay":                          {[]store.TaskLimit{limit(fast, 500, 10, 10)}, func(f *explain.Facts) { f.Task.NextRunAt = now.Add(time.Hour) }, time.Hour, nil},
		"a busy queue": {[]store.TaskLimit{limit(fast, 500, 0, 0)}, func(f *explain.Facts) {
			f.Workers[0].Report.Throughput = []store.QueueThroughput{{Queue: "default", Ended: 60, Over: 10 * time.Second}}
		}, 4 * time.Second, &span{4 * time.Second, 5010*time.Millisecond + 4*time.Second + 2*time.Second}}, // 12 tasks at half of 6 a second
		"the longest": {[]store.TaskLimit{limit(store.Rate{Count: 1, Per: 24 * time.Hour}, store.MaxCountedBlocked, 0, 0)}, nil, 100*365*24*time.Hour - time.Second,
			&span{100*365*24*time.Hour - time.Second, 100*365*24*time.Hour + 2*time.Second}},
	} {
		e := explain.Of(facts(func(f *explain.Facts) {
			f.Position.Ticketed, f.Limited = false, c.limits
			if c.change != nil {
				c.change(f)
			}
		}))
		if want := now.Add(c.next); c.next < 0 != e.NextStart.IsZero() || c.next >= 0 && !e.NextStart.Equal(want) {
			t.Errorf("%s: the next start is %s, want %s", name, e.NextStart, want)
		}
		switch b := e.Backlog; {
		case b == nil && c.want == nil:
		case b == nil || c.want == nil || b.Earliest.Sub(now) != c.want.earliest || b.Latest.Sub(now) != c.want.latest:
			t.Errorf("%s: the estimate is %+v, want %+v", name, b, c.want)
		}
	}
	e := explain.Of(facts(func(f *explain.Facts) {
		f.Position.Ticketed, f.Limited = false, []store.TaskLimit{limit(fast, 500, 0, 0)}
		f.Settings.Policy.Deadline = time.Minute + 3*time.Second
	}))
	if len(e.Next) != 1 || !strings.Contains(e.Next[0], "its deadline passes") {
		t.Errorf("a task that gets its permit after its deadline: next: %q", e.Next)
	}
	if e.Backlog.Due != 501 || e.Backlog.Rate != 100 {
		t.Errorf("the estimate is %+v", e.Backlog)
	}
}

// The events that an explanation predicts after a failure and a crash are those that Settle decides.
func has(e explain.Explanation, code explain.Code) bool {
	return slices.ContainsFunc(e.Causes, func(c explain.Cause) bool { return c.Code == code })
}

func TestNext(t *testing.T) {
	t.Parallel()
	e := explain.Of(facts())
	want := []string{
		"if the next attempt succeeds, the task is done",
		"if the next attempt fails, attempt 2 is due 1m0s later",
		"if its worker crashes, attempt 2 is due at once",
	}
	if !slices.Equal(e.Next, want) {
		t.Errorf("next: %q, want %q", e.Next, want)
	}
	if e.Attempts == nil || len(e.Attempts) > 0 {
		t.Errorf("the attempts are %#v, want an empty list", e.Attempts)
	}
	if !e.NextStart.Equal(now) {
		t.Errorf("the next start is %s, want now", e.NextStart)
	}
	last := explain.Of(facts(func(f *explain.Facts) { f.Task.Failures, f.Task.Crashes = 2, 2 }))
	if last.Next[1] != "if the next attempt fails, the task is dead" || last.Next[2] != "if its worker crashes, the task is dead" {
		t.Errorf("next: %q", last.Next)
	}
	limits := explain.Of(facts(func(f *explain.Facts) {
		f.Task.Failures, f.Task.MaxAttempts, f.Settings.Policy.Deadline = 2, 0, time.Hour
	})).Limits
	if want := []string{"2 of 5 failures used", "0 of 3 crashes used", "0 of 9 deferrals used", "no attempt starts after 2030-01-31T09:59:00Z"}; !slices.Equal(limits, want) {
		t.Errorf("limits: %q, want %q", limits, want)
	}
	waits := explain.Of(facts(func(f *explain.Facts) {
		f.Place = &store.KeyPlace{OrderedKey: store.OrderedKey{Key: "a", Active: 5, State: holdfast.Dead}, Ahead: 0}
	}))
	if want := append([]string{"if an operator retries task 5, that task runs again first",
		"if an operator cancels or archives task 5, the next ordered task of the key starts"}, e.Next...); !slices.Equal(waits.Next, want) {
		t.Errorf("behind a dead task, next: %q, want %q", waits.Next, want)
	}
	if !waits.NextStart.IsZero() || waits.Backlog != nil {
		t.Errorf("a task that waits for its turn starts at %s, %+v", waits.NextStart, waits.Backlog)
	}
	waits = explain.Of(facts(func(f *explain.Facts) {
		f.Slot = &store.TopicPlace{TopicPart: store.TopicPart{Topic: "a", Queue: "default"}, Weight: 1, Executors: 4}
	}))
	if !waits.NextStart.IsZero() || waits.Backlog != nil || !slices.Equal(waits.Next, e.Next) {
		t.Errorf("a task that waits for a slot starts at %s, %+v, next: %q", waits.NextStart, waits.Backlog, waits.Next)
	}
	if doomed := explain.Of(facts(func(f *explain.Facts) { f.Task.Doomed = true })); len(doomed.Next) != 2 || doomed.Next[0] != "the task is dead, and its handler is not called" {
		t.Errorf("doomed, next: %q", doomed.Next)
	}
	for name, change := range map[string]func(*explain.Facts){
		"now":             func(f *explain.Facts) { f.Settings.Policy.Deadline = 30 * time.Second },
		"after the pause": func(f *explain.Facts) { f.Gates = []store.Gate{{Until: now.Add(time.Hour)}} },
		"some time":       func(f *explain.Facts) { f.Settings.Policy.Deadline, f.Gates = time.Second, []store.Gate{{}} },
	} {
		expired := explain.Of(facts(func(f *explain.Facts) { f.Settings.Policy.Deadline = 10 * time.Minute; change(f) }))
		if len(expired.Next) != 1 || !strings.Contains(expired.Next[0], "its deadline passes before its next start") {
			t.Errorf("a task that starts %s after its deadline: next: %q", name, expired.Next)
		}
	}
	dead := explain.Of(facts(func(f *explain.Facts) { f.Task.State = holdfast.Dead }))
	if want := []string{"an operator can archive it", "an operator can cancel it", "an operator can retry it, with all its attempts"}; !slices.Equal(dead.Next, want) {
		t.Errorf("next: %q, want %q", dead.Next, want)
	}
	once := func(change func(*explain.Facts)) explain.Explanation {
		return explain.Of(facts(func(f *explain.Facts) { f.Settings.Policy.AtMostOnce = true; change(f) }))
	}
	if got := once(func(*explain.Facts) {}); got.Next[1] != "if the next attempt fails, the task is dead" || got.Next[2] != "if its worker crashes, the task is dead" ||
		!slices.Equal(got.Limits, []string{"no second attempt starts before an operator retries the task"}) {
		t.Errorf("a task that runs at most once, next: %q, limits: %q", got.Next, got.Limits)
	}
	if got := once(func(f *explain.Facts) { f.Task.Crashes = 2 }); len(got.Next) != 1 || !strings.Contains(got.Next[0], "makes the task dead and does not call its handler") || has(got, explain.LastChance) {
		t.Errorf("a task that has started, next: %q, causes: %+v", got.Next, got.Causes)
	}
	if got := once(func(f *explain.Facts) { f.Task.State, f.Task.Worker = holdfast.Running, 8 }); !strings.HasSuffix(got.Causes[0].Text, "a janitor makes the task dead, because its type runs at most once") {
		t.Errorf("a task whose worker has ended: %+v", got.Causes)
	}
	if got := once(func(f *explain.Facts) { f.Task.State = holdfast.Dead }); !slices.Contains(got.Next, explain.RetriesOnce) {
		t.Errorf("a dead task that runs at most once, next: %q", got.Next)
	}
	for first, place := range map[string]store.KeyPlace{
		"3 ordered tasks of the key a wait behind it until an operator retries, cancels or archives it":              {OrderedKey: store.OrderedKey{Waiting: 3}, Ahead: -1},
		"1 ordered task of the key a waits behind it until an operator retries, cancels or archives it":              {OrderedKey: store.OrderedKey{Waiting: 1}, Ahead: -1},
		"100000 or more ordered tasks of the key a wait behind it until an operator retries, cancels or archives it": {OrderedKey: store.OrderedKey{Waiting: store.MaxCountedBlocked}, Ahead: -1},
		"new ordered tasks of the key a wait behind it until an operator retries, cancels or archives it":            {Ahead: -1},
		"later ordered tasks of the key a die without an attempt until an operator retries, cancels or archives it":  {OrderedKey: store.OrderedKey{Doomed: true}, Ahead: -1},
		"an operator can archive it": {}, // the task is not the active one
	} {
		place.Key = "a"
		e := explain.Of(facts(func(f *explain.Facts) { f.Task.State, f.Place = holdfast.Dead, &place }))
		if e.Next[0] != first || !slices.Equal(e.Next[len(e.Next)-3:], dead.Next) {
			t.Errorf("next: %q, want %q first", e.Next, first)
		}
	}
}

// For any task and any policy, the predicted delay is that of the transition that a worker would store.
func TestThePredictionIsThatOfSettle(t *testing.T) {
	t.Parallel()
	for id := range holdfast.TaskID(200) {
		f := facts(func(f *explain.Facts) {
			f.Task.ID, f.Task.Attempt, f.Task.Failures = id+1, int(id%7)+1, int(id%2)
			f.Settings.Policy = holdfast.DefaultPolicy()
		})
		running := f.Task
		running.State = holdfast.Running
		move, err := holdfast.Settle(running, holdfast.Returned(errors.New("any")), now, f.Settings.Policy)
		if err != nil {
			t.Fatal(err)
		}
		if want := " due " + move.Wait.Round(time.Second).String() + " later"; move.Wait > 10*time.Second && !strings.HasSuffix(explain.Of(f).Next[1], want) {
			t.Errorf("task %s: %s; want%s", running.ID, explain.Of(f).Next[1], want)
		}
	}
}

// A task that waits behind others gets a range for its start, computed from the throughput that the workers report.
func TestBacklog(t *testing.T) {
	t.Parallel()
	busy := func(ended int, mean time.Duration) func(*explain.Facts) {
		return func(f *explain.Facts) {
			f.Queue.Due, f.Queue.OldestDue = 101, 100*time.Second
			f.Task.NextRunAt = now.Add(-50 * time.Second)
			f.Workers[0].Report.Throughput = []store.QueueThroughput{{Queue: "other", Ended: 9000, Over: time.Second, Mean: 1}, {Queue: "default", Ended: ended, Over: 10 * time.Second, Mean: mean}}
		}
	}
	for name, c := range map[string]struct {
		change           func(*explain.Facts)
		earliest, latest time.Duration
	}{
		// 2 tasks/s were observed and are possible. 50 tasks became due earlier; at twice the rate they take 12.5 s. At
		// half the rate all 101 take 101 s.
		"busy": {busy(20, 2*time.Second), 12500 * time.Millisecond, 103 * time.Second},
		// 40 tasks/s are possible, but only 2 were observed.
		"idle until now":                      {busy(20, 100*time.Millisecond), 625 * time.Millisecond, 103 * time.Second},
		"long tasks, none has ended recently": {busy(0, 2*time.Second), 12500 * time.Millisecond, 103 * time.Second},
		"the oldest":                          {func(f *explain.Facts) { busy(20, 2*time.Second)(f); f.Task.NextRunAt = now.Add(-100 * time.Second) }, 0, 103 * time.Second},
		"the newest":                          {func(f *explain.Facts) { busy(20, 2*time.Second)(f); f.Task.NextRunAt = now }, 25 * time.Second, 103 * time.Second},
		"alone":                               {func(f *explain.Facts) { busy(20, 2*time.Second)(f); f.Queue.Due = 1 }, 0, 3 * time.Second},
		"almost never":                        {func(f *explain.Facts) { busy(0, 1<<62)(f); f.Queue.Due = 1 << 62 }, 100 * 365 * 24 * time.Hour, 100*365*24*time.Hour + 2*time.Second},
	} {
		e := explain.Of(facts(c.change))
		if e.Backlog == nil || e.Backlog.Earliest.Sub(now) != c.earliest || e.Backlog.Latest.Sub(now) != c.latest || e.Backlog.Due < 1 {
			t.Errorf("%s: %+v, want %s to %s", name, e.Backlog, c.earliest, c.latest)
		}
	}
	if e := explain.Of(facts(busy(20, 2*time.Second))); !strings.HasSuffix(e.Causes[0].Text, "; by the recent throughput of about 2 tasks per second it starts in 13s to 1m43s") {
		t.Errorf("the cause is %+v", e.Causes)
	}
	for name, change := range map[string]func(*explain.Facts){
		"no data":           func(*explain.Facts) {},
		"the worker drains": func(f *explain.Facts) { busy(20, time.Second)(f); f.Workers[0].Draining = true },
		"another type":      func(f *explain.Facts) { busy(20, time.Second)(f); f.Workers[0].Types = []string{"http"} },
		"not due": func(f *explain.Facts) {
			busy(20, time.Second)(f)
			f.Task.NextRunAt, f.Position.Ticketed = now.Add(time.Hour), false
		},
		"without a ticket": func(f *explain.Facts) { busy(20, time.Second)(f); f.Position.Ticketed = false },
		"it runs":          func(f *explain.Facts) { busy(20, time.Second)(f); f.Task.State = holdfast.Running },
	} {
		if e := explain.Of(facts(change)); e.Backlog != nil {
			t.Errorf("%s: %+v, want no estimate", name, e.Backlog)
		}
	}
}
