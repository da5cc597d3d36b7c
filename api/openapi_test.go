package api_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

var update = flag.Bool("update", false, "write the table of routes")

// TestRoutes compares the routes with a table that people can review. Generated clients name their functions by the
// operation ids, so an id does not change.
func TestRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, backendtest.FileSettings(t), nil)
	var table strings.Builder
	for _, r := range w.api.Routes() {
		fmt.Fprintf(&table, "%-8s %-17s %-7s %-40s %s\n", r.Role, r.Name, r.Method, r.Path, r.Summary)
	}
	const golden = "testdata/routes.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if table.String() != string(want) {
		t.Errorf("%s is out of date; check the roles, and that no operation id has changed, then run: go test ./api -run TestRoutes -update\n%s", golden, table.String())
	}
}

// TestTheFirstRequestPrepares checks that New and Bind register no route, because the worker of the process starts
// after them. First requests may arrive together.
func TestTheFirstRequestPrepares(t *testing.T) {
	t.Parallel()
	w := newWorld(t, backendtest.FileSettings(t), nil)
	if w.api.Prepared() {
		t.Error("the routes are registered before the first request")
	}
	var requests sync.WaitGroup
	for range 4 {
		requests.Go(func() {
			answer := httptest.NewRecorder()
			if w.api.ServeHTTP(answer, w.request("GET", "/api/v1/openapi.json", nil)); answer.Code != http.StatusOK {
				t.Errorf("%d %.200s", answer.Code, answer.Body)
			}
		})
	}
	requests.Wait()
	if !w.api.Prepared() {
		t.Error("the routes are not registered after a request")
	}
}

// TestTheDocumentHasEveryRoute checks the served OpenAPI document: each route with its role, unique names, and no
// missing reference.
func TestTheDocumentHasEveryRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, backendtest.FileSettings(t), nil)
	served := w.get("/api/v1/openapi.json")
	if served.at("openapi") != "3.1.0" || served.at("info.title") != "Holdfast" || served.at("info.version") != "test" {
		t.Errorf("head: %.200s", served.text)
	}
	if served.at("servers.0.url") != "/" || served.at("servers.1.url") != "http://"+configs.Default().Listen {
		t.Errorf("servers: %v", served.at("servers"))
	}
	paths, _ := served.at("paths").(map[string]any)
	described, names := 0, make(map[string]bool)
	for _, r := range w.api.Routes() {
		operations, _ := paths[r.Path].(map[string]any)
		op, ok := operations[strings.ToLower(r.Method)].(map[string]any)
		if !ok {
			t.Errorf("the document lacks %s %s", r.Method, r.Path)
			continue
		}
		described++
		name, _ := op["operationId"].(string)
		if names[name] || name != r.Name || op["summary"] != r.Summary || op["x-role"] != string(r.Role) {
			t.Errorf("%s %s: name %q, role %q", r.Method, r.Path, name, op["x-role"])
		}
		names[name] = true
		security, _ := op["security"].([]any)
		if (len(security) == 0) != (r.Role == api.Anyone) {
			t.Errorf("%s %s: security %v", r.Method, r.Path, security)
		}
		body, _ := op["requestBody"].(map[string]any)
		content, _ := body["content"].(map[string]any)
		form, _ := content["application/json"].(map[string]any)
		if text := fmt.Sprint(content); (len(content) > 0) != r.HasBody || r.HasBody && form["schema"] == nil || strings.Contains(text, "binary") {
			t.Errorf("%s %s: the body is described as %s", r.Method, r.Path, text)
		}
		responses, _ := op["responses"].(map[string]any)
		problem, _ := responses["default"].(map[string]any)
		if content, _ := problem["content"].(map[string]any); content["application/problem+json"] == nil {
			t.Errorf("%s %s describes no problem: %v", r.Method, r.Path, responses)
		}
	}
	for path, operations := range paths {
		described -= len(operations.(map[string]any))
		for name := range strings.SplitSeq(path, "/") {
			if inner, ok := strings.CutPrefix(name, "{"); ok && !strings.Contains(served.text, `"name":"`+strings.TrimSuffix(inner, "}")+`"`) {
				t.Errorf("%s: the parameter %s is not described", path, name)
			}
		}
	}
	if described != 0 {
		t.Errorf("the document has %d operations more than the table of routes", -described)
	}
	schemas, _ := served.at("components.schemas").(map[string]any)
	var check func(value any)
	check = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if ref, ok := value["$ref"].(string); ok && schemas[strings.TrimPrefix(ref, "#/components/schemas/")] == nil {
				t.Errorf("the document refers to %s, which it lacks", ref)
			}
			for _, inner := range value {
				check(inner)
			}
		case []any:
			for _, inner := range value {
				check(inner)
			}
		}
	}
	check(served.json)
	for status, form := range map[string]string{"200": "Plan", "202": "Operation"} {
		if ref := served.at("paths./api/v1/operations.post.responses." + status + ".content.application/json.schema.$ref"); ref != "#/components/schemas/"+form {
			t.Errorf("the answer with the status %s to the start of an operation: %v", status, ref)
		}
	}
	if schemas["ErrorModel"] != nil || schemas["ListedTask"] == nil || schemas["Problem"] == nil {
		t.Errorf("schemas: %v", slices.Sorted(mapKeys(schemas)))
	}
}

func mapKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// TestAnswersMatchTheDocument reads every route; get compares the answers with the schemas of the document.
func TestAnswersMatchTheDocument(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, r := range w.api.Routes() { // of an empty store
			if r.Method == "GET" && !r.Stream && !strings.Contains(r.Path, "{") {
				w.call("GET", r.Path, "")
			}
		}
		id := w.Enqueue(holdfast.NewTask{Type: "mail", Payload: []byte(`{"a":[1]}`)}, holdfast.NewTask{Type: "mail", Topic: "a"})[0]
		w.Runs(id, store.Datum{Name: store.OutputData, Value: []byte(`{"a":[1]}`)}, store.Datum{Name: store.CheckpointData, Value: []byte(`7`)},
			store.Datum{Name: store.ProgressData, Value: []byte(`{"percent":50}`)}, store.Datum{Name: store.StepData("charge"), Value: []byte(`null`)})
		w.Dead(holdfast.NewTask{Type: "mail"})
		done := w.Enqueue(holdfast.NewTask{Type: "mail"})[0]
		w.Settle(done, holdfast.Returned(nil), holdfast.DefaultPolicy())
		w.get("/api/v1/tasks/" + done.String() + "/explanation") // nothing happens next
		o, err := w.StartOperation(w.Context(), store.Actor{Name: "ada", Surface: store.API}, store.Operation{
			Action: store.ActionRetry, Query: "state:dead", Filter: store.Filter{States: []holdfast.State{holdfast.Dead}},
			Ramp: []int{1, 100}, StopAbove: 0.5, StepTimeout: time.Minute, Patch: []byte(`[]`),
		}, true)
		if err != nil {
			w.Fatal(err)
		}
		groups, err := w.Store.DeathGroups(w.Context(), store.DeathFilter{})
		if err != nil || len(groups) != 1 {
			w.Fatalf("%d groups: %v", len(groups), err)
		}
		by := store.Actor{Name: "ada", Surface: store.API}
		pause, err := w.Store.Pause(w.Context(), by, store.PauseFor(store.Subject{Type: "paused"}, 0))
		if err != nil {
			w.Fatal(err)
		}
		limit, err := w.Store.SetLimit(w.Context(), by, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "limited"}}, Concurrency: 1}.Change())
		if err != nil {
			w.Fatal(err)
		}
		if r := w.call("POST", "/api/v1/schedules", `{"name":"nightly","cron":"30 2 * * *","jitter":"1m","task":{"type":"mail","payload":{"a":1}}}`); r.status != 201 {
			w.Fatal(r.text)
		}
		if err := w.Store.ReportTargets(w.Context(), []store.TargetReport{{Target: "https://down.example:443", Trip: true, Cause: "503"}}); err != nil {
			w.Fatal(err)
		}
		w.call("POST", "/api/v1/schedules/nightly/run", "").want("a run", 201)
		w.call("PUT", "/api/v1/sources/nightly", `{"type":"pull","every":"1h","start":"-3h","rate":"9/m","max_attempts":2}`).want("a source", 200)
		w.call("PUT", "/api/v1/sources/default", `{"overlap":"5s"}`).want("the default", 200)
		w.advance()
		w.call("PUT", "/api/v1/shard-jobs/nightly", `{"type":"scan","zones":{"0":"a","1":"b"}}`).want("a shard job", 200)
		batch := w.call("POST", "/api/v1/batches", `{"stages":[{"tasks":[{"type":"mail","payload":{"a":1}}]}],"name":"letters","allow_failed":"1%","then":{"type":"mail"}}`)
		batch.want("a batch", 201)
		checked := 0
		for _, r := range w.api.Routes() {
			if r.Method != "GET" || r.Stream || r.Role == api.Anyone {
				continue
			}
			path := strings.NewReplacer("/operations/{id}", "/operations/"+o.ID.String(), "/gates/{id}", "/gates/"+pause.After.ID.String(),
				"/limits/{id}", "/limits/"+limit.After.ID.String(), "/batches/{id}", "/batches/"+batch.at("id").(string)).Replace(r.Path)
			if strings.HasSuffix(path, "/topics/progress") {
				path += "?topic=a"
			}
			if strings.HasSuffix(path, "/targets/state") {
				path += "?target=down.example"
			}
			if strings.HasSuffix(path, "/slices") {
				path += "?source=nightly"
			}
			w.get(strings.NewReplacer("{id}", id.String(), "{name}", "nightly", "{fingerprint}", groups[0].Fingerprint).Replace(path))
			checked++
		}
		if checked < 8 {
			w.Errorf("only %d answers were checked", checked)
		}
	})
}

