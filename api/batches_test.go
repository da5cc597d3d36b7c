package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/store"
)

func TestBatchesOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		operator, viewer := w.token("ada", store.Operator, 0), w.token("vera", store.Viewer, 0)
		call := func(method, path, body string, headers ...string) response {
			return w.call(method, "/api/v1/batches"+path, body, append(headers, operator...)...)
		}
		list := func(query string) response { return w.call("GET", "/api/v1/batches"+query, "", viewer...) }
		if r := list(""); r.text != "{\"batches\":[],\"next\":null}\n" {
			w.Errorf("no batches: %s", r.text)
		}
		for body, want := range map[string]int{
			`{}`: 422, `{"type":"a","open":true}`: 422, `{"open":true,"input":1}`: 422, `{"type":"a b"}`: 422, `{"stages":[]}`: 422, `{"stages":[{}]}`: 422,
			`{"stages":[{"tasks":[{"type":"http","payload":{}}]}]}`: 422, `{"open":true,"allow_failed":"many"}`: 422, `{"open":true,"allow_failed":"-1"}`: 422,
			`{"open":true,"name":"a b"}`: 422, `{"open":true,"then":{}}`: 422, `{"open":true,"window":-1}`: 422, `{"open":true,"plan":1}`: 400,
			`{"stages":[{"tasks":[{"type":"a","unique":"x"}]}]}`: 400, `{"stages":[{"tasks":[{"type":"a","max_attempts":0}]}]}`: 422,
			`{"stages":[{"split":{"type":"a","max_attempts":0}}]}`: 422, `{"open":true,"allow_failed":10}`: 400,
		} {
			call("POST", "", body).want(body, want, "detail", some{})
		}
		list("").want("after refused batches", 200, "batches.0", nil)

		// An open batch gets pages, and each page once.
		const body = `{"open":true,"name":"letters","allow_failed":"0.5%","note":"to all","then":{"type":"sum","payload":{"x":1}},"reason":"new"}`
		w.call("POST", "/api/v1/batches", body, viewer...).want("start by a viewer", http.StatusForbidden)
		made := call("POST", "", body)
		made.want("start", 201, "name", "letters", "state", "running", "stage", 1, "total", 0, "sealed", false, "pages", 0, "allow_failed", "0.5%", "note", "to all",
			"stages.0.open", true, "stages.1.types.0", "sum", "stages.1.after", true, "stages.2", nil, "actor", "ada", "surface", "api", "reason", "new", "started_at", some{})
		id, tag := made.at("id").(string), made.header.Get("ETag")
		if at := made.header.Get("Location"); at != "/api/v1/batches/"+id {
			w.Errorf("the location is %s", at)
		}
		call("POST", "", body).want("start again", 200, "id", id)
		one := "/" + id
		page := `{"subtasks":[{"type":"mail","payload":{"to":"a"}},{"type":"mail","payload":"b","unique":"letter"}]}`
		call("POST", one+"/pages/1", page).want("too early", 409, "code", "page_too_early", "hint", "send the page 0 next")
		call("POST", one+"/pages/0", `{"subtasks":[{"type":"mail"},{"type":"http","payload":{}}]}`).
			want("a bad page", 422, "code", "invalid_task", "errors.0.index", 1, "errors.1", nil)
		call("POST", one+"/pages/-1", page).want("a bad number", 422)
		call("POST", one+"/pages/0", `{"tasks":[]}`).want("a bad body", 400)
		w.call("POST", "/api/v1/batches"+one+"/pages/0", page, viewer...).want("a page of a viewer", http.StatusForbidden)
		for range 2 {
			call("POST", one+"/pages/0", page).want("a page", 200, "batch", id, "pages", 1, "total", 2, "duplicate", 0)
		}
		call("POST", one+"/pages/1", `{"subtasks":[{"type":"mail","unique":"letter"},{"type":"mail","payload":3}]}`).want("a duplicate", 200, "pages", 2, "total", 3, "duplicate", 1)
		got := call("GET", one, "")
		got.want("get", 200, "total", 3, "open", 3, "done", 0, "duplicate", 1, "sealed", false, "pages", 2, "pushed_at", some{}, "stage_counts.total", 3, "left_seconds", nil)
		if got.header.Get("ETag") != tag {
			w.Error("a page has changed the entity tag")
		}
		call("POST", one+"/seal", "", "If-Match", `"1"`).want("seal an older version", http.StatusPreconditionFailed)
		sealed := call("POST", one+"/seal", "", "If-Match", tag)
		sealed.want("seal", 200, "sealed", true, "state", "running")
		if sealed.header.Get("ETag") == tag {
			w.Error("the seal has not changed the entity tag")
		}
		call("POST", one+"/seal", "").want("seal again", 200, "sealed", true)
		call("POST", one+"/pages/2", page).want("a page after the seal", 409, "code", "conflict")

		// Results have a cursor.
		r := call("GET", one+"/results?limit=2", "")
		r.want("results", 200, "results.0.state", "ready", "results.0.payload.to", "a", "results.0.output", nil, "results.1.payload", "b", "results.2", nil, "next", some{})
		call("GET", fmt.Sprintf("%s/results?limit=1&after=%s", one, r.at("next")), "").want("the last page", 200, "results.0.payload", some{}, "results.1", nil, "next", nil)
		call("GET", one+"/results?after=x", "").want("a bad cursor", 422, "parameter", "after")
		if tasks := w.call("GET", "/api/v1/tasks?q=batch:"+id, "", viewer...); strings.Count(tasks.text, `"batch":"`+id+`"`) != 3 {
			w.Errorf("the tasks of the batch: %s", tasks.text)
		}

		// Pause, resume, retry and cancel.
		paused := call("POST", one+"/pause", `{"reason":"slow"}`)
		paused.want("pause", 200, "state", "paused")
		call("POST", one+"/resume", "", "If-Match", tag).want("resume an older version", http.StatusPreconditionFailed)
		call("POST", one+"/resume", "", "If-Match", paused.header.Get("ETag")).want("resume", 200, "state", "running")
		call("POST", one+"/retry", "").want("retry", 200, "operation.action", "retry", "operation.total", 0, "batch.state", "running")
		cancelled := call("POST", one+"/cancel", `{"reason":"enough"}`)
		cancelled.want("cancel", 200, "operation.action", "cancel", "operation.total", 3, "operation.query", some{}, "batch.cancelling", true)
		call("POST", one+"/pages/2", page).want("a page after the cancellation", 409)
		call("GET", "/77777", "").want("an unknown batch", 404, "detail", "there is no batch 77777")
		call("POST", "/77777/pages/0", page).want("a page of an unknown batch", 404)
		call("GET", "/77777/results", "").want("results of an unknown batch", 404)

		// A batch of a type begins with its split.
		call("POST", "", `{"type":"index","input":{"a":1},"queue":"slow"}`).
			want("a type", 201, "stages.0.split", "index.split", "stages.1.types.0", "index.reduce", "sealed", false, "name", nil)
		w.call("GET", "/api/v1/tasks?q=type:index.split", "", viewer...).want("its split", 200, "tasks.0.queue", "slow", "tasks.1", nil)
		second := call("POST", "", `{"stages":[{"tasks":[{"type":"a"},{"type":"b"},{"type":"a"}]},{"tasks":[{"type":"c"}]}]}`)
		second.want("stages", 201, "sealed", true, "total", 3, "stages.0.types.0", "a", "stages.0.types.1", "b", "stages.0.tasks", 3)
		first := list("?limit=1")
		first.want("a page of batches", 200, "batches.0.id", second.at("id"), "batches.0.etag", second.header.Get("ETag"), "batches.1", nil, "next", second.at("id"))
		list(fmt.Sprintf("?limit=2&before=%s", first.at("next"))).want("the next page", 200, "batches.1.name", "letters", "next", nil)
		list("?state=paused").want("by state", 200, "batches.0", nil)
		list("?state=odd").want("an unknown state", 422)
		audit := w.call("GET", "/api/v1/audit?limit=100", "", viewer...).text
		for _, action := range []string{`"action":"create"`, `"reason":"slow"`, `"reason":"enough"`, `"subject":"batch 1"`} {
			if !strings.Contains(audit, action) {
				w.Errorf("the audit log lacks %s: %s", action, audit)
			}
		}
	})
}
