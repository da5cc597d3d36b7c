package api_test

import (
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

// fill replaces the parameters in the path of a route.
func fill(path string, id holdfast.TaskID) string {
	return strings.NewReplacer("{number}", "0", "{id}", id.String(), "{name}", "nosuch", "{fingerprint}", "3f9ad02c41b7e685").Replace(path)
}

// If a client escapes a parameter wrongly, it gets a problem, not the response to another request.
func TestABadURLIsRefused(t *testing.T) {
	everywhere(t, func(w *world) {
		id := w.Enqueue(holdfast.NewTask{Type: "mail"})[0]
		queries := []string{"q=error:50%", "q=%zz", "%zz=1", "q=a;b", "q=%ff", "q=a%00b", "q=a&q=b", "reason=100%+done", "limit=1&limit=2"}
		for _, route := range w.api.Routes() {
			for _, query := range queries {
				r := w.call(route.Method, fill(route.Path, id)+"?"+query, "")
				if r.status != http.StatusBadRequest || r.at("code") != "invalid_parameter" || r.at("hint") == nil {
					w.Errorf("%s %s?%s: %d %s", route.Method, route.Path, query, r.status, r.text)
				}
			}
			if !strings.Contains(route.Path, "{") {
				continue
			}
			for _, segment := range []string{"%ff", "a%00b"} {
				path := strings.NewReplacer("{id}", segment, "{name}", segment, "{fingerprint}", segment).Replace(route.Path)
				if r := w.call(route.Method, path, ""); r.status != http.StatusBadRequest || r.at("hint") == nil {
					w.Errorf("%s %s: %d %s", route.Method, path, r.status, r.text)
				}
			}
		}
		w.get("/api/v1/tasks/"+id.String()).want("a refused request changed the task", 200, "state", "ready")
		for query, found := range map[string]bool{
			"q=" + url.QueryEscape(`error:"50%"`): false, "%71=type:none": false, "limit=5&q=type%3Amail": true, "q=type:mail&": true, "q=type:none&limit": false,
		} {
			r := w.call("GET", "/api/v1/tasks?"+query, "")
			if wrong := strings.HasSuffix(query, "&limit"); wrong != (r.status == 422) || !wrong && (r.at("tasks.0") != nil) != found {
				w.Errorf("%s: %d %s", query, r.status, r.text)
			}
		}
		w.get("/api/v1/workers?all").want("a flag without a value", 200, "workers", some{})
	})
}

// Every route refuses a malformed body or an unknown member, and changes nothing.
func TestEveryBodyIsReadStrictly(t *testing.T) {
	everywhere(t, func(w *world) {
		id := w.Dead(holdfast.NewTask{Type: "mail"})
		for _, route := range w.api.Routes() {
			path := fill(route.Path, id)
			if strings.HasSuffix(path, "/topics/progress") {
				path += "?topic=a"
			}
			if strings.HasSuffix(path, "/targets/state") {
				path += "?target=down.example"
			}
			for body, member := range map[string]string{
				`{"nosuch":1}`: "nosuch", `{"REASON":"x"}`: "", `{"reason":`: "", `{}{}`: "", `{} x`: "", `null`: "", `7`: "", `"x"`: "",
				"{\"reason\":\"\xff\"}": "", `{"reason":"a","reason":"b"}`: "", `{"reason":7}`: "",
			} {
				if route.Path == "/api/v1/settings" && strings.HasPrefix(body, `{"`) && !strings.Contains(body, "\xff") && member == "" {
					continue // the members are keys of settings
				}
				r := w.call(route.Method, path, body)
				switch {
				case r.status != http.StatusBadRequest && r.status != http.StatusUnprocessableEntity || r.at("detail") == nil:
					w.Errorf("%s %s with %s: %d %s", route.Method, route.Path, body, r.status, r.text)
				case member != "" && route.Method != "GET" && route.Method != "DELETE" && route.HasBody && !route.IsPatch && !strings.Contains(r.text, member):
					w.Errorf("%s %s with %s names no member: %s", route.Method, route.Path, body, r.text)
				}
			}
		}
		task := w.get("/api/v1/tasks/" + id.String())
		if task.at("state") != "dead" {
			w.Errorf("a refused request changed the task: %s", task.text)
		}
		entries, err := w.Store.AuditLog(w.Context(), store.AuditFilter{})
		if err != nil || len(entries) != 0 {
			w.Errorf("audit log: %+v, %v", entries, err)
		}
		path := "/api/v1/tasks/" + id.String() + "/retry"
		w.call("POST", path+"?reason=a", `{"reason":"b"}`).want("two reasons", http.StatusBadRequest)
		w.call("POST", path, `{"reason":"100% done"}`).want("a reason", http.StatusOK)
		if entries, err := w.Store.AuditLog(w.Context(), store.AuditFilter{Task: id}); err != nil || len(entries) != 1 || entries[0].Reason != "100% done" {
			w.Errorf("audit log: %+v, %v", entries, err)
		}
	})
}

// A payload of the largest size fits into a request.
func TestTheLargestPayloadFits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, append(backendtest.FileSettings(t), "HOLDFAST_PRODUCER_MAX_PAYLOAD=3000000"), nil)
	body := `{"type":"mail","payload":"` + strings.Repeat("x", w.Config.Producer.MaxPayload-2) + `"}`
	if r := w.call("POST", "/api/v1/tasks", body); r.status != http.StatusCreated {
		t.Errorf("%d %s", r.status, r.text)
	}
}

