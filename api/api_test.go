package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func TestListsAndSearches(t *testing.T) {
	everywhere(t, func(w *world) {
		ids := w.Enqueue(
			holdfast.NewTask{Type: "mail", Payload: []byte(`{"to": "<b>ada</b>", "n": 12345678901234567890}`)},
			holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "report", Queue: "slow"}, holdfast.NewTask{Type: "mail"})

		page := w.get("/api/v1/tasks?q=type:mail&limit=2")
		page.want("first page", 200, "tasks.0.id", ids[3].String(), "tasks.1.id", ids[1].String(),
			"next", ids[1].String())
		page = w.get("/api/v1/tasks?q=type:mail&limit=2&before=" + ids[1].String())
		if page.at("tasks.0.id") != ids[0].String() || page.at("tasks.1.id") != nil || page.at("next") != nil || !strings.Contains(page.text, `"next":null`) {
			w.Errorf("last page: %s", page.text)
		}
		if none := w.get("/api/v1/tasks?q=type:none"); !strings.Contains(none.text, `"tasks":[]`) {
			w.Errorf("no tasks: %s", none.text)
		}

		task := w.get("/api/v1/tasks/" + ids[0].String())
		if task.at("id") != ids[0].String() || task.at("state") != "ready" || task.at("idempotency_key") == nil ||
			!strings.Contains(task.text, `"attempts":[]`) || !strings.Contains(task.text, `12345678901234567890`) || !strings.Contains(task.text, "<b>ada</b>") {
			w.Errorf("task: %s", task.text)
		}
		if attempts := w.get("/api/v1/tasks/" + ids[0].String() + "/attempts"); !strings.Contains(attempts.text, `{"attempts":[]}`) {
			w.Errorf("attempts: %s", attempts.text)
		}
		explanation := w.get("/api/v1/tasks/" + ids[0].String() + "/explanation")
		explanation.want("explanation", 200, "task", ids[0].String(), "causes.0.code", "no_worker")
		queues := w.get("/api/v1/queues")
		if queues.at("queues.0.queue") != "default" || fmt.Sprint(queues.at("queues.0.ready")) != "3" || queues.at("queues.1.queue") != "slow" {
			w.Errorf("queues: %s", queues.text)
		}
		if workers := w.get("/api/v1/workers?all=true"); !strings.Contains(workers.text, `{"workers":[]}`) {
			w.Errorf("workers: %s", workers.text)
		}
		if groups := w.get("/api/v1/dead-groups?q=type:mail"); !strings.Contains(groups.text, `{"groups":[]}`) {
			w.Errorf("groups: %s", groups.text)
		}
	})
}

// A task has what its attempts have stored, and no member for what they have not.
func TestATaskHasItsValues(t *testing.T) {
	everywhere(t, func(w *world) {
		id := w.Enqueue(holdfast.NewTask{Type: "mail"})[0]
		path := "/api/v1/tasks/" + id.String()
		before := w.get(path)
		for _, member := range []string{"output", "progress", "checkpoint", "steps.0"} {
			if before.at(member) != nil {
				w.Errorf("without values: %s", before.text)
			}
		}
		w.Runs(id, store.Datum{Name: store.OutputData, Value: []byte(`null`)},
			store.Datum{Name: store.CheckpointData, Value: []byte(`{"line":12345678901234567890}`)},
			store.Datum{Name: store.ProgressData, Value: []byte(`{"percent":50,"note":"<charged>"}`)},
			store.Datum{Name: store.StepData("charge"), Value: []byte(`"ch_1"`)})
		after := w.get(path)
		after.want("values", 200, "progress.percent", 50, "progress.note", "<charged>", "progress.attempt", 1, "progress.at", some{},
			"checkpoint.value.line", json.Number("12345678901234567890"), "checkpoint.attempt", 1, "checkpoint.at", some{},
			"steps.0.name", "charge", "steps.0.value", "ch_1", "steps.0.attempt", 1, "steps.0.at", some{})
		if !strings.Contains(after.text, `"output":null`) {
			w.Errorf("the output null: %s", after.text)
		}
		if why := w.get(path + "/explanation"); !strings.Contains(why.text, "it was 50% done (<charged>)") {
			w.Errorf("explanation: %s", why.text)
		}
	})
}

