package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const patchURL = `[{"op":"replace","path":"/payload","value":{"url":"http://right.example.com/<b>"}}]`

func TestEditAndUndo(t *testing.T) {
	everywhere(t, func(w *world) {
		operator := w.token("ada", store.Operator, 0)
		id := w.Dead(holdfast.NewTask{Type: "mail", Payload: []byte(`{"url":"http://wrong.example.com/"}`)})
		path := "/api/v1/tasks/" + id.String()
		tag := w.call("GET", path, "", operator...).header.Get("ETag")
		with := func(tag string) []string {
			return append([]string{"If-Match", tag, "Content-Type", "application/json-patch+json"}, operator...)
		}
		w.call("PATCH", path, patchURL, with(`"9-dead"`)...).
			want("an edit of another version", http.StatusPreconditionFailed)
		r := w.call("PATCH", path+"?reason=typo", patchURL, with(tag)...)
		if r.status != 200 || r.at("payload.url") != "http://right.example.com/<b>" || r.at("state") != "dead" || r.header.Get("ETag") == tag {
			w.Fatalf("edit: %d %v %s", r.status, r.header, r.text)
		}
		for body, want := range map[string]int{
			`{}`: 422, `[{"op":"remove","path":"/nosuch"}]`: 422, `[{"op":"replace","path":"/queue","value":"No Queue"}]`: 422, `[`: 422, `[]`: 422,
		} {
			w.call("PATCH", path, body, operator...).want("patch "+body, want, "detail", some{})
		}
		w.call("POST", path+"/undo", "", operator...).want("undo", 200, "state", "dead")
		w.call("GET", path, "", operator...).want("after the undo", 200, "payload.url", "http://wrong.example.com/")
		w.call("POST", path+"/undo", "", operator...).want("a second undo", http.StatusConflict)
		w.call("POST", path+"/archive", "", operator...).want("archive", 200, "state", "archived")
		w.call("POST", path+"/restore", "", operator...).want("restore", 200, "state", "dead")
		r = w.call("GET", "/api/v1/audit?limit=2&task="+id.String(), "", operator...)
		if r.status != 200 || r.at("entries.0.action") != "restore" || r.at("entries.1.action") != "archive" || r.at("next") == nil {
			w.Fatalf("audit: %d %s", r.status, r.text)
		}
		r = w.call("GET", fmt.Sprintf("/api/v1/audit?limit=50&task=%s&before=%s", id, r.at("next")), "", operator...)
		r.want("the second page", 200, "entries.0.action", "undo", "entries.1.reason", "typo",
			"entries.1.surface", "api", "next", nil)
	})
}

// An undo takes back nothing if the caller saw another version.
func TestUndoOnlyTheVersionInIfMatch(t *testing.T) {
	everywhere(t, func(w *world) {
		path := "/api/v1/tasks/" + w.Enqueue(holdfast.NewTask{Type: "mail"})[0].String()
		edit := func(value string) string {
			r := w.call("PATCH", path, `[{"op":"replace","path":"/payload","value":"`+value+`"}]`)
			if r.status != 200 {
				w.Fatalf("edit: %d %s", r.status, r.text)
			}
			return r.header.Get("ETag")
		}
		mine := edit("mine")
		theirs := edit("theirs")
		w.call("POST", path+"/undo", "", "If-Match", mine).
			want("undo of an old version", http.StatusPreconditionFailed, "code", "changed")
		w.get(path).want("after the refused undo", 200, "payload", "theirs")
		w.call("POST", path+"/undo", "", "If-Match", theirs).want("undo", 200)
		w.get(path).want("after the undo", 200, "payload", "mine")
	})
}

