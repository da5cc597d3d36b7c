package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

func TestLimitsOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		operator, viewer := w.token("ada", store.Operator, 0), w.token("vera", store.Viewer, 0)
		ids := w.Enqueue(holdfast.NewTask{Type: "mail", Key: "tenant-7"}, holdfast.NewTask{Type: "mail"})
		put := func(body string) response { return w.call("PUT", "/api/v1/limits", body, operator...) }
		list := func() response { return w.call("GET", "/api/v1/gates", "", viewer...) }
		if r := list(); r.status != 200 || r.text != "{\"gates\":[],\"limits\":[]}\n" {
			w.Errorf("no limits: %d %s", r.status, r.text)
		}
		for body, want := range map[string]int{
			`{"rate":"1/s"}`: 422, `{"type":"mail"}`: 422, `{"type":"mail","rate":"fast"}`: 422, `{"type":"mail","rate":5}`: 400, `{"type":"mail","rate":"0/s"}`: 422,
			`{"type":"mail","concurrency":-1}`: 422, `{"type":"mail","concurrency":0}`: 422, `{"type":"mail","concurrency":null}`: 422, `{"type":"mail","reason":"why"}`: 422, `{"type":"mail","concurrency":1000001}`: 422, `{"per":"queue","concurrency":1}`: 422,
			`{"per":"key","key":"a","concurrency":1}`: 422, `{"target":"ftp://example.com","concurrency":1}`: 422, `{"target":"https://bücher.example","concurrency":1}`: 422, `{"key":"a\nb","concurrency":1}`: 422,
			`{"type":"mail","concurrency":1,"kind":"limit"}`: 400, `[`: 400,
		} {
			put(body).want(body, want, "detail", some{})
		}
		list().want("after refused limits", 200, "limits.0", nil)
		later := put(`{"queue":"nosuch","concurrency":1}`)
		later.want("a queue that does not exist yet", 200, "warnings.0", some{}, "warnings.1", nil)
		w.call("DELETE", fmt.Sprint("/api/v1/limits/", later.at("id")), "", operator...)
		set := put(`{"type":"mail","per":"key","rate":"100/s","reason":"fair"}`)
		if set.status != 200 || set.at("type") != "mail" || set.at("per") != "key" || set.at("rate") != "100/s" || set.at("concurrency") != nil ||
			set.at("actor") != "ada" || set.at("surface") != "api" || set.at("reason") != "fair" || set.at("warnings.0") != nil {
			w.Fatalf("set: %d %s", set.status, set.text)
		}
		changed := put(`{"type":"mail","per":"key","rate":"7/m","concurrency":3}`)
		changed.want("change", 200, "id", set.at("id"), "rate", "7/m", "concurrency", 3)
		target := put(`{"target":"https://API.example.com/hook","concurrency":10}`)
		target.want("a target", 200, "target", "https://api.example.com:443", "rate", nil)
		if r := put(`{"type":"invoice","concurrency":1}`); r.at("warnings.0") == nil {
			w.Errorf("an unknown type: %d %s", r.status, r.text)
		}
		list().want("limits beside the gates", 200, "gates.0", nil, "limits.0.id", set.at("id"), "limits.0.rate", "7/m", "limits.0.concurrency", 3, "limits.0.in_use", 0,
			"limits.0.blocked", 0, "limits.0.etag", some{}, "limits.1.target", target.at("target"), "limits.2.type", "invoice", "limits.3", nil)
		task := func(i int) response { return w.call("GET", "/api/v1/tasks/"+ids[i].String(), "", viewer...) }
		task(0).
			want("a task with a key", 200, "gate.id", set.at("id"), "gate.kind", "limit", "gate.type", "mail",
				"gate.per", "key")
		task(1).want("a task without a key", 200, "gate", nil)
		why := w.call("GET", "/api/v1/tasks/"+ids[0].String()+"/explanation", "", viewer...)
		if want := "limit type mail per key, key tenant-7 (7/m): 0 of 3 permits in use, no task is ahead"; why.at("causes.0.code") != "limited" || why.at("causes.0.text") != want {
			w.Errorf("explanation: %s", why.text)
		}
		w.call("DELETE", fmt.Sprintf("/api/v1/limits/%v", target.at("id")), "", operator...).
			want("unset of the second limit", 200, "target", target.at("target"))
		path := fmt.Sprintf("/api/v1/limits/%v", set.at("id"))
		w.call("DELETE", path, "", viewer...).want("unset by a viewer", http.StatusForbidden)
		w.call("DELETE", path+"?reason=works", "", operator...).want("unset", 200, "rate", "7/m", "per", "key")
		w.call("DELETE", path, "", operator...).want("a second unset", http.StatusNotFound, "detail", some{})
		task(0).want("a task after the limit", 200, "gate", nil)
		audit := w.call("GET", "/api/v1/audit?actor=ada", "", viewer...)
		if r := audit; r.at("entries.0.action") != "unset" || r.at("entries.0.subject") != "limit type mail per key" || r.at("entries.0.reason") != "works" ||
			r.at("entries.4.after.rate") != "7/m" || r.at("entries.4.before.rate") != "100/s" || r.at("entries.5.action") != "set" {
			w.Errorf("audit: %s", r.text)
		}
	})
}