// TestListsAreArrays checks that each list in an answer is required and never null, so that a client can index it.
// Problems have lists only for requests with several tasks.
func TestListsAreArrays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, backendtest.FileSettings(t), nil)
	document := w.api.Document()
	requests := make(map[string]bool) // the schemas of requests, in which null is an empty list
	var below func(schema *huma.Schema, label string, found map[string]bool, check func(label string, list *huma.Schema, required bool))
	below = func(schema *huma.Schema, label string, found map[string]bool, check func(string, *huma.Schema, bool)) {
		if schema == nil || found[schema.Ref] {
			return
		}
		if schema.Ref != "" {
			found[schema.Ref] = true
			label, schema = strings.TrimPrefix(schema.Ref, "#/components/schemas/"), document.Components.Schemas.SchemaFromRef(schema.Ref)
		}
		for name, member := range schema.Properties {
			check(label+"."+name, member, slices.Contains(schema.Required, name))
			below(member, label+"."+name, found, check)
		}
		more, _ := schema.AdditionalProperties.(*huma.Schema)
		for _, inner := range slices.Concat([]*huma.Schema{schema.Items, more}, schema.OneOf, schema.AnyOf) {
			if inner != nil {
				check(label+"[]", inner, true)
				below(inner, label+"[]", found, check)
			}
		}
	}
	answers, lists := make(map[string]bool), 0
	for _, item := range document.Paths {
		for _, op := range api.Methods(item) {
			if op.RequestBody != nil {
				for _, form := range op.RequestBody.Content {
					below(form.Schema, op.OperationID, requests, func(string, *huma.Schema, bool) {})
				}
			}
			for status, answer := range op.Responses {
				for _, form := range answer.Content {
					below(form.Schema, op.OperationID+" "+status, answers, func(label string, list *huma.Schema, required bool) {
						if list.Type != huma.TypeArray {
							return
						}
						lists++
						if list.Nullable || !required && !strings.HasPrefix(label, "Problem.") {
							t.Errorf("%s may be missing or null", label)
						}
					})
				}
			}
		}
	}
	for name := range requests {
		if answers[name] {
			t.Errorf("%s is in requests and answers: its lists cannot be nullable and not nullable", name)
		}
	}
	if lists < 60 {
		t.Errorf("only %d lists were found", lists)
	}
}

// TestRequestsMayHaveNullLists checks that null and a missing array are the same in a request.
func TestRequestsMayHaveNullLists(t *testing.T) {
	everywhere(t, func(w *world) {
		w.call("POST", "/api/v1/tasks", `{"type":"mail","tags":null}`).want("tags", 201)
		w.call("POST", "/api/v1/operations", `{"action":"retry","query":"state:dead","ramp":null,"patch":null,"dry_run":true}`).want("ramp and patch", 200)
		w.call("POST", "/api/v1/schedules", `{"name":"a","cron":"* * * * *","task":{"type":"mail","tags":null}}`).want("tags of a schedule", 201)
		w.call("POST", "/api/v1/batches", `{"stages":[{"tasks":[{"type":"mail","tags":null}]}]}`).want("tags of a batch", 201)
		batch := w.call("POST", "/api/v1/batches", `{"open":true,"stages":null}`)
		batch.want("stages", 201)
		w.call("POST", "/api/v1/batches/"+batch.at("id").(string)+"/pages/0", `{"subtasks":null}`).want("subtasks", 200)
	})
}
