package explain_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/store"
)

// The settings of the worker decide what happens next, not those of the process that explains.
func TestSettingsOfTheWorkers(t *testing.T) {
	t.Parallel()
	publish := func(base time.Duration) store.WorkerSettings {
		return store.WorkerSettings{"mail": {Timeout: time.Hour, Policy: holdfast.Policy{Strategy: holdfast.Fixed, Base: base, MaxAttempts: 7, MaxCrashes: 3}}}
	}
	other := func(f *explain.Facts, base time.Duration) {
		w := f.Workers[0]
		w.ID, w.Settings = 6, publish(base)
		f.Workers = append(f.Workers, w)
	}
	const mine, published = "if the next attempt fails, attempt 2 is due 1m0s later", "if the next attempt fails, attempt 2 is due 2s later"
	for name, c := range map[string]struct {
		change func(*explain.Facts)
		want   string
		more   string // expected in the last line
	}{
		"no worker publishes":   {func(*explain.Facts) {}, mine, "crashes"},
		"no worker":             {func(f *explain.Facts) { f.Workers = nil }, mine, "crashes"},
		"one publishes":         {func(f *explain.Facts) { f.Workers[0].Settings = publish(2 * time.Second) }, published, "crashes"},
		"one with other types":  {func(f *explain.Facts) { f.Workers[0].Settings = store.WorkerSettings{"http": {}} }, mine, "crashes"},
		"one of an older build": {func(f *explain.Facts) { other(f, 2*time.Second) }, published, "crashes"},
		"two with the same":     {func(f *explain.Facts) { f.Workers[0].Settings = publish(2 * time.Second); other(f, 2*time.Second) }, published, "crashes"},
		"one of another queue":  {func(f *explain.Facts) { other(f, 2*time.Second); f.Workers[1].Queues = []string{"other"} }, mine, "crashes"},
		"two with different ones": {func(f *explain.Facts) { f.Workers[0].Settings = publish(2 * time.Second); other(f, time.Hour) }, published,
			"the workers have different settings for the type mail; these are those of worker 5 (w1"},
		"a function": {func(f *explain.Facts) {
			f.Workers[0].Settings = publish(2 * time.Second)
			s := f.Workers[0].Settings["mail"]
			s.PolicyFor = true
			f.Workers[0].Settings["mail"] = s
		}, published, "a function in the program of the worker may choose another policy"},
	} {
		e := explain.Of(facts(c.change))
		if !slices.Contains(e.Next, c.want) || !strings.Contains(e.Next[len(e.Next)-1], c.more) {
			t.Errorf("%s: next: %q, want %s", name, e.Next, c.want)
		}
	}
	e := explain.Of(facts(func(f *explain.Facts) {
		f.Task.State, f.Task.Worker, f.Task.StartedAt = holdfast.Running, 5, now.Add(-20*time.Second)
		f.Workers[0].Settings = publish(2 * time.Second)
		other(f, time.Hour)
	}))
	if !slices.Contains(e.Next, "if this attempt fails, attempt 2 is due 2s later") || len(e.Next) != 3 || !strings.Contains(e.Causes[0].Text, "its time limit is 1h0m0s") {
		t.Errorf("a running task: %q, %+v", e.Next, e.Causes)
	}
}

// An edit gives a task a new attempt number. So the cause is the edit that moved the due time, or the attempt before
// the edits.
func TestCausesAfterEdits(t *testing.T) {
	t.Parallel()
	document := func(v store.Version) json.RawMessage {
		v.State = cmp.Or(v.State, holdfast.Ready)
		text, err := v.Document()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	entry := func(action store.Action, before, after store.Version) store.AuditEntry {
		return store.AuditEntry{At: now.Add(-time.Minute), Actor: store.Actor{Name: "anna"}, Action: action, Before: document(before), After: document(after)}
	}
	edit := func(attempt int, moved bool) store.AuditEntry {
		after := store.Version{Attempt: attempt}
		if moved {
			after.RunAt = now.Add(90 * time.Second)
		}
		return entry(store.ActionEdit, store.Version{Attempt: attempt - 1}, after)
	}
	failed := []holdfast.Attempt{{Attempt: 1, Event: holdfast.EventRetry}}
	undo := edit(3, true)
	undo.Action = store.ActionUndo
	for name, c := range map[string]struct {
		attempt  int
		attempts []holdfast.Attempt
		edits    []store.AuditEntry
		want     string
	}{
		"a moved time":                  {2, nil, []store.AuditEntry{edit(2, true)}, "because an edit by anna moved its time 1m0s ago"},
		"a moved time, after a failure": {3, failed, []store.AuditEntry{edit(3, true)}, "because an edit by anna moved its time 1m0s ago"},
		"an undo":                       {3, nil, []store.AuditEntry{undo, edit(2, true)}, "because the undo of an edit by anna moved its time"},
		"a moved time and another edit": {3, nil, []store.AuditEntry{edit(3, false), edit(2, true)}, "because an edit by anna moved its time"},
		"another edit":                  {2, nil, []store.AuditEntry{edit(2, false)}, "as it was enqueued"},
		"two other edits":               {3, nil, []store.AuditEntry{edit(3, false), edit(2, false)}, "as it was enqueued"},
		"another edit, after a failure": {3, failed, []store.AuditEntry{edit(3, false)}, "after failure 1 of 3"},
		"a failure after an edit":       {3, []holdfast.Attempt{{Attempt: 2, Event: holdfast.EventRetry}}, []store.AuditEntry{edit(2, true)}, "after failure 1 of 3"},
		"a failure without a record":    {3, nil, []store.AuditEntry{edit(2, true)}, "after attempt 2, which has no record"},
		"a retry by an operator":        {2, nil, []store.AuditEntry{entry(store.ActionRetry, store.Version{Attempt: 1, State: holdfast.Dead}, store.Version{Attempt: 2})}, "since the retry by anna 1m0s ago"},
	} {
		e := explain.Of(facts(func(f *explain.Facts) {
			f.Task.NextRunAt, f.Position.Ticketed = now.Add(90*time.Second), false
			f.Task.Attempt, f.Task.Failures, f.Attempts, f.Edits = c.attempt, len(c.attempts), c.attempts, c.edits
		}))
		if !strings.Contains(e.Causes[0].Text, c.want) {
			t.Errorf("%s: %s, want %s", name, e.Causes[0].Text, c.want)
		}
	}
}