// TestChangesOfLimitsOverHTTP checks that a request changes only the members that it has, and only the version in
// If-Match.
func TestChangesOfLimitsOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		ada, ben := w.token("ada", store.Operator, 0), w.token("ben", store.Operator, 0)
		w.Enqueue(holdfast.NewTask{Type: "mail"})
		put := func(body string, headers ...string) response {
			return w.call("PUT", "/api/v1/limits", body, append(headers, ada...)...)
		}
		first := put(`{"type":"mail","rate":"100/s","reason":"fair"}`)
		path := fmt.Sprintf("/api/v1/limits/%v", first.at("id"))
		seen := w.call("GET", path, "", ada...)
		tag := seen.header.Get("ETag")
		if seen.status != 200 || seen.at("rate") != "100/s" || tag == "" || tag != first.header.Get("ETag") || w.call("GET", "/api/v1/gates", "", ada...).at("limits.0.etag") != tag {
			w.Fatalf("the limit: %d %s, with the entity tag %s", seen.status, seen.text, tag)
		}
		second := w.call("PUT", "/api/v1/limits", `{"type":"mail","concurrency":3}`, ben...)
		if second.at("rate") != "100/s" || fmt.Sprint(second.at("concurrency")) != "3" || second.at("reason") != "fair" || second.at("actor") != "ben" ||
			second.at("before.actor") != "ada" || second.at("before.concurrency") != nil {
			w.Errorf("a limit with a concurrency: %s", second.text)
		}
		w.call("DELETE", path, "", append(ada, "If-Match", tag)...).
			want("removal with an old tag", http.StatusPreconditionFailed, "code", "changed")
		put(`{"type":"mail","rate":null}`, "If-Match", tag).
			want("a change with an old tag", http.StatusPreconditionFailed)
		third := put(`{"type":"mail","rate":null,"reason":null}`, "If-Match", second.header.Get("ETag"))
		third.want("removing the rate", 200, "rate", nil, "reason", nil, "before.rate", "100/s", "concurrency", 3)
		put(`{"type":"mail","concurrency":null}`).
			want("removing the rate and the concurrency", 422, "hint", "unset_limit")
		put(`{"type":"mail"}`).want("a change of nothing", 422)
		w.call("DELETE", path, "", append(ada, "If-Match", third.header.Get("ETag"))...).
			want("removal with the tag", 200)
		if r := put(`{"type":"mail","concurrency":1}`); r.at("id") == first.at("id") {
			w.Errorf("the next limit: %s", r.text)
		}
		w.call("DELETE", path, "", ada...).want("removal of the first limit", http.StatusNotFound)
	})
}
