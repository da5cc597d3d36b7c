package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// setSource declares a source and checks what that changed.
func (w *fixture) setSource(q *queue.Client, s queue.Source, want queue.SourceChange) queue.SourceResult {
	w.Helper()
	result, err := q.SetSource(w.Context(), s)
	w.must(err)
	if result.Name != s.Name || result.Change != want {
		w.Errorf("source %s is %s, want %s", result.Name, result.Change, want)
	}
	return result
}

// settings returns the settings that a stored source has itself.
func (w *fixture) settings(q *queue.Client, name string) plan.Source {
	w.Helper()
	s, err := queue.Backend(q).Source(w.Context(), name)
	w.must(err)
	return s.Spec
}

// Handlers get the slices of a source in time, each once. A backfill pulls them again.
func TestASourceIsPulled(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		type pull struct {
			task  holdfast.Task
			slice queue.Slice
		}
		pulls := make(chan pull, 1000)
		w.must(queue.HandleSlices(q, "orders.pull", func(_ context.Context, task holdfast.Task, s queue.Slice) error {
			pulls <- pull{task, s}
			return nil
		}, queue.Queue("pulls")))
		begin := time.Now().Add(-10 * time.Minute).Truncate(time.Minute)
		declared := queue.Source{
			Name: "shop-17", Type: "orders.pull", Every: time.Minute, Overlap: 5 * time.Second, Lag: 5 * time.Minute,
			Start: queue.From(begin), InFlight: 4, MaxAttempts: 3,
		}
		if result := w.setSource(q, declared, queue.SourceCreated); !result.Next.Equal(begin) || !result.DoneThrough.Equal(begin) {
			t.Errorf("result %+v", result)
		}
		w.run(q)
		seen := make(map[time.Time]bool)
		next := func() pull {
			select {
			case p := <-pulls:
				return p
			case <-time.After(slow.Patience()):
				t.Fatal("no slice runs")
			}
			panic("unreachable")
		}
		for range 4 { // the lag keeps the others back
			p := next()
			offset := p.slice.From.Add(5 * time.Second).Sub(begin)
			if seen[p.slice.From] || offset%time.Minute != 0 || p.slice.To.Sub(p.slice.From) != time.Minute+5*time.Second || p.slice.Source != "shop-17" {
				t.Errorf("slice %+v", p.slice)
			}
			if p.task.Key != "shop-17" || p.task.Queue != "pulls" || p.task.MaxAttempts != 3 {
				t.Errorf("task %+v", p.task)
			}
			seen[p.slice.From] = true
		}
		w.must(q.DeleteSource(t.Context(), "shop-17", "the shop has closed"))
		w.setSource(q, declared, queue.SourceCreated)
		name, err := q.BackfillSource(t.Context(), "shop-17", begin, begin.Add(90*time.Second), 1, "lost records")
		w.must(err)
		for found := 0; found < 2; {
			p := next()
			if strings.HasPrefix(p.task.Unique, "slice/"+name+"/") {
				found++
			}
		}
	})
}

// Two sources of one type have timeouts and delays of their own, and a third one has those of the type.
func TestSourcesHaveTimeoutsAndDelaysOfTheirOwn(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		limits := make(chan [2]string, 100)
		w.must(queue.HandleSlices(q, "orders.pull", func(ctx context.Context, _ holdfast.Task, s queue.Slice) error {
			limit := "none"
			if until, limited := ctx.Deadline(); limited && time.Until(until) > time.Hour {
				limit = "long"
			} else if limited {
				<-ctx.Done()
				limit = "short"
			}
			limits <- [2]string{s.Source, limit}
			return errors.New("the platform is down")
		}, queue.Backoff(24*time.Hour, 24*time.Hour), queue.Timeout(5*time.Hour)))
		shop := queue.Source{Type: "orders.pull", Every: time.Hour, Start: queue.Ago(time.Hour)}
		declare := func(name string, timeout time.Duration, retry queue.SourceRetry) {
			s := shop
			s.Name, s.Timeout, s.Retry = name, timeout, retry
			w.setSource(q, s, queue.SourceCreated)
		}
		declare("quick", time.Millisecond, queue.SourceRetry{Strategy: holdfast.Linear, Base: 2 * time.Hour, Max: 100 * time.Hour})
		declare("capped", 2*time.Hour, queue.SourceRetry{Max: time.Hour})
		declare("plain", 0, queue.SourceRetry{})
		w.run(q)
		found := make(map[string]string)
		for len(found) < 3 {
			select {
			case limit := <-limits:
				found[limit[0]] = limit[1]
			case <-time.After(slow.Patience()):
				t.Fatalf("only these sources run: %v", found)
			}
		}
		if found["quick"] != "short" || found["capped"] != "long" || found["plain"] != "long" {
			t.Errorf("limits %v", found)
		}
		for name, want := range map[string]time.Duration{"quick": 2 * time.Hour, "capped": time.Hour, "plain": 24 * time.Hour} {
			var task holdfast.Task
			w.eventually("the failure of "+name, func() bool {
				page, err := queue.Backend(q).Store.List(w.Context(), store.Filter{Key: name, Limit: 1})
				w.must(err)
				task = page.Tasks[0]
				return task.Failures == 1 && task.State == holdfast.Ready
			})
			attempts, err := queue.Backend(q).Store.Attempts(w.Context(), task.ID)
			w.must(err)
			wait := task.NextRunAt.Sub(attempts[0].FinishedAt)
			if wait < want*8/10 || wait > want*12/10 {
				t.Errorf("%s waits for %s, want about %s", name, wait, want)
			}
			if timeout := attempts[0].Class == "timeout"; timeout != (name == "quick") {
				t.Errorf("%s failed with %s: %s", name, attempts[0].Class, attempts[0].Error)
			}
		}
	})
}