// An edit refuses the payloads that enqueue refuses. The plan of an operation counts the samples that it would refuse.
func TestAnEditRefusesWhatEnqueueRefuses(t *testing.T) {
	everywhere(t, func(w *world) {
		operator := w.token("ada", store.Operator, 0)
		paths := make([]string, 2)
		for i := range paths {
			paths[i] = "/api/v1/tasks/" + w.Dead(holdfast.NewTask{Type: "http", Payload: fmt.Appendf(nil, `{"url":"https://a.example/%d"}`, i)}).String()
		}
		for patch, want := range map[string]string{
			`[{"op":"replace","path":"/payload","value":{"u":1}}]`:                         `invalid payload for type http: unknown field "u"`,
			`[{"op":"replace","path":"/payload/url","value":"ftp://a.example"}]`:           `the url must begin with http:// or https://, not "ftp"`,
			`[{"op":"replace","path":"/payload/url","value":"https://a.example./"}]`:       `write the host of the url as a.example, not as "a.example."`,
			`[{"op":"add","path":"/payload/headers","value":{"Webhook-Id":"x"}}]`:          "the header Webhook-Id cannot be set",
			`[{"op":"replace","path":"/payload/url","value":"https://user:p@a.example/"}]`: "the url contains a user or password",
			`[{"op":"add","path":"/payload/timeout","value":"1h"}]`:                        "the timeout 1h0m0s exceeds the limit of 30s",
		} {
			if r := w.call("PATCH", paths[0], patch, operator...); r.status != http.StatusUnprocessableEntity || !strings.Contains(fmt.Sprint(r.at("detail")), want) {
				w.Errorf("%s: %d %s", patch, r.status, r.text)
			}
			r := w.call("POST", "/api/v1/operations", `{"action":"edit","query":"state:dead","dry_run":true,"patch":`+patch+`}`, operator...)
			if r.status != http.StatusOK || fmt.Sprint(r.at("samples_refused")) != "2" || !strings.Contains(fmt.Sprint(r.at("refusal")), want) {
				w.Errorf("a plan with %s: %d %s", patch, r.status, r.text)
			}
		}
		patch := `[{"op":"test","path":"/payload/url","value":"https://a.example/1"},{"op":"add","path":"/payload/method","value":"PUT"}]`
		r := w.call("POST", "/api/v1/operations", `{"action":"edit","query":"state:dead","dry_run":true,"patch":`+patch+`}`, operator...)
		r.want("a plan", http.StatusOK, "samples_refused", 1, "refusal", some{})
		w.call("GET", paths[1], "", operator...).want("a plan has changed a task", 200, "payload.method", nil)
	})
}

// A payload must fit the schema that the newest worker has stored, unless the caller skips the validation.
func TestAnEditedPayloadMustFitItsType(t *testing.T) {
	everywhere(t, func(w *world) {
		schema := json.RawMessage(`{"type":["object"],"properties":{"url":{"type":["string"]}}}`)
		_, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Types: []string{"mail"}, Schemas: map[string]json.RawMessage{"mail": schema}}, time.Hour)
		if err != nil {
			w.Fatal(err)
		}
		operator := w.token("ada", store.Operator, 0)
		w.call("GET", "/api/v1/types", "", operator...).
			want("types", 200, "types.0.type", "mail", "types.0.schema.properties.url.type.0", "string", "types.1", nil)
		id := w.Dead(holdfast.NewTask{Type: "mail", Payload: []byte(`{"url":"a"}`)})
		path := "/api/v1/tasks/" + id.String()
		patch := func(query, value string) response {
			return w.call("PATCH", path+query, `[{"op":"replace","path":"/payload/url","value":`+value+`}]`, operator...)
		}
		r := patch("", "5")
		if r.status != http.StatusUnprocessableEntity || !strings.Contains(fmt.Sprint(r.at("detail")), "invalid payload for type mail: /url: expected string, got number") ||
			r.at("hint") != "skip_validation" {
			w.Errorf("a payload that does not fit: %d %s", r.status, r.text)
		}
		w.call("GET", path, "", operator...).want("after a refused edit", 200, "payload.url", "a")
		patch("", `"b"`).want("a payload that fits", 200, "payload.url", "b")
		start := func(more string) response {
			r := w.call("POST", "/api/v1/operations", `{"action":"edit","query":"state:dead","patch":[{"op":"replace","path":"/payload","value":7}]`+more+`}`, operator...)
			if r.status != http.StatusAccepted {
				w.Fatalf("operation: %d %s", r.status, r.text)
			}
			o, err := store.ParseID(fmt.Sprint(r.at("id")))
			if err != nil {
				w.Fatal(err)
			}
			if _, err := w.AwaitOperation(w.Context(), o, func(store.Operation) {}); err != nil {
				w.Fatal(err)
			}
			return w.call("GET", r.header.Get("Location"), "", operator...)
		}
		if r := start(""); fmt.Sprintf("%v %v", r.at("refused"), r.at("changed")) != "1 0" {
			w.Errorf("an operation: %s", r.text)
		}
		if r := start(`,"skip_validation":true`); fmt.Sprintf("%v %v", r.at("refused"), r.at("changed")) != "0 1" || r.at("skip_validation") != true {
			w.Errorf("an operation without validation: %s", r.text)
		}
		w.call("PATCH", path, `[{"op":"replace","path":"/payload","value":8}]`, operator...).
			want("another payload that does not fit", http.StatusUnprocessableEntity)
		w.call("PATCH", path+"?skip_validation=true", `[{"op":"replace","path":"/payload","value":8}]`, operator...).
			want("an edit without validation", 200, "payload", 8)
		w.call("GET", "/api/v1/audit?limit=1&task="+id.String(), "", operator...).
			want("audit", 200, "entries.0.after.skipped_validation", true)
	})
}