// An archive changes the version of a task, and a restore makes the task what it was before.
func TestARestoreUndoesAnArchive(t *testing.T) {
	everywhere(t, func(w *world) {
		id := w.Dead(holdfast.NewTask{Type: "mail"})
		path := "/api/v1/tasks/" + id.String()
		seen := w.get(path).header.Get("ETag")
		archived := w.call("POST", path+"/archive", "", "If-Match", seen)
		if archived.status != 200 || archived.at("state") != "archived" {
			w.Fatalf("archive: %d %s", archived.status, archived.text)
		}
		if task, err := w.Store.Task(w.Context(), id); err != nil {
			w.Error(err)
		} else {
			until := task.FinishedAt.Add(w.Config.Janitor.KeepArchived).UTC()
			w.get(path).want("an archived task", http.StatusOK, "kept_until", until.Format(time.RFC3339Nano))
			w.get(path+"/explanation").want("an archived task", http.StatusOK, "next.1", "a janitor deletes it after "+until.Format(time.RFC3339))
		}
		for _, what := range []string{"restore", "retry", "cancel", "undo"} {
			if r := w.call("POST", path+"/"+what, "", "If-Match", seen); r.status != http.StatusPreconditionFailed {
				w.Errorf("%s of a version from before the archive: %d %s", what, r.status, r.text)
			}
		}
		w.call("PATCH", path, `[{"op":"replace","path":"/queue","value":"other"}]`, "If-Match", seen).
			want("an edit of a version from before the archive", http.StatusPreconditionFailed)
		restored := w.call("POST", path+"/restore", "", "If-Match", archived.header.Get("ETag"))
		if restored.status != 200 || restored.at("state") != "dead" || restored.header.Get("ETag") != seen || w.get(path).header.Get("ETag") != seen {
			w.Fatalf("restore: %d %v %s; want the ETag %s", restored.status, restored.header, restored.text, seen)
		}
	})
}

func TestAProxyIsNotLocal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, backendtest.FileSettings(t), nil)
	for _, header := range []string{
		"Forwarded", "X-Forwarded", "Forwarded-For", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server",
		"X-Forwarded-Prefix", "X-Forwarded-Scheme", "X-Forwarded-User", "X-Forwarded-Ssl", "X-Original-Forwarded-For", "X-Real-IP", "X-Client-IP",
		"X-Cluster-Client-IP", "Client-IP", "True-Client-IP", "CF-Connecting-IP", "CF-Connecting-IPv6", "CF-Ray", "CF-Visitor", "CDN-Loop", "Fly-Client-IP",
		"Fastly-Client-IP", "X-Envoy-External-Address", "X-ProxyUser-Ip", "WL-Proxy-Client-IP", "Proxy-Client-IP", "X-Appengine-User-IP", "X-Azure-ClientIP",
		"X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "X-Original-Host", "X-Remote-IP", "X-Remote-Addr", "X-Vercel-Id", "Via",
	} {
		if r := w.call("GET", "/api/v1/tasks", "", header, "1"); r.status != http.StatusForbidden || r.at("hint") == nil || !strings.Contains(r.text, http.CanonicalHeaderKey(header)) {
			t.Errorf("%s: %d %s", header, r.status, r.text)
		}
		if status := w.from("127.0.0.1:4", "GET", "/api/v1/tasks", "Host", "localhost", header, ""); status != http.StatusForbidden {
			t.Errorf("%s without a value: %d", header, status)
		}
	}
	headers := []string{
		"Accept", "*/*", "Accept-Encoding", "gzip", "Cookie", "a=b", "User-Agent", "x", "Traceparent", "00-1-2-01", "X-Request-Id", "1", "Referer", w.url,
		"Idempotency-Key", "1", "If-Match", "*", "Sec-Ch-Ua", "x", "X-Requested-With", "XMLHttpRequest", "Cache-Control", "no-cache",
	}
	if r := w.call("GET", "/api/v1/tasks", "", headers...); r.status != http.StatusOK {
		t.Errorf("a local program: %d %s", r.status, r.text)
	}
}