// The name of a backfill may be longer than that of a source. The backfill can still be changed.
func TestABackfillOfALongNameCanBeChanged(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		name := strings.Repeat("n", holdfast.MaxNameLength)
		w.setSource(q, queue.Source{Name: name, Type: "pull", Every: time.Minute, Start: queue.Ago(time.Hour)}, queue.SourceCreated)
		begin := time.Now().Add(-time.Hour)
		backfill, err := q.BackfillSource(t.Context(), name, begin, begin.Add(time.Minute), 1, "lost records")
		w.must(err)
		set := func(name string) error {
			ada := store.Actor{Name: "ada", Surface: store.CommandLine}
			_, _, err := queue.Backend(q).SetSource(t.Context(), ada, name, func(s *plan.Source) error {
				s.Type, s.Every, s.InFlight = "pull", new(plan.Duration(time.Minute)), new(9)
				return nil
			})
			return err
		}
		w.must(set(backfill))
		if err := set(backfill + "x"); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a new source with a long name: %v", err)
		}
	})
}

// Only a new declaration changes a stored source. It replaces the edits of persons.
func TestADeclarationOfASourceChangesOnlyWhatHasChanged(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		first := queue.Source{
			Name: "shop", Type: "pull", Every: 5 * time.Minute, Start: queue.Ago(90 * 24 * time.Hour), InFlight: 4,
			Rate: store.Rate{Count: 100, Per: time.Minute}, Note: "first",
		}
		created := w.setSource(q, first, queue.SourceCreated)
		w.setSource(q, first, queue.SourceUnchanged)
		ada := store.Actor{Name: "ada", Surface: store.CommandLine}
		_, _, err := queue.Backend(q).SetSource(t.Context(), ada, "shop", func(s *plan.Source) error {
			s.InFlight = new(9)
			return nil
		})
		w.must(err)
		w.setSource(q, first, queue.SourceUnchanged)
		if s := w.settings(q, "shop"); *s.InFlight != 9 || s.Note != "first" || s.TypeQueue != "default" || s.Overlap != nil {
			t.Errorf("settings %+v", s)
		}
		second := first
		second.Rate, second.Start = store.Rate{}, queue.Ago(time.Hour)
		changed := w.setSource(q, second, queue.SourceChanged)
		if s := w.settings(q, "shop"); *s.InFlight != 4 || s.Rate != nil {
			t.Errorf("settings %+v", s)
		}
		if !changed.Next.Equal(created.Next) || time.Since(changed.Next) < 89*24*time.Hour {
			t.Errorf("the source begins at %s, and after a change at %s", created.Next, changed.Next)
		}
		w.setSource(q, second, queue.SourceUnchanged)
		entries, err := queue.Backend(q).Store.AuditLog(t.Context(), store.AuditFilter{Subject: store.PlanSubject(store.SourceKind, "shop"), Limit: 10})
		w.must(err)
		if len(entries) != 3 {
			t.Errorf("%d entries in the audit log, want 3", len(entries))
		}

		w.setSource(q, queue.Source{Name: queue.DefaultSource, Type: "pull", Every: time.Hour, Overlap: time.Minute}, queue.SourceCreated)
		w.setSource(q, queue.Source{Name: "other"}, queue.SourceCreated)
		s, err := queue.Backend(q).Source(t.Context(), "other")
		w.must(err)
		if e := s.Effective; e.Type != "pull" || time.Duration(*e.Every) != time.Hour || time.Duration(*e.Overlap) != time.Minute {
			t.Errorf("settings with those of the default: %+v", e)
		}
	})
}

