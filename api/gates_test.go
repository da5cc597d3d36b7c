package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

func TestGatesOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		operator := w.token("ada", store.Operator, 0)
		id := w.enqueue(holdfast.NewTask{Type: "mail"})[0]
		if r := w.call("GET", "/api/v1/gates", "", operator...); r.status != 200 || r.text != "{\"gates\":[]}\n" {
			w.Errorf("no gates: %d %s", r.status, r.text)
		}
		long := strings.Repeat("a", 6000)
		for body, want := range map[string]int{
			`{"kind":"pause","queue":"nosuch"}`: 404, `{"kind":"pause"}`: 422, `{"kind":"limit","queue":"default"}`: 422, `{"queue":"default"}`: 422,
			`{"kind":"pause","queue":"default","type":"mail"}`: 422, `{"kind":"pause","target":"ftp://example.com"}`: 422, `{"kind":"pause","target":"https://bücher.example"}`: 422,
			`{"kind":"pause","key":"a\nb"}`:           422,
			`{"kind":"pause","queue":"` + long + `"}`: 422, `{"kind":"pause","type":"` + long + `"}`: 422, `{"kind":"pause","key":"` + long + `"}`: 422,
			`{"kind":"pause","target":"https://` + long + `"}`: 422, `{"kind":"pause","target":"https://a:` + long + `"}`: 422,
			`{"kind":"pause","queue":"No Queue"}`: 422, `{"kind":"pause","queue":"default","for":"soon"}`: 422, `{"kind":"pause","queue":"default","for":"-1h"}`: 422,
			`{"kind":"pause","queue":"default","until":"1h"}`: 400, `[`: 400,
		} {
			if r := w.call("POST", "/api/v1/gates", body, operator...); r.status != want || r.at("detail") == nil || len(r.text) > 1000 {
				w.Errorf("%.100s: %d %s, want %d", body, r.status, r.text, want)
			}
		}
		if r := w.call("POST", "/api/v1/gates", `{"kind":"pause","queue":"nosuch"}`, operator...); r.at("hint") != "known_queues" {
			w.Errorf("an unknown queue has no hint: %s", r.text)
		}
		queue := w.call("POST", "/api/v1/gates", `{"kind":"pause","queue":"default","for":"1h","reason":"upkeep"}`, operator...)
		if queue.status != http.StatusCreated || queue.at("queue") != "default" || queue.at("actor") != "ada" || queue.at("reason") != "upkeep" ||
			queue.at("until") == nil || queue.at("warnings.0") != nil || queue.at("surface") != "api" {
			w.Fatalf("a queue: %d %s", queue.status, queue.text)
		}
		target := w.call("POST", "/api/v1/gates", `{"kind":"pause","target":"https://API.example.com./hook"}`, operator...)
		if target.status != http.StatusCreated || target.at("target") != "https://api.example.com:443" || target.at("until") != nil {
			w.Errorf("a target: %d %s", target.status, target.text)
		}
		if r := w.call("POST", "/api/v1/gates", `{"kind":"pause","type":"invoice"}`, operator...); r.status != http.StatusCreated || r.at("warnings.0") == nil {
			w.Errorf("an unknown type: %d %s", r.status, r.text)
		}
		if r := w.call("GET", "/api/v1/gates", "", operator...); r.at("gates.0.id") != queue.at("id") || r.at("gates.1.target") != target.at("target") || r.at("gates.2.type") != "invoice" {
			w.Errorf("gates: %s", r.text)
		}
		if r := w.call("GET", "/api/v1/queues", "", operator...); r.at("queues.0.queue") != "default" || r.at("queues.0.paused.id") != queue.at("id") {
			w.Errorf("queues: %s", r.text)
		}
		if r := w.call("GET", "/api/v1/tasks", "", operator...); r.at("tasks.0.id") != id.String() || r.at("tasks.0.gate.queue") != "default" {
			w.Errorf("tasks: %s", r.text)
		}
		if r := w.call("GET", "/api/v1/tasks/"+id.String(), "", operator...); r.at("gate.id") != queue.at("id") || r.at("gate.kind") != "pause" {
			w.Errorf("task: %s", r.text)
		}
		if r := w.call("POST", "/api/v1/gates", `{"kind":"pause","key":"tenant 7"}`, operator...); r.status != http.StatusCreated || r.at("key") != "tenant 7" {
			w.Errorf("a key: %d %s", r.status, r.text)
		}
		path := fmt.Sprintf("/api/v1/gates/%v", queue.at("id"))
		if r := w.call("DELETE", path+"?reason=works", "", operator...); r.status != 200 || r.at("queue") != "default" {
			w.Errorf("resume: %d %s", r.status, r.text)
		}
		if r := w.call("DELETE", path, "", operator...); r.status != http.StatusNotFound || r.at("detail") == nil {
			w.Errorf("a second resume: %d %s", r.status, r.text)
		}
		if r := w.call("GET", "/api/v1/tasks/"+id.String(), "", operator...); r.at("gate") != nil {
			w.Errorf("task after the pause: %s", r.text)
		}
		if r := w.call("GET", "/api/v1/audit?action=resume", "", operator...); r.at("entries.0.subject") != "queue default" || r.at("entries.0.reason") != "works" || r.at("entries.0.actor") != "ada" {
			w.Errorf("audit: %s", r.text)
		}
	})
}

