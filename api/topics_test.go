package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

func TestTopicsOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		operator, viewer := w.token("ada", store.Operator, 0), w.token("vera", store.Viewer, 0)
		get := func(path string) response {
			w.Helper()
			r := w.call("GET", "/api/v1"+path, "", viewer...)
			if r.status != 200 {
				w.Fatalf("%s: %d %s", path, r.status, r.text)
			}
			return r
		}
		if r := get("/topics"); r.text != "{\"topics\":[],\"next\":null}\n" {
			w.Errorf("no topics: %s", r.text)
		}
		if r := get("/topics/weights"); r.text != "{\"weights\":[]}\n" {
			w.Errorf("no weights: %s", r.text)
		}
		for _, path := range []string{
			"/topics?limit=0", "/topics?limit=1001", "/topics?after=a", "/topics?after=default/", "/topics?after=/a", "/topics?after=default.none/a",
			"/topics/progress", "/topics/progress?topic=", "/topics/progress?topic=a%0a", "/topics/progress?topic=" + strings.Repeat("a", holdfast.MaxKeyLength+1),
			"/topics/weights?limit=0",
		} {
			w.call("GET", "/api/v1"+path, "", viewer...).want(path, 422, "detail", some{}, "parameter", some{})
		}

		// A topic may have any characters.
		const name = `../a//b c?d&e%2F"f"`
		stored := w.call("POST", "/api/v1/tasks", fmt.Sprintf(`[{"type":"mail","topic":%q},{"type":"mail","topic":%[1]q},{"type":"mail","topic":%[1]q,"priority":"high"},{"type":"mail"}]`, name), operator...)
		if stored.status != 201 {
			w.Fatalf("store: %d %s", stored.status, stored.text)
		}
		first, second, plain := stored.at("tasks.0.id"), stored.at("tasks.1.id"), stored.at("tasks.3.id")
		task := func(id any) response { return get(fmt.Sprint("/tasks/", id)) }
		if task(first).at("topic") != name || task(plain).at("topic") != nil {
			w.Errorf("tasks: %s %s", task(first).text, task(plain).text)
		}
		w.Enqueue(holdfast.NewTask{Type: "mail", Topic: "z", Delay: time.Hour})
		part := func(r response, at string) string {
			return fmt.Sprint(r.at(at+".topic"), " ", r.at(at+".queue"), " ", r.at(at+".priority"), " ", r.at(at+".weight"), " ", r.at(at+".waiting"), " ", r.at(at+".slots"), " ", r.at(at+".later"))
		}
		list := get("/topics")
		if part(list, "topics.0") != name+" default high 1 1 0 0" || part(list, "topics.1") != name+" default normal 1 2 0 0" ||
			part(list, "topics.2") != "z default normal 1 0 0 1" || list.at("topics.3") != nil || list.at("next") != nil ||
			list.at("topics.0.scanned") == nil || list.at("topics.0.done") == nil {
			w.Errorf("topics: %s", list.text)
		}
		var pages []string
		for next := ""; ; {
			r := get("/topics?limit=1&after=" + url.QueryEscape(next))
			pages = append(pages, part(r, "topics.0"))
			if r.at("topics.1") != nil || len(pages) > 3 {
				w.Fatalf("page %d: %s", len(pages), r.text)
			}
			if r.at("next") == nil {
				break
			}
			next = r.at("next").(string)
		}
		if len(pages) != 3 || pages[0] != part(list, "topics.0") || pages[1] != part(list, "topics.1") || pages[2] != part(list, "topics.2") {
			w.Errorf("pages: %q", pages)
		}
		get("/topics?queue=nosuch").want("another queue", 200, "topics.0", nil)
		if r := get("/topics?queue=default"); r.text != list.text {
			w.Errorf("the queue: %s", r.text)
		}
		progress := get("/topics/progress?topic=" + url.QueryEscape(name))
		if progress.at("topic") != name || part(progress, "parts.0") != part(list, "topics.0") || part(progress, "parts.1") != part(list, "topics.1") ||
			progress.at("parts.2") != nil || progress.at("stored") == nil || progress.at("scanned") == nil || progress.at("done") == nil {
			w.Errorf("progress: %s", progress.text)
		}
		none := get("/topics/progress?topic=none")
		none.want("a topic without tasks", 200, "parts.0", nil, "done", none.at("stored"))

		// The explanation of a task that waits for a slot.
		why := func(id any) response { return get(fmt.Sprintf("/tasks/%v/explanation", id)) }
		if r := why(second); r.at("causes.0.code") != "topic" || r.at("next_start") != nil || r.at("causes.0.text") !=
			fmt.Sprintf("it waits for a slot of the topic %s: 1 task of the topic is ahead; no live worker takes the queue default, so the queue has no slots", name) {
			w.Errorf("explanation: %s", r.text)
		}
		if r := why(plain); r.at("causes.0.code") == "topic" {
			w.Errorf("explanation of a task without a topic: %s", r.text)
		}

		// Weights.
		put := func(body string) response { return w.call("PUT", "/api/v1/topics/weights", body, operator...) }
		for body, want := range map[string]int{
			`{"weight":2}`: 422, `{"topic":"a"}`: 422, `{"topic":"a","weight":0}`: 422, `{"topic":"a","weight":1001}`: 422,
			`{"topic":"a\n","weight":2}`: 422, `{"topic":"a","weight":"2"}`: 400, `{"topic":"a","weight":2,"queue":"b"}`: 400, `[`: 400,
		} {
			put(body).want(body, want, "detail", some{})
		}
		put(fmt.Sprintf(`{"topic":%q,"weight":5,"reason":"large"}`, name)).
			want("set", 200, "topic", name, "weight", 5, "before", 1)
		if r := put(fmt.Sprintf(`{"topic":%q,"weight":7}`, name)); fmt.Sprint(r.at("weight"), " ", r.at("before")) != "7 5" {
			w.Errorf("change: %d %s", r.status, r.text)
		}
		get("/topics/weights?limit=1").want("weights", 200, "weights.0.topic", name, "weights.0.weight", 7,
			"weights.1", nil)
		get("/topics/progress?topic="+url.QueryEscape(name)).want("progress", 200, "weight", 7, "parts.0.weight", 7)
		get("/audit?action=set").want("audit", 200, "entries.0.subject", "topic "+name,
			"entries.0.before.weight", 5, "entries.0.after.weight", 7,
			"entries.1.reason", "large", "entries.1.actor", "ada", "entries.1.surface", "api", "entries.2", nil)
		if r := put(fmt.Sprintf(`{"topic":%q,"weight":1}`, name)); r.status != 200 || get("/topics/weights").at("weights.0") != nil {
			w.Errorf("the weight of all other topics: %d %s", r.status, r.text)
		}
	})
}