// Payloads and errors are data: no answer is HTML, whatever a payload contains.
func TestAnswersAreJSONOnly(t *testing.T) {
	everywhere(t, func(w *world) {
		id := w.Enqueue(holdfast.NewTask{Type: "mail", Payload: []byte(`"<script>\u0000\u001b[2J\ud800"`)})[0]
		for path, status := range map[string]int{
			"/api/v1/tasks/" + id.String(): 200, "/api/v1/tasks?q=%3Cscript%3E:1": 422, "/api/v1/%3Cscript%3E": 404, "/api/v1/openapi.json": 200,
		} {
			r := w.call("GET", path, "", "Accept", "text/html")
			kind := r.header.Get("Content-Type")
			if r.status != status || kind != "application/json" && kind != "application/problem+json" || r.header.Get("X-Content-Type-Options") != "nosniff" ||
				r.header.Get("Cache-Control") != "no-store" || strings.ContainsAny(r.text, "\x00\x1b") || strings.Contains(r.text, `\ud800`) {
				w.Errorf("%s: %d %v %q", path, r.status, r.header, r.text)
			}
		}
	})
}

func TestProblems(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, c := range []struct {
			method, path, body string
			status             int
			code, detail       string
		}{
			{"GET", "/api/v1/tasks?q=state:dead+typ:http", "", 422, "invalid_query", `character 12: unknown field "typ"`},
			{"GET", "/api/v1/tasks?limit=0", "", 422, "invalid_parameter", "query limit: expected number >= 1"},
			{"GET", "/api/v1/tasks?limit=x", "", 422, "invalid_parameter", "query limit: "},
			{"GET", "/api/v1/tasks?before=x", "", 422, "invalid_parameter", "before: task id "},
			{"GET", "/api/v1/tasks?stat=dead", "", 422, "invalid_parameter", "query stat: "},
			{"GET", "/api/v1/tasks/x", "", 422, "invalid_parameter", "id: task id "},
			{"GET", "/api/v1/tasks/999", "", 404, "not_found", "task 999"},
			{"GET", "/api/v1/tasks/999/attempts", "", 404, "not_found", "task 999"},
			{"GET", "/api/v1/tasks/999/explanation", "", 404, "not_found", "task 999"},
			{"GET", "/api/v1/dead-groups?q=error:x", "", 422, "invalid_parameter", "groups can be selected by"},
			{"GET", "/api/v1/dead-groups?q=type:mail+-id:7", "", 422, "invalid_parameter", "groups can be selected by"},
			{"GET", "/api/v1/tasks?q=-id:x", "", 422, "invalid_query", "is not an id or a list of ids"},
			{"GET", "/api/v1/nothing", "", 404, "not_found", "there is no route /api/v1/nothing"},
			{"DELETE", "/api/v1/tasks", "", 405, "method_not_allowed", "DELETE is not allowed here; use GET, HEAD, POST"},
			{"POST", "/api/v1/tasks", "", 400, "invalid_body", "request body is required"},
			{"POST", "/api/v1/tasks", " ", 422, "invalid_body", "the body has no task"},
			{"POST", "/api/v1/tasks", "[]", 422, "invalid_body", "the body has no task"},
			{"POST", "/api/v1/tasks", "[{]", 400, "invalid_body", "not valid JSON"},
			{"POST", "/api/v1/tasks", "{", 422, "invalid_task", "unexpected end of JSON"},
			{"POST", "/api/v1/tasks", "7", 422, "invalid_task", "a task must be a JSON object"},
			{"POST", "/api/v1/tasks", `{"type":"mail","kind":1}`, 422, "invalid_task", `unknown key "kind"`},
			{"POST", "/api/v1/tasks", `{"payload":1}`, 422, "invalid_task", "type"},
			{"POST", "/api/v1/tasks", `{"type":"http","payload":{}}`, 422, "invalid_task", "invalid payload for type http: field url is missing"},
			{"POST", "/api/v1/tasks", `[{"type":"mail"},{"type":""}]`, 422, "invalid_task", "1 of 2 tasks are invalid; nothing was stored"},
			{"POST", "/api/v1/tasks", "[" + strings.Repeat(`{"type":"a"},`, 1000) + `{"type":"a"}]`, 422, "invalid_body", "1001 tasks, the limit is 1000"},
			{"POST", "/api/v1/tasks", `{"type":"mail","payload":"` + strings.Repeat("x", 100_000) + `"}`, 422, "invalid_task", "100002 bytes"},
			{"POST", "/api/v1/tasks", strings.Repeat(" ", 200_000), 413, "too_large", "more than 165536 bytes"},
		} {
			r := w.call(c.method, c.path, c.body)
			detail, _ := r.at("detail").(string)
			if r.status != c.status || r.header.Get("Content-Type") != "application/problem+json" || r.at("code") != c.code || !strings.Contains(detail, c.detail) ||
				fmt.Sprint(r.at("status")) != fmt.Sprint(c.status) || r.at("type") != "about:blank" || r.at("title") != http.StatusText(c.status) {
				w.Errorf("%s %s %.50s: %d %s; want %d %s %s", c.method, c.path, c.body, r.status, r.text, c.status, c.code, c.detail)
			}
		}
		r := w.call("GET", "/api/v1/tasks?q=gr%C3%B6%C3%9Fe+typ:x", "")
		r.want("a problem of syntax", 422, "position", 7, "parameter", "q", "hint", some{})
		w.call("POST", "/api/v1/tasks", `{"type":"mail"}`, "Content-Type", "text/plain").
			want("text", 415, "code", "not_json")
		r = w.call("POST", "/api/v1/tasks", `[{"type":"mail"},{"type":"http","payload":{"url":"http://10.0.0.1/"}}]`)
		if fmt.Sprint(r.at("errors.0.index")) != "1" || r.at("errors.0.hint") != "allow_address" {
			w.Errorf("a problem of a task: %s", r.text)
		}
		if tasks := w.get("/api/v1/tasks"); tasks.at("tasks.0") != nil {
			w.Errorf("a refused request stored a task: %s", tasks.text)
		}
	})
}

