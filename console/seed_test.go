package console_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// hostile returns a text that runs a script if a page does not escape it, and that begins another event if a stream does
// not encode it. Its name tells it from others.
func hostile(name string) string {
	return `"'><script>alert(` + name + `)</script>` + "\r\revent: end\rdata: forged\r\n\r\nevent: main\ndata: forged\n\n\u2028"
}

// hostileName is like hostile, for names and for fields of one line, which have no line breaks.
func hostileName(name string) string { return `"'><script>alert(` + name + `)</script>` }

// hostileFields are the names of the texts that seed stores. Each is on a page.
var hostileFields = []string{
	"payload", "member", "error", "details", "tag", "key", "order", "topic", "note", "owner", "progress", "output", "worker", "host", "version", "actor",
	"pause", "limit", "operation", "batch", "cause", "stopped",
	"schedule", "source", "shards",
}

// seed stores data of every kind with hostile texts. It returns the paths of what it has stored, by the pattern of their
// page.
func (w *world) seed() map[string][]string {
	w.Helper()
	paths := make(map[string][]string)
	quoted := func(name string) string {
		text, err := json.Marshal(hostile(name))
		w.must(err)
		return string(text)
	}
	w.seedTasks(paths)
	w.seedWorkers(paths)
	w.seedOperations(paths)
	w.seedBatches(paths)
	w.change("POST", "/gates", `{"kind":"pause","key":"tenant 7","reason":`+quoted("pause")+`}`)
	w.change("PUT", "/limits", `{"type":"limited","rate":"100/s","concurrency":3,"reason":`+quoted("limit")+`}`)
	w.must(w.Store.ReportTargets(w.Context(), []store.TargetReport{{Target: "https://slow.example:443", Trip: true, Cause: hostile("cause")}}))
	w.seedPlans(paths, quoted)
	w.change("PATCH", "/settings", `{"types.mail.retry.base":"5s"}`)
	paths["/queues/{name}"] = []string{"/queues/default", "/queues/held"}
	return paths
}

// seedPlans stores schedules, sources and shard jobs, each in several states.
func (w *world) seedPlans(paths map[string][]string, quoted func(string) string) {
	w.Helper()
	for _, name := range []string{"nightly", "paused"} {
		w.change("POST", "/schedules", `{"name":"`+name+`","cron":"30 2 * * *","timezone":"Europe/Berlin","note":`+quoted("schedule")+`,"jitter":"10m","pause_after":3,
			"task":{"type":"mail","payload":{"days":9007199254740993},"key":"reports","tags":["night"]}}`)
	}
	w.change("POST", "/schedules", `{"name":"often","every":"2h","overlap":"3","missed":"all","end":"2999-01-01T00:00:00Z","task":{"type":"mail"}}`)
	w.change("POST", "/schedules/often/run", "")
	w.change("POST", "/schedules/paused/pause", `{"reason":"works"}`)
	w.change("POST", "/schedules/nightly/backfill", `{"from":"2025-01-01T00:00:00Z","to":"2025-01-05T00:00:00Z"}`)
	w.change("PUT", "/sources/default", `{"lag":"30s","timeout":"45s"}`)
	w.change("PUT", "/sources/shop", `{"type":"pull","every":"24h","start":"2025-01-01T00:00:00Z","in_flight":3,"retry_strategy":"linear","retry_base":"90s","note":`+quoted("source")+`}`)
	w.change("POST", "/sources/shop/backfill", `{"from":"2025-01-01T00:00:00Z","to":"2025-01-05T00:00:00Z"}`)
	w.change("PUT", "/shard-jobs/scan", `{"type":"scan","zones":{"0":"a","1":"b"},"note":`+quoted("shards")+`}`)
	w.advance()
	page, err := w.Store.List(w.Context(), store.Filter{Type: "pull", Key: "shop", Limit: 1})
	w.must(err)
	w.Settle(page.Tasks[0].ID, holdfast.Returned(holdfast.Permanent(errors.New("slice"))), holdfast.DefaultPolicy())
	w.advance()
	schedules, err := w.Schedules(w.Context(), "", 10)
	w.must(err)
	for _, s := range schedules {
		paths["/schedules/{name}"] = append(paths["/schedules/{name}"], "/schedules/"+s.Name)
	}
	sources, err := w.Sources(w.Context(), "", 10)
	w.must(err)
	for _, s := range sources {
		paths["/sources/{name}"] = append(paths["/sources/{name}"], "/sources/"+s.Name)
	}
	paths["/shards/{name}"] = []string{"/shards/scan"}
}