func TestWrongSources(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	good := queue.Source{Name: "shop", Type: "pull", Every: time.Minute}
	for text, change := range map[string]func(*queue.Source){
		"name":              func(s *queue.Source) { s.Name = "a b" },
		"needs the type":    func(s *queue.Source) { s.Type = "" },
		"needs the length":  func(s *queue.Source) { s.Every = 0 },
		"slice of 1ms":      func(s *queue.Source) { s.Every = time.Millisecond },
		"the overlap":       func(s *queue.Source) { s.Overlap = -time.Second },
		"the lag":           func(s *queue.Source) { s.Lag = -time.Second },
		"is in the future":  func(s *queue.Source) { s.Start = queue.Ago(-time.Hour) },
		"slices in flight":  func(s *queue.Source) { s.InFlight = -1 },
		"rate":              func(s *queue.Source) { s.Rate.Count = 1 },
		"queue":             func(s *queue.Source) { s.Queue = "a b" },
		"max attempts":      func(s *queue.Source) { s.MaxAttempts = -1 },
		"the timeout":       func(s *queue.Source) { s.Timeout = -time.Second },
		"a list of delays":  func(s *queue.Source) { s.Retry.Strategy = holdfast.List },
		"the retry base":    func(s *queue.Source) { s.Retry.Base = -time.Second },
		"the longest delay": func(s *queue.Source) { s.Retry.Max = holdfast.MaxDuration + 1 },
		"the limit is 1000": func(s *queue.Source) { s.Note = strings.Repeat("n", 1001) },
		"the type http":     func(s *queue.Source) { s.Type = holdfast.TypeHTTP },
	} {
		s := good
		change(&s)
		if _, err := q.SetSource(t.Context(), s); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, _, err := queue.Backend(q).SetSource(t.Context(), store.Actor{Name: "ada", Surface: store.CommandLine}, "shop", func(s *plan.Source) error {
		s.Type, s.Every = "pull", new(plan.Duration(time.Hour))
		return nil
	})
	w.must(err)
	if _, err := q.SetSource(t.Context(), good); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "ada") {
		t.Errorf("the source of a person: %v", err)
	}

	calls := map[string]func() error{
		"DeleteSource": func() error { return q.DeleteSource(t.Context(), "none", "") },
		"BackfillSource": func() error {
			_, err := q.BackfillSource(t.Context(), "none", time.Now().Add(-time.Hour), time.Now(), 0, "")
			return err
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.must(q.Close())
	calls["SetSource"] = func() error { _, err := q.SetSource(t.Context(), good); return err }
	for name, call := range calls {
		if err := call(); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

// A task that is no slice is dead, and the handler does not see it. A slice has the payload that sources store.
func TestTasksOfSlices(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	want := queue.Slice{Source: "shop", From: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2030, 1, 1, 1, 0, 0, 0, time.UTC)}
	var got []queue.Slice
	w.must(queue.HandleSlices(q, "pull", func(_ context.Context, _ holdfast.Task, s queue.Slice) error {
		got = append(got, s)
		return nil
	}))
	w.run(q)
	for _, payload := range []any{nil, map[string]string{"source": "shop"}, queue.Slice{Source: "shop", From: want.To, To: want.From}} {
		if task := w.wait(q, w.enqueue(q, "pull", payload)); task.State != holdfast.Dead {
			t.Errorf("payload %v: the task is %s", payload, task.State)
		}
	}
	w.wait(q, w.enqueue(q, "pull", plan.Slice(want)))
	if len(got) != 1 || got[0] != want {
		t.Errorf("the handler got %+v", got)
	}
	ours, _ := json.Marshal(want)
	theirs, _ := json.Marshal(plan.Slice(want))
	if string(ours) != string(theirs) {
		t.Errorf("payload %s, want %s", ours, theirs)
	}
	if err := queue.HandleSlices(w.open(), "pull", nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a nil handler: %v", err)
	}
}
