package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

// A page of the audit log ends early if its entries are large. Then it has the cursor of the next page.
func TestAPageOfTheAuditLogEndsByItsSize(t *testing.T) {
	everywhere(t, func(w *world) {
		viewer := w.token("ada", store.Viewer, 0)
		id := w.Dead(holdfast.NewTask{Type: "mail"})
		const edits = 6
		for i := range edits {
			task, err := w.Store.Task(w.Context(), id)
			if err != nil {
				w.Fatal(err)
			}
			edit := store.Edit{Payload: json.RawMessage(fmt.Sprintf(`"%0*d"`, 1<<20, i))}
			if _, err = w.Store.Change(w.Context(), store.Actor{Name: "ben"}, []store.Change{{Action: store.ActionEdit, Task: task, Edit: &edit}}); err != nil {
				w.Fatal(err)
			}
		}
		entries := 0
		for next := "0"; ; {
			r := w.call("GET", "/api/v1/audit?limit=1000&before="+next, "", viewer...)
			if r.status != http.StatusOK || len(r.text) > 8<<20 {
				w.Fatalf("status %d, %d bytes", r.status, len(r.text))
			}
			entries += strings.Count(r.text, `"action":"edit"`)
			after, more := r.at("next").(string)
			if !more {
				break
			}
			next = after
		}
		if entries != edits {
			w.Errorf("the pages have %d entries, want %d", entries, edits)
		}
	})
}

// If a reason is too long, the response is a problem and nothing changes.
func TestALongReasonIsRefused(t *testing.T) {
	everywhere(t, func(w *world) {
		operator := w.token("ada", store.Operator, 0)
		id := w.Dead(holdfast.NewTask{Type: "mail"})
		reason := strings.Repeat("x", 1001)
		for _, r := range []response{
			w.call("POST", "/api/v1/tasks/"+id.String()+"/retry?reason="+url.QueryEscape(reason), "", operator...),
			w.call("POST", "/api/v1/operations", `{"action":"archive","query":"state:dead","reason":"`+reason+`"}`, operator...),
		} {
			if r.status != http.StatusBadRequest && r.status != http.StatusUnprocessableEntity || !strings.Contains(r.text, "1001 characters") {
				w.Errorf("status %d: %s", r.status, r.text)
			}
		}
		if task, err := w.Store.Task(w.Context(), id); err != nil || task.State != holdfast.Dead {
			w.Errorf("the task is %s: %v", task.State, err)
		}
	})
}

// An operation is one entry with its counts, and its changes of tasks are listed on request. Entries have the values that
// differ.
func TestAuditOfAnOperation(t *testing.T) {
	everywhere(t, func(w *world) {
		by := store.Actor{Name: "ada", Surface: store.API}
		id := w.Dead(holdfast.NewTask{Type: "mail"})
		o, err := w.StartOperation(w.Context(), by, store.Operation{
			Action: store.ActionArchive, Query: "state:dead", Filter: store.Filter{States: []holdfast.State{holdfast.Dead}},
		}, true)
		if err != nil {
			w.Fatal(err)
		}
		task, err := w.Store.Task(w.Context(), id)
		if err != nil {
			w.Fatal(err)
		}
		move, err := holdfast.Settle(task, holdfast.Requested(holdfast.EventArchive), time.Now(), holdfast.DefaultPolicy())
		if err != nil {
			w.Fatal(err)
		}
		next := o
		next.Changed = 1
		if _, err := w.Store.StepOperation(w.Context(), store.OperationStep{From: o, To: next, Changes: []store.Change{{Action: store.ActionArchive, Task: task, Move: &move}}}); err != nil {
			w.Fatal(err)
		}
		w.get("/api/v1/audit").want("the log", 200, "entries.0.operation", o.ID.String(), "entries.0.task", nil, "entries.0.result.changed", 1,
			"entries.0.result.state", "planned", "entries.0.changes.0", nil, "entries.1", nil)
		w.get("/api/v1/audit?tasks=true").want("with its tasks", 200, "entries.0.task", id.String(), "entries.0.changes.0.path", "/state",
			"entries.0.changes.0.was", `"dead"`, "entries.0.changes.0.is", `"archived"`, "entries.0.changes.1", nil, "entries.1.task", nil, "entries.2", nil)
		w.get("/api/v1/audit?operation="+o.ID.String()).want("of the operation", 200, "entries.0.task", nil, "entries.1", nil)
		w.get("/api/v1/audit?task="+id.String()).want("of the task", 200, "entries.0.operation", o.ID.String(), "entries.1", nil)
	})
}

// A retry that waits says how many tasks it waits for, and what blocks them.
func TestAWaitingRetryNamesThePause(t *testing.T) {
	everywhere(t, func(w *world) {
		operator := w.token("ada", store.Operator, 0)
		id := w.Dead(holdfast.NewTask{Type: "mail", Queue: "mail"})
		w.call("POST", "/api/v1/gates", `{"kind":"pause","queue":"mail"}`, operator...).want("the pause", 201)
		o, err := w.StartOperation(w.Context(), store.Actor{Name: "ada", Surface: store.API}, store.Operation{
			Action: store.ActionRetry, Query: "state:dead", Filter: store.Filter{States: []holdfast.State{holdfast.Dead}},
		}, false)
		if err != nil {
			w.Fatal(err)
		}
		task, err := w.Store.Task(w.Context(), id)
		if err != nil {
			w.Fatal(err)
		}
		move, err := holdfast.Settle(task, holdfast.Requested(holdfast.EventRequeue), time.Now(), holdfast.DefaultPolicy())
		if err != nil {
			w.Fatal(err)
		}
		next := o
		next.Changed, next.WaitingAt = 1, time.Now()
		if _, err := w.Store.StepOperation(w.Context(), store.OperationStep{From: o, To: next, Changes: []store.Change{{Action: store.ActionRetry, Task: task, Move: &move}}}); err != nil {
			w.Fatal(err)
		}
		w.call("GET", "/api/v1/operations/"+o.ID.String(), "", operator...).want("the operation", 200,
			"waits_for", "the first attempts of 1 task; 1 is blocked: queue mail is paused")
	})
}

// The route accepts every action as a filter.
func TestAuditByAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, backendtest.FileSettings(t), nil)
	for _, action := range store.Actions() {
		w.call("GET", "/api/v1/audit?action="+string(action), "").want(string(action), 200)
	}
}