func TestEnqueue(t *testing.T) {
	everywhere(t, func(w *world) {
		one := w.call("POST", "/api/v1/tasks", `{"type":"mail","payload": {"a": 1e400},"unique":"u","delay":"1h","max_attempts":3,"queue":"slow"}`)
		if one.status != http.StatusCreated || fmt.Sprint(one.at("duplicate")) != "false" {
			w.Fatalf("one: %d %s", one.status, one.text)
		}
		id := one.at("id").(string)
		if task := w.get("/api/v1/tasks/" + id); task.at("queue") != "slow" || fmt.Sprint(task.at("max_attempts")) != "3" || !strings.Contains(task.text, "1e400") {
			w.Errorf("task: %s", task.text)
		}
		if again := w.call("POST", "/api/v1/tasks", `{"type":"mail","unique":"u"}`); again.status != http.StatusOK || again.at("id") != id || fmt.Sprint(again.at("duplicate")) != "true" || again.at("state") != "ready" {
			w.Errorf("duplicate: %d %s", again.status, again.text)
		}
		w.call("POST", "/api/v1/tasks", `{"type":"mail","unique":"u","unique_for":"24h","unique_while_open":true}`).want("open", http.StatusOK, "id", id, "duplicate", true)
		if wrong := w.call("POST", "/api/v1/tasks", `{"type":"mail","unique_for":"24h"}`); wrong.status != http.StatusUnprocessableEntity || !strings.Contains(wrong.text, "needs a unique key") {
			w.Errorf("without a key: %d %s", wrong.status, wrong.text)
		}
		many := w.call("POST", "/api/v1/tasks", `[{"type":"mail"},{"type":"mail","unique":"u"},{"type":"report"}]`)
		many.want("many", http.StatusCreated, "tasks.1.id", id, "tasks.2.id", some{}, "tasks.3", nil)
		w.get("/api/v1/tasks?q=type:report").want("list", 200, "tasks.0.id", many.at("tasks.2.id"))
	})
}

