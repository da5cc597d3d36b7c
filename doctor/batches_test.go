package doctor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 30, 0, 0, time.UTC)
	batch := func(id store.ID, state store.PlanState, open bool, change func(*plan.BatchProgress)) store.Plan {
		spec := plan.Batch{Stages: []plan.Stage{{Open: open, Tasks: []plan.Task{{Type: "mail"}}}}}
		p := spec.Plan(fmt.Sprint("b", id), now)
		_, progress, err := plan.ReadBatch(p)
		if err != nil {
			t.Fatal(err)
		}
		change(&progress)
		p.ID, p.State = id, state
		if p.Progress, err = json.Marshal(progress); err != nil {
			t.Fatal(err)
		}
		return p
	}
	same := func(*plan.BatchProgress) {}
	stopped := func(p *plan.BatchProgress) { p.Stopped = "2 of 3 tasks have failed" }
	idle := func(d time.Duration) func(*plan.BatchProgress) {
		return func(p *plan.BatchProgress) { p.PushedAt = now.Add(-d) }
	}
	sealed := func(p *plan.BatchProgress) { p.PushedAt, p.Sealed = now.Add(-48*time.Hour), true }
	cancelling := func(p *plan.BatchProgress) { p.PushedAt, p.Cancelling = now.Add(-48*time.Hour), true }
	open := func(p *plan.BatchProgress) { cancelling(p); p.Now.Total = 3 }
	newer := batch(9, store.PlanRunning, false, same)
	newer.Spec = []byte(`{"weekday": "monday"}`)
	const fine = "ok 1 batch has not ended, none has stopped, and none waits for a program"
	for name, c := range map[string]struct {
		plans []store.Plan
		want  string // a line for each check
	}{
		"none":                      {nil, "ok 0 batches have not ended, none has stopped, and none waits for a program"},
		"running":                   {[]store.Plan{batch(1, store.PlanRunning, false, idle(48*time.Hour))}, fine},
		"paused":                    {[]store.Plan{batch(1, store.PlanPaused, false, same)}, fine},
		"open":                      {[]store.Plan{batch(1, store.PlanRunning, true, idle(time.Hour))}, fine},
		"sealed":                    {[]store.Plan{batch(1, store.PlanRunning, true, sealed)}, fine},
		"cancelled":                 {[]store.Plan{batch(1, store.PlanRunning, true, cancelling)}, fine},
		"cancelled with open tasks": {[]store.Plan{batch(7, store.PlanRunning, false, open)}, fine},
		"cancelled by nothing": {[]store.Plan{batch(7, store.PlanRunning, false, open), batch(8, store.PlanRunning, false, open)},
			"warning no operation cancels the tasks of 1 cancelled batch: 8 advice cancel it again: the process that cancelled it has ended too early"},
		"forgotten": {[]store.Plan{batch(1, store.PlanRunning, true, idle(2*time.Hour)), batch(2, store.PlanRunning, true, idle(3*time.Hour))},
			"warning 2 batches are open, and got no subtask for up to 3h0m0s: 1, 2 open_batch 1"},
		"stopped": {[]store.Plan{batch(3, store.PlanStopped, false, stopped), batch(4, store.PlanStopped, true, stopped)},
			"warning the batch 3 has stopped: 2 of 3 tasks have failed; others have stopped, too: 4 stopped_batch 3"},
		"a newer version": {[]store.Plan{newer},
			"warning a newer version has stored 1 batch: 9 advice start janitors of the newer version; this version makes no steps of these batches"},
	} {
		e := &examination{store: &storeDouble{&world{plans: c.plans}}}
		e.examineBatches(t.Context(), now)
		var lines []string
		for _, c := range e.Checks {
			if c.Name != "batches" {
				t.Errorf("%s: the check %s", name, c.Name)
			}
			lines = append(lines, strings.TrimSpace(fmt.Sprint(c.Severity, " ", c.Detail, " ", c.Remedy.Kind, " ", c.Remedy.Arg)))
		}
		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, c.want)
		}
	}
}