// TestChangesOfGatesOverHTTP checks that a request changes only what it names, and only the version that If-Match names.
func TestChangesOfGatesOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		ada, ben := w.token("ada", store.Operator, 0), w.token("ben", store.Operator, 0)
		w.enqueue(holdfast.NewTask{Type: "mail"})
		post := func(body string, headers ...string) response {
			return w.call("POST", "/api/v1/gates", body, append(headers, ada...)...)
		}
		first := post(`{"kind":"pause","queue":"default","for":"1h","reason":"upkeep"}`)
		if first.status != http.StatusCreated || first.at("before") != nil || first.header.Get("ETag") == "" {
			w.Fatalf("a pause: %d %s", first.status, first.text)
		}
		path := fmt.Sprintf("/api/v1/gates/%v", first.at("id"))
		seen := w.call("GET", path, "", ada...)
		tag := seen.header.Get("ETag")
		if seen.status != 200 || seen.at("reason") != "upkeep" || tag != first.header.Get("ETag") || w.call("GET", "/api/v1/gates", "", ada...).at("gates.0.etag") != tag {
			w.Errorf("the gate: %d %s, with the entity tag %s after %s", seen.status, seen.text, tag, first.header.Get("ETag"))
		}
		if r := w.call("GET", "/api/v1/gates/999", "", ada...); r.status != http.StatusNotFound {
			w.Errorf("an unknown gate: %d %s", r.status, r.text)
		}

		// What a request does not name stays, and null removes it.
		second := w.call("POST", "/api/v1/gates", `{"kind":"pause","queue":"default"}`, ben...)
		if second.at("until") != first.at("until") || second.at("reason") != "upkeep" || second.at("actor") != "ben" || second.at("before.actor") != "ada" {
			w.Errorf("a pause that names nothing: %s", second.text)
		}
		if r := w.call("DELETE", path, "", append(ada, "If-Match", tag)...); r.status != http.StatusPreconditionFailed || r.at("code") != "changed" || r.at("hint") == nil {
			w.Errorf("resume with an old tag: %d %s", r.status, r.text)
		}
		if r := post(`{"kind":"pause","queue":"default","for":null}`, "If-Match", tag); r.status != http.StatusPreconditionFailed {
			w.Errorf("a change with an old tag: %d %s", r.status, r.text)
		}
		third := post(`{"kind":"pause","queue":"default","for":null}`, "If-Match", second.header.Get("ETag"))
		if third.status != http.StatusCreated || third.at("until") != nil || third.at("before.until") != first.at("until") || third.at("reason") != "upkeep" {
			w.Errorf("removing the end: %d %s", third.status, third.text)
		}
		fourth := post(`{"kind":"pause","queue":"default","reason":null}`)
		if fourth.at("reason") != nil || fourth.at("before.reason") != "upkeep" {
			w.Errorf("removing the reason: %s", fourth.text)
		}
		if r := post(`{"kind":"pause","type":"mail"}`, "If-Match", "*"); r.status != http.StatusPreconditionFailed {
			w.Errorf("a change of a pause that does not exist: %d %s", r.status, r.text)
		}
		if r := w.call("DELETE", path, "", append(ada, "If-Match", fourth.header.Get("ETag"))...); r.status != 200 || r.at("queue") != "default" {
			w.Errorf("resume with the tag: %d %s", r.status, r.text)
		}

		// The id of a pause that was resumed is not that of the next pause of the subject.
		if r := post(`{"kind":"pause","queue":"default"}`); r.at("id") == first.at("id") || r.at("before") != nil {
			w.Errorf("the next pause: %s", r.text)
		}
		if r := w.call("DELETE", path, "", ada...); r.status != http.StatusNotFound {
			w.Errorf("resume of the first pause: %d %s", r.status, r.text)
		}
		if r := w.call("GET", "/api/v1/gates", "", ada...); r.at("gates.0.queue") != "default" {
			w.Errorf("the gates: %s", r.text)
		}
	})
}