// Without tokens the API serves programs on this machine, but no page in a browser and no proxy.
func TestWithoutTokensOnlyThisMachine(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, headers := range [][]string{
			{"Host", "evil.example.com"}, {"Host", "10.0.0.1:8480"}, {"Sec-Fetch-Site", "cross-site"}, {"X-Forwarded-For", "127.0.0.1"}, {"Forwarded", "for=127.0.0.1"},
			{"Via", "1.1 proxy"}, {"Origin", "https://evil.example.com"}, {"Origin", "null"}, {"Origin", "http://localhost:1"},
		} {
			w.call("GET", "/api/v1/tasks", "", headers...).
				want(strings.Join(headers, " "), http.StatusForbidden, "hint", some{})
		}
		for _, headers := range [][]string{{"Host", "localhost:8480"}, {"Host", "[::1]:8480"}, {"Sec-Fetch-Site", "same-origin"}, {"Origin", w.url}} {
			w.call("GET", "/api/v1/tasks", "", headers...).want(strings.Join(headers, " "), http.StatusOK)
		}
		if r := w.call("OPTIONS", "/api/v1/tasks", "", "Origin", "http://evil.example.com"); r.header.Get("Access-Control-Allow-Origin") != "" {
			w.Errorf("the API allows other origins: %v", r.header)
		}
	})
}

func TestSettingsAreRedacted(t *testing.T) {
	everywhere(t, func(w *world) {
		var want, got []string
		for _, entry := range w.Config.Entries() {
			want = append(want, entry.Key+" "+entry.Value+" "+entry.Origin)
		}
		list, _ := w.get("/api/v1/config").at("settings").([]any)
		for _, item := range list {
			entry := item.(map[string]any)
			got = append(got, fmt.Sprint(entry["key"], " ", entry["value"], " ", entry["origin"]))
		}
		if !slices.Equal(got, want) {
			w.Errorf("settings %q, want %q", got, want)
		}
	})
}

// A thousand readers at the same time wait for slots. No request fails, and the store keeps connections for others.
func TestAThousandReaders(t *testing.T) {
	everywhere(t, func(w *world) {
		ids := w.Enqueue(holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "mail"})
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
		defer client.CloseIdleConnections()
		paths := []string{"/api/v1/tasks", "/api/v1/tasks/" + ids[0].String(), "/api/v1/tasks?q=type:mail", "/api/v1/workers"}
		// A request waits for its slot for a limited time, so a slow machine gets fewer requests.
		statuses := make([]string, int(1000/slow.Factor()))
		var readers sync.WaitGroup
		begin := make(chan struct{})
		for i := range statuses {
			readers.Go(func() {
				<-begin
				request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+paths[i%len(paths)], nil)
				if err != nil {
					statuses[i] = err.Error()
					return
				}
				r, err := client.Do(request)
				if err != nil {
					statuses[i] = err.Error()
					return
				}
				defer r.Body.Close()
				statuses[i] = r.Status
			})
		}
		close(begin)
		readers.Wait()
		for i, status := range statuses {
			if status != "200 OK" {
				w.Fatalf("reader %d: %s", i, status)
			}
		}
	})
}