// change makes a change by the HTTP API, as a caller with a hostile name, and returns the answer.
func (w *world) change(method, path, body string) (answer struct {
	ID string `json:"id"`
}) {
	w.Helper()
	r := httptest.NewRequestWithContext(w.Context(), method, "/api/v1"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	w.api.ServeAs(rec, r, access.Caller{Name: hostile("actor"), Scope: "seed", Role: access.Admin}, store.API)
	if rec.Code >= http.StatusMultipleChoices {
		w.Fatalf("%s %s %s: %d %s", method, path, body, rec.Code, rec.Body)
	}
	var id struct {
		ID any `json:"id"`
	}
	decoder := json.NewDecoder(rec.Body)
	decoder.UseNumber()
	w.must(decoder.Decode(&id))
	answer.ID = fmt.Sprint(id.ID)
	return answer
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// advance makes the steps of plans that are due, as a janitor does.
func (w *world) advance() {
	w.Helper()
	_, _, err := plan.New(w.Store).Advance(w.Context())
	w.must(err)
}

func (w *world) seedTasks(paths map[string][]string) {
	w.Helper()
	body, err := json.Marshal(map[string]any{hostile("member"): []any{hostile("payload"), 1, true, nil, map[string]any{}}})
	w.must(err)
	fault := holdfast.Permanent(holdfast.Detailed(errors.New(hostile("error")), "status", map[string]any{
		"url": "https://api.example/x", "status": 503, "body": hostile("details"),
	}))
	value, err := json.Marshal(hostile("output"))
	w.must(err)
	progress, err := json.Marshal(store.Progress{Percent: 40, Note: hostile("progress")})
	w.must(err)
	policy := holdfast.DefaultPolicy()

	ids := w.Enqueue(
		holdfast.NewTask{Type: "mail", Payload: body, Key: hostileName("key"), Tags: []string{"<script>alert(tag)</script>"}},
		holdfast.NewTask{Type: "mail", Payload: body}, holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "mail"},
		holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "mail", Delay: time.Hour},
		holdfast.NewTask{Type: "mail", Topic: hostileName("topic")}, holdfast.NewTask{Type: "mail", Key: "tenant 8", Ordered: true},
		holdfast.NewTask{Type: "held", Queue: "held"}, holdfast.NewTask{Type: "mail"},
		holdfast.NewTask{Type: "mail", Key: hostileName("order"), Ordered: true}, holdfast.NewTask{Type: "mail", Key: hostileName("order"), Ordered: true},
	)
	w.Settle(ids[0], holdfast.Returned(fault), policy)
	w.Settle(ids[1], holdfast.Returned(fault), policy)
	w.Settle(ids[2], holdfast.Returned(fault), policy)
	w.Settle(ids[3], holdfast.Returned(errors.New("try again")), policy) // retrying
	w.Settle(ids[4], holdfast.Returned(nil), policy, store.Datum{Name: store.OutputData, Value: value})
	w.Runs(ids[5], store.Datum{Name: store.ProgressData, Value: progress})
	w.change("POST", "/tasks/"+ids[6].String()+"/cancel", `{"reason":"odd"}`)
	w.change("POST", "/tasks/"+ids[2].String()+"/archive", "")
	w.change("POST", "/gates", `{"kind":"pause","queue":"held"}`)
	worker, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "worker", Concurrency: 1}, time.Hour)
	w.must(err)
	claims, err := w.Store.Claim(w.Context(), worker, store.AnyOf("held"), []message.Ticket{{Task: ids[10], Attempt: 1}}, store.IntoExecutors)
	if err != nil || claims[0].Verdict == store.Claimed {
		w.Fatalf("a claim from a paused queue: %+v, %v", claims, err)
	}
	w.Settle(ids[11], holdfast.Returned(holdfast.Permanent(errors.New("another cause"))), policy)
	for _, id := range ids {
		paths["/tasks/{id}"] = append(paths["/tasks/{id}"], "/tasks/"+id.String())
	}

	groups, err := w.Store.DeathGroups(w.Context(), store.DeathFilter{})
	w.must(err)
	if len(groups) != 2 {
		w.Fatalf("%d groups", len(groups))
	}
	for _, g := range groups {
		paths["/dead/{fingerprint}"] = append(paths["/dead/{fingerprint}"], "/dead/"+g.Fingerprint)
		if g.Tasks > 1 {
			for _, field := range []string{"note", "owner"} {
				body, err := json.Marshal(map[string]string{field: hostile(field)})
				w.must(err)
				w.change("PATCH", "/dead-groups/"+g.Fingerprint, string(body))
			}
		}
	}
}