func TestResolvedGroupsAreListed(t *testing.T) {
	everywhere(t, func(w *world) {
		path, fingerprint := w.group()
		w.get("/api/v1/dead-groups?resolved=true").want("an open group", 200, "groups.0", nil)
		if r := w.call("PATCH", path, `{"state":"resolved"}`); r.status != 200 {
			w.Fatalf("resolve: %d %s", r.status, r.text)
		}
		r := w.get("/api/v1/dead-groups?resolved=true&q=type:mail")
		r.want("resolved groups", 200, "groups.0.group", fingerprint, "groups.0.state", "resolved")
	})
}

func TestVerifyRecoverSimulateAndDrain(t *testing.T) {
	everywhere(t, func(w *world) {
		w.Enqueue(holdfast.NewTask{Type: "mail"})
		if r := w.call("POST", "/api/v1/verify", ""); r.status != 200 || fmt.Sprint(r.at("tasks")) != "0" || !strings.Contains(r.text, `"faults":[]`) {
			w.Errorf("verify: %d %s", r.status, r.text)
		}
		w.get("/api/v1/recovery").want("plan of a recovery", 200, "missing", some{}, "queues", some{},
			"lost_tickets", some{})
		_, embedded := w.Embedded()
		if !embedded {
			w.call("GET", "/api/v1/recovery?queue=nosuch", "").want("plan for an unknown queue", 404)
		}
		w.call("POST", "/api/v1/recovery", "").want("recovery", 200, "declared", some{})
		r := w.call("POST", "/api/v1/policy/simulation", `{"type":"mail","set":{"max_attempts":"3","retry.jitter":"0"},"from":"2030-01-31T09:00:00Z"}`)
		r.want("simulation", 200, "attempts.2.result", "dead", "attempts.3", nil, "end", some{}, "attempts.0.earliest",
			"2030-01-31T09:00:00Z")
		for body, want := range map[string]string{
			`{}`: "type", `{"type":"mail","limit":-1}`: "limit", `{"type":"mail","from":"soon"}`: "from", `{"type":"mail","set":{"nosuch":"1"}}`: "nosuch",
			`{"type":"mail","set":{"max_attempts":"0"}}`: "max_attempts",
		} {
			if r := w.call("POST", "/api/v1/policy/simulation", body); r.status != 422 || !strings.Contains(r.text, want) {
				w.Errorf("simulation of %s: %d %s", body, r.status, r.text)
			}
		}
		if stored, err := w.Store.StoredSettings(w.Context(), -1); err != nil || len(stored.Values) != 0 {
			w.Errorf("a simulation stored settings: %+v, %v", stored, err)
		}
		w.Dead(holdfast.NewTask{Type: "report"}) // registers a worker
		live, err := w.Store.Workers(w.Context(), false)
		if err != nil || len(live) != 1 {
			w.Fatalf("workers: %+v, %v", live, err)
		}
		w.call("POST", "/api/v1/workers/999999/drain", "").want("drain of no worker", 404)
		w.call("POST", "/api/v1/workers/drain", `{}`).want("drain of all workers without a confirmation", 422)
		w.call("POST", "/api/v1/workers/"+live[0].ID.String()+"/drain", "").
			want("drain", 200, "worker", live[0].ID.String())
		if r := w.get("/api/v1/workers"); fmt.Sprint(r.at("workers.0.draining")) != "true" {
			w.Errorf("workers: %s", r.text)
		}
		w.call("POST", "/api/v1/workers/drain", `{"all":true}`).
			want("drain of all workers", 200, "workers.0.worker", live[0].ID.String())
	})
}