// If many callers saw the same version of a task, only one of them edits it, and the audit log has one edit.
func TestOneOfManyEditorsWins(t *testing.T) {
	everywhere(t, func(w *world) {
		id := w.Dead(holdfast.NewTask{Type: "mail"})
		path := "/api/v1/tasks/" + id.String()
		tag := w.call("GET", path, "").header.Get("ETag")
		statuses := make([]int, 20)
		var editors sync.WaitGroup
		for i := range statuses {
			editors.Go(func() {
				patch := fmt.Sprintf(`[{"op":"replace","path":"/payload","value":%d}]`, i)
				statuses[i] = w.call("PATCH", path, patch, "If-Match", tag).status
			})
		}
		editors.Wait()
		won := 0
		for _, status := range statuses {
			switch status {
			case 200:
				won++
			case http.StatusPreconditionFailed:
			default:
				w.Errorf("status %d", status)
			}
		}
		entries, err := w.Store.AuditLog(w.Context(), store.AuditFilter{Task: id})
		if won != 1 || err != nil || len(entries) != 1 {
			w.Errorf("%d editors won, %d audit entries: %v", won, len(entries), err)
		}
	})
}

func TestOperations(t *testing.T) {
	everywhere(t, func(w *world) {
		operator := w.token("ada", store.Operator, 0)
		for range 3 {
			w.Dead(holdfast.NewTask{Type: "mail"})
		}
		start := func(body string) response { return w.call("POST", "/api/v1/operations", body, operator...) }
		r := start(`{"action":"archive","query":"state:dead type:mail","dry_run":true}`)
		if r.status != 200 || fmt.Sprint(r.at("total")) != "3" || r.header.Get("Location") != "" || r.at("id") != nil ||
			r.at("dry_run") != true || r.at("at_least") != false || r.at("samples.2") == nil || fmt.Sprint(r.at("expected_seconds")) != "0" {
			w.Errorf("dry run: %d %s", r.status, r.text)
		}
		for share, want := range map[string]string{``: "0.5", `,"stop_above":0`: "0", `,"stop_above":1`: "1"} {
			if r := start(`{"action":"retry","query":"state:dead","dry_run":true` + share + `}`); r.status != 200 || fmt.Sprint(r.at("stop_above")) != want {
				w.Errorf("dry run with %q: %d %s", share, r.status, r.text)
			}
		}
		r = start(`{"action":"archive","query":"state:dead type:mail","plan":true,"reason":"old"}`)
		location := r.header.Get("Location")
		if r.status != http.StatusAccepted || r.at("state") != "planned" || r.at("actor") != "ada" || !strings.HasPrefix(location, "/api/v1/operations/") {
			w.Fatalf("plan: %d %v %s", r.status, r.header, r.text)
		}
		w.call("POST", location+"/pause", "", operator...).want("pause of a planned operation", http.StatusConflict)
		w.call("POST", location+"/resume", "", operator...).want("resume", 200, "state", "running")
		id := r.at("id")
		if _, err := w.AwaitOperation(w.Context(), 1, func(store.Operation) {}); err != nil {
			w.Fatal(err)
		}
		w.call("GET", location, "", operator...).want("the operation", 200, "state", "done", "changed", 3, "id", id)
		r = start(`{"action":"edit","query":"state:archived","patch":[{"op":"replace","path":"/queue","value":"other"}],"rate":5,"plan":true}`)
		r.want("edit", http.StatusAccepted, "rate", 5)
		w.call("POST", r.header.Get("Location")+"/cancel?reason=mistake", "", operator...).
			want("cancel", 200, "state", "cancelled")
		w.call("GET", "/api/v1/operations?limit=1", "", operator...).
			want("list", 200, "operations.0.state", "cancelled", "next", "2")
		w.call("GET", "/api/v1/operations?state=done", "", operator...).
			want("list of operations that are done", 200, "operations.0.action", "archive", "next", nil)
		for body, want := range map[string]int{
			`{}`: 422, `{"action":"retry"}`: 422, `{"action":"retry","query":"state:nosuch"}`: 422, `{"action":"explode","query":"state:dead"}`: 422,
			`{"action":"retry","query":"state:dead","ramp":[50]}`: 422, `{"action":"retry","query":"state:dead","step_timeout":"soon"}`: 422, `{"nosuch":1}`: 400,
			`{"action":"purge","query":"state:dead","ramp":[1,100]}`: 422, `{"action":"purge","query":"state:dead","stop_above":0}`: 422,
			`{"action":"purge","query":"state:dead","step_timeout":"1m"}`: 422,
		} {
			start(body).want(body, want, "detail", some{})
		}
		w.call("GET", "/api/v1/operations/77", "", operator...).want("an unknown operation", 404)
	})
}