func (w *world) seedWorkers(paths map[string][]string) {
	w.Helper()
	info := store.WorkerInfo{Name: hostile("worker"), Host: hostile("host"), Version: hostile("version"), Concurrency: 4, Queues: []string{"default"}}
	for _, role := range []string{"live", "draining", "ended"} {
		id, err := w.Store.RegisterWorker(w.Context(), info, time.Hour)
		w.must(err)
		switch role {
		case "live":
			stuck := store.WorkerReport{Stuck: []store.StuckTask{{Task: 7, Attempt: 1, For: time.Minute}}}
			_, err = w.Store.Renew(w.Context(), store.Renewal{Worker: id, Lease: time.Hour, Running: 2, Taken: 3, Settled: 1, Report: stuck})
		case "draining":
			err = w.Store.Drain(w.Context(), id)
		case "ended":
			err = w.Store.DeregisterWorker(w.Context(), id, true)
		}
		w.must(err)
		paths["/workers/{id}"] = append(paths["/workers/{id}"], "/workers/"+id.String())
	}
}

// seedOperations stores an operation in each state.
func (w *world) seedOperations(paths map[string][]string) {
	w.Helper()
	for _, state := range []store.OperationState{
		store.OperationPlanned, store.OperationRunning, store.OperationPaused, store.OperationStopped, store.OperationDone, store.OperationCancelled,
	} {
		o, err := w.Store.CreateOperation(w.Context(), store.Actor{Name: "ann", Surface: store.Library, Reason: hostile("operation")}, store.Operation{
			Action: store.ActionRetry, Query: "state:dead type:none", Filter: store.Filter{States: []holdfast.State{holdfast.Dead}, Type: "none"},
			State: store.OperationPlanned, Ramp: []int{1, 25, 100}, StopAbove: 0.5, Rate: 10, Total: 12,
		})
		w.must(err)
		if state != store.OperationPlanned {
			to := o
			to.State, to.Changed = state, 3
			if state == store.OperationStopped {
				to.Note = hostile("stopped")
			}
			_, err = w.Store.StepOperation(w.Context(), store.OperationStep{From: o, To: to, By: &tester})
			w.must(err)
		}
		paths["/operations/{id}"] = append(paths["/operations/{id}"], "/operations/"+o.ID.String())
	}
}

// seedBatches stores batches that run, are paused, have stopped and have ended.
func (w *world) seedBatches(paths map[string][]string) {
	w.Helper()
	note, err := json.Marshal(hostile("batch"))
	w.must(err)
	for _, name := range []string{"running", "paused", "cancelled"} {
		id := w.change("POST", "/batches", `{"open":true,"name":"`+name+`","then":{"type":"sum"},"note":`+string(note)+`}`).ID
		w.change("POST", "/batches/"+id+"/pages/0", `{"subtasks":[{"type":"sub"},{"type":"sub"}]}`)
		switch name {
		case "paused":
			w.change("POST", "/batches/"+id+"/pause", "")
		case "cancelled":
			w.change("POST", "/batches/"+id+"/cancel", "")
		}
		paths["/batches/{id}"] = append(paths["/batches/{id}"], "/batches/"+id)
	}
	id := w.change("POST", "/batches", `{"name":"stopped","stages":[{"tasks":[{"type":"sub"}]}]}`).ID
	w.advance()
	page, err := w.Store.List(w.Context(), store.Filter{Type: "sub", Limit: 1})
	w.must(err)
	w.Settle(page.Tasks[0].ID, holdfast.Returned(holdfast.Permanent(errors.New("subtask"))), holdfast.DefaultPolicy())
	w.Eventually("the batch has stopped", func() bool {
		w.advance()
		n, err := strconv.ParseInt(id, 10, 64)
		w.must(err)
		b, err := w.Batch(w.Context(), holdfast.BatchID(n))
		w.must(err)
		return surface.BatchOf(b).Dead == 1
	})
	paths["/batches/{id}"] = append(paths["/batches/{id}"], "/batches/"+id)
}
