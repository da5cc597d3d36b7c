package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

func TestGatesOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		operator := w.token("ada", store.Operator, 0)
		id := w.Enqueue(holdfast.NewTask{Type: "mail"})[0]
		if r := w.call("GET", "/api/v1/gates", "", operator...); r.status != 200 || r.text != "{\"gates\":[],\"limits\":[]}\n" {
			w.Errorf("no gates: %d %s", r.status, r.text)
		}
		long := strings.Repeat("a", 6000)
		for body, want := range map[string]int{
			`{"kind":"pause"}`: 422, `{"kind":"limit","queue":"default"}`: 422, `{"queue":"default"}`: 422,
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
		later := w.call("POST", "/api/v1/gates", `{"kind":"pause","queue":"nosuch"}`, operator...)
		later.want("a queue that does not exist yet", http.StatusCreated, "warnings.0", some{}, "warnings.1", nil)
		w.call("DELETE", fmt.Sprint("/api/v1/gates/", later.at("id")), "", operator...)
		queue := w.call("POST", "/api/v1/gates", `{"kind":"pause","queue":"default","for":"1h","reason":"upkeep"}`, operator...)
		if queue.status != http.StatusCreated || queue.at("queue") != "default" || queue.at("actor") != "ada" || queue.at("reason") != "upkeep" ||
			queue.at("until") == nil || queue.at("warnings.0") != nil || queue.at("surface") != "api" {
			w.Fatalf("a queue: %d %s", queue.status, queue.text)
		}
		target := w.call("POST", "/api/v1/gates", `{"kind":"pause","target":"https://API.example.com./hook"}`, operator...)
		target.want("a target", http.StatusCreated, "target", "https://api.example.com:443", "until", nil)
		w.call("POST", "/api/v1/gates", `{"kind":"pause","type":"invoice"}`, operator...).
			want("an unknown type", http.StatusCreated, "warnings.0", some{})
		w.call("GET", "/api/v1/gates", "", operator...).
			want("gates", 200, "gates.0.id", queue.at("id"), "gates.1.target", target.at("target"), "gates.2.type",
				"invoice")
		w.call("GET", "/api/v1/queues", "", operator...).
			want("queues", 200, "queues.0.queue", "default", "queues.0.paused.id", queue.at("id"))
		w.call("GET", "/api/v1/tasks", "", operator...).
			want("tasks", 200, "tasks.0.id", id.String(), "tasks.0.gate.queue", "default")
		w.call("GET", "/api/v1/tasks/"+id.String(), "", operator...).
			want("task", 200, "gate.id", queue.at("id"), "gate.kind", "pause")
		w.call("POST", "/api/v1/gates", `{"kind":"pause","key":"tenant 7"}`, operator...).
			want("a key", http.StatusCreated, "key", "tenant 7")
		path := fmt.Sprintf("/api/v1/gates/%v", queue.at("id"))
		w.call("DELETE", path+"?reason=works", "", operator...).want("resume", 200, "queue", "default")
		w.call("DELETE", path, "", operator...).want("a second resume", http.StatusNotFound, "detail", some{})
		w.call("GET", "/api/v1/tasks/"+id.String(), "", operator...).want("task after the pause", 200, "gate", nil)
		w.call("GET", "/api/v1/audit?action=resume", "", operator...).
			want("audit", 200, "entries.0.subject", "queue default", "entries.0.reason", "works", "entries.0.actor",
				"ada")
	})
}

// TestChangesOfGatesOverHTTP checks that a request changes only the members that it has, and only the version in
// If-Match.
func TestChangesOfGatesOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		ada, ben := w.token("ada", store.Operator, 0), w.token("ben", store.Operator, 0)
		w.Enqueue(holdfast.NewTask{Type: "mail"})
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
		w.call("GET", "/api/v1/gates/999", "", ada...).want("an unknown gate", http.StatusNotFound)

		// A member that the request does not have stays as it is. A null removes it.
		second := w.call("POST", "/api/v1/gates", `{"kind":"pause","queue":"default"}`, ben...)
		if second.at("until") != first.at("until") || second.at("reason") != "upkeep" || second.at("actor") != "ben" || second.at("before.actor") != "ada" {
			w.Errorf("a pause that names nothing: %s", second.text)
		}
		w.call("DELETE", path, "", append(ada, "If-Match", tag)...).
			want("resume with an old tag", http.StatusPreconditionFailed, "code", "changed", "hint", some{})
		post(`{"kind":"pause","queue":"default","for":null}`, "If-Match", tag).
			want("a change with an old tag", http.StatusPreconditionFailed)
		third := post(`{"kind":"pause","queue":"default","for":null}`, "If-Match", second.header.Get("ETag"))
		third.want("removing the end", http.StatusCreated, "until", nil, "before.until", first.at("until"), "reason",
			"upkeep")
		fourth := post(`{"kind":"pause","queue":"default","reason":null}`)
		fourth.want("removing the reason", http.StatusCreated, "reason", nil, "before.reason", "upkeep")
		post(`{"kind":"pause","type":"mail"}`, "If-Match", "*").
			want("a change of a pause that does not exist", http.StatusPreconditionFailed)
		w.call("DELETE", path, "", append(ada, "If-Match", fourth.header.Get("ETag"))...).
			want("resume with the tag", 200, "queue", "default")

		// The next pause of the subject has another id than the one that was resumed.
		if r := post(`{"kind":"pause","queue":"default"}`); r.at("id") == first.at("id") || r.at("before") != nil {
			w.Errorf("the next pause: %s", r.text)
		}
		w.call("DELETE", path, "", ada...).want("resume of the first pause", http.StatusNotFound)
		w.call("GET", "/api/v1/gates", "", ada...).want("the gates", 200, "gates.0.queue", "default")
	})
}

// TestBlockedTasksOfQueuesOverHTTP blocks a task at a limit. The list of queues counts it.
func TestBlockedTasksOfQueuesOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		viewer := w.token("vera", store.Viewer, 0)
		ids := w.Enqueue(holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "slow", Queue: "slow"})
		set := w.call("PUT", "/api/v1/limits", `{"type":"slow","concurrency":1}`, w.token("ada", store.Operator, 0)...)
		set.want("a limit", 200)
		worker, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "ann", Concurrency: 1}, time.Hour)
		if err != nil {
			w.Fatal(err)
		}
		tickets := []message.Ticket{{Task: ids[1], Attempt: 1}}
		claims, err := w.Store.Claim(w.Context(), worker, store.AnyOf("slow"), tickets, store.IntoExecutors)
		if err != nil || claims[0].Verdict != store.Blocked {
			w.Fatalf("a claim of a limited task: %+v, %v", claims, err)
		}
		if err := w.Store.Block(w.Context(), claims[0].Gate, tickets); err != nil {
			w.Fatal(err)
		}
		w.call("GET", "/api/v1/queues", "", viewer...).want("queues", 200, "queues.0.queue", "default", "queues.0.blocked", 0, "queues.1.queue", "slow",
			"queues.1.blocked", 1, "queues.1.ready", 1, "queues.1.blocked_at_least", nil)
		w.call("GET", "/api/v1/gates", "", viewer...).want("gates", 200, "limits.0.id", set.at("id"), "limits.0.blocked", 1)
	})
}
