package api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

// maxExampleItems is the number of items of a long list that an example keeps, and longList is the length of a list that
// is not long.
const maxExampleItems, longList = 3, 24

// recorded replaces the parts of a call that differ from one recording to the next, and those that belong to no document.
var recorded = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`"secret":"[^"]*"`), `"secret":"holdfast_EXAMPLE"`},
	{regexp.MustCompile(`sqlite:[^"]*`), "sqlite:/var/lib/holdfast.db"},
	{regexp.MustCompile(`[^" ]*/holdfast\.db`), "/var/lib/holdfast.db"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z`), "2030-01-31T09:00:00.123456Z"},
	{regexp.MustCompile(`_[a-z2-7]{26}"`), `_abcdefghijklmnopqrstuvwxyz"`}, // the end of an idempotency key
	{regexp.MustCompile(`"version":\d{12,}`), `"version":1896080400123456`},
	{regexp.MustCompile(`\\"\d{12,}-`), `\"1896080400123456-`}, // in the ETag of a plan
}

// machinePath is the beginning of a path of the machine that recorded the examples.
var machinePath = regexp.MustCompile(`/(tmp|root|home|work)/|TestExamples`)

// TestExamples calls every operation, and compares the calls with the examples of the document: the members and their
// kinds must be the same. It also checks the examples against the schemas. With -update, it records the calls instead.
func TestExamples(t *testing.T) {
	t.Parallel()
	w := newWorld(t, backendtest.FileSettings(t), nil)
	calls := w.callAll()
	examples := api.Recorded()
	const file = "examples.json"
	if *update {
		examples = maps.Clone(calls)
		var lines []string // one for each operation
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			one, err := json.Marshal(calls[name])
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range recorded {
				one = r.pattern.ReplaceAllLiteral(one, []byte(r.text))
			}
			lines = append(lines, fmt.Sprintf("%q: %s", name, one))
		}
		if err := os.WriteFile(file, []byte("{\n"+strings.Join(lines, ",\n")+"\n}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, item := range w.api.Document().Paths {
		for method, op := range api.Methods(item) {
			e, ok := examples[op.OperationID]
			if !ok {
				t.Errorf("%s %s has no example", method, path)
				continue
			}
			delete(examples, op.OperationID)
			if path := machinePath.Find(e.Answer); path != nil && !*update {
				t.Errorf("the example of %s has the path %s", op.OperationID, path)
			}
			if op.RequestBody != nil {
				w.valid(op.OperationID, op.RequestBody.Content["application/json"].Schema, huma.ModeWriteToServer, e.Request)
			}
			answer := op.Responses[strconv.Itoa(e.Status)]
			if answer == nil {
				t.Errorf("%s: the document has no answer with the status %d", op.OperationID, e.Status)
				continue
			}
			for _, form := range answer.Content {
				w.valid(op.OperationID, form.Schema, huma.ModeReadFromServer, e.Answer)
				if form.Example == nil {
					t.Errorf("%s: the document has no example", op.OperationID)
				}
			}
			now := calls[op.OperationID]
			if e.Status != now.Status || !reflect.DeepEqual(kinds(t, e.Request), kinds(t, now.Request)) || !reflect.DeepEqual(kinds(t, e.Answer), kinds(t, now.Answer)) {
				t.Errorf("the example of %s is out of date; run: go test ./api -run TestExamples -update\n%d %s %s\n%d %s %s", op.OperationID,
					e.Status, e.Request, e.Answer, now.Status, now.Request, now.Answer)
			}
		}
	}
	if len(examples) > 0 {
		t.Errorf("examples of no operation: %v", slices.Sorted(maps.Keys(examples)))
	}
}

// kinds returns a JSON text with its kinds in place of its values.
func kinds(t *testing.T, text []byte) any {
	var value any
	if err := json.Unmarshal(text, &value); err != nil && len(text) > 0 {
		t.Fatal(err)
	}
	return kindsOf(value)
}

func kindsOf(value any) any {
	switch value := value.(type) {
	case map[string]any:
		of := make(map[string]any)
		for name, member := range value {
			of[name] = kindsOf(member)
		}
		return of
	case []any:
		if len(value) > 0 {
			return []any{kindsOf(value[0])}
		}
	}
	return reflect.TypeOf(value)
}

// callAll calls each operation, with success, and returns the calls by operation id.
func (w *world) callAll() map[string]api.Example {
	admin := w.token("ada", store.Admin, 0)
	calls := make(map[string]api.Example)
	operations := w.api.Operations()
	// call calls an operation with a body, and then with the parameters in its path and its query.
	call := func(name, text string, parameters ...string) response {
		w.Helper()
		path, query := operations[name].Path, ""
		for _, parameter := range parameters {
			if strings.Contains(parameter, "=") {
				query = "?" + parameter
				continue
			}
			before, after, _ := strings.Cut(path, "{")
			_, after, _ = strings.Cut(after, "}")
			path = before + parameter + after
		}
		r := w.call(operations[name].Method, path+query, text, admin...)
		if r.status >= 300 {
			w.Fatalf("%s: %d %s", name, r.status, r.text)
		}
		e := api.Example{Status: r.status, Answer: shortened(w.T, r.text)}
		if text != "" {
			e.Request = json.RawMessage(text)
		}
		if _, called := calls[name]; !called {
			calls[name] = e
		}
		return r
	}
	id := func(r response) string { return r.at("id").(string) }
	const reason = `{"reason":"the mail server is back"}`

	worker, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{
		Name: "host-1/4711", Host: "host-1", PID: 4711, Version: "1.0.0", Concurrency: 10, Queues: []string{"mail"}, Types: []string{"mail"},
		Schemas: map[string]json.RawMessage{"mail": json.RawMessage(`{"type":["object"],"required":["to"]}`)},
	}, time.Hour)
	if err != nil {
		w.Fatal(err)
	}
	mail := holdfast.NewTask{Type: "mail", Queue: "mail", Payload: []byte(`{"to":"ada@example.com"}`), Key: "acme", Tags: []string{"order:42"}}
	ordered, shared := mail, mail
	ordered.Key, ordered.Ordered, shared.Topic = "invoices", true, "acme"
	die := func(task holdfast.NewTask) holdfast.TaskID {
		id := w.Enqueue(task)[0]
		w.Settle(id, holdfast.Returned(holdfast.Permanent(errors.New("550 no such mailbox"))), holdfast.DefaultPolicy())
		return id
	}
	die(ordered)
	w.Enqueue(ordered)

	stored := id(call("enqueue", `{"type":"mail","queue":"mail","payload":{"to":"ada@example.com"},"tags":["order:42"],"key":"acme"}`))
	runs, err := holdfast.ParseTaskID(stored)
	if err != nil {
		w.Fatal(err)
	}
	w.Runs(runs, store.Datum{Name: store.ProgressData, Value: []byte(`{"percent":50,"note":"connected"}`)},
		store.Datum{Name: store.CheckpointData, Value: []byte(`{"line":7}`)}, store.Datum{Name: store.StepData("charge"), Value: []byte(`"ch_1"`)})
	call("listTasks", "", "q=state:running")
	call("getTask", "", stored)
	calls["watchTasks"] = w.firstEvent(operations["watchTasks"].Path+"?q=state:running", admin)
	dead := die(mail).String()
	call("explainTask", "", dead)
	call("listAttempts", "", dead)
	group := call("listDeadGroups", "").at("groups.0.group").(string)
	call("changeDeadGroup", `{"note":"the mailbox has moved"}`, group)
	call("getDeadGroup", "", group)
	call("editTask", `[{"op":"replace","path":"/payload/to","value":"ada@example.org"}]`, dead)
	call("retryTask", reason, dead)
	call("undoTask", reason, dead)
	call("archiveTask", reason, dead)
	call("restoreTask", reason, dead)
	call("cancelTask", reason, dead)

	operation := id(call("startOperation", `{"action":"retry","query":"state:dead type:mail","ramp":[1,25,100],"rate":50,"plan":true,"reason":"the mail server is back"}`))
	call("resumeOperation", reason, operation)
	call("pauseOperation", reason, operation)
	call("getOperation", "", operation)
	call("listOperations", "")
	call("cancelOperation", reason, operation)

	if err := w.Store.ReportTargets(w.Context(), []store.TargetReport{{Target: "https://down.example:443", Trip: true, Cause: "503 Service Unavailable"}}); err != nil {
		w.Fatal(err)
	}
	limit := id(call("setLimit", `{"type":"mail","rate":"100/s","reason":"the mail server takes no more"}`))
	gate := id(call("closeGate", `{"kind":"pause","queue":"mail","for":"1h","reason":"the mail server is down"}`))
	call("listGates", "")
	call("getGate", "", gate)
	call("openGate", "", gate)
	call("getLimit", "", limit)
	call("unsetLimit", "", limit)
	call("listTargets", "")
	call("getTarget", "", "target=https://down.example:443")
	call("listKeys", "")
	call("setTopicWeight", `{"topic":"acme","weight":3,"reason":"acme has paid for more"}`)
	call("listTopicWeights", "")
	w.Enqueue(shared)
	call("listTopics", "")
	call("getTopic", "", "topic=acme")

	call("createSchedule", `{"name":"nightly","cron":"30 2 * * *","timezone":"Europe/Berlin","jitter":"1m","task":{"type":"mail","queue":"mail","payload":{"to":"ada@example.com"}}}`)
	call("runSchedule", reason, "nightly")
	call("getSchedule", "", "nightly")
	call("editSchedule", `{"cron":"0 3 * * *","reason":"after the backup"}`, "nightly")
	call("pauseSchedule", reason, "nightly")
	call("resumeSchedule", reason, "nightly")
	call("listSchedules", "")
	call("backfillSchedule", `{"from":"2026-01-01","to":"2026-01-03","reason":"the tasks of the new year"}`, "nightly")
	call("deleteSchedule", "", "nightly")

	call("setSource", `{"type":"pull","every":"1h","start":"-5h","rate":"9/m","max_attempts":2}`, "orders")
	call("setSource", `{"type":"pull","every":"1h","start":"-5h","rate":"9/m","max_attempts":2}`, "orders")
	call("backfillSource", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T03:00:00Z","reason":"the shop has added orders"}`, "orders")
	w.advance()
	call("listSlices", "", "source=orders")
	call("getSource", "", "orders")
	call("listSources", "")
	call("deleteSource", "", "orders")

	call("setShardJob", `{"type":"scan","zones":{"0":"a","1":"b"},"reason":"two zones"}`, "index")
	w.advance()
	call("moveShard", `{"shard":"1","to":"a","reason":"zone b is slow"}`, "index")
	call("moveShard", `{"shard":"0","to":"b"}`, "index")
	call("getShardMap", "", "index")
	call("getShardJob", "", "index")
	call("drainZone", `{"zone":"b","reason":"zone b goes"}`, "index")
	call("listShardJobs", "")
	call("deleteShardJob", "", "index")

	batch := id(call("startBatch", `{"name":"letters","open":true,"allow_failed":"1%","then":{"type":"report"},"reason":"the letters of January"}`))
	call("pushBatch", `{"subtasks":[{"type":"mail","queue":"mail","payload":{"to":"ada@example.com"}}]}`, batch, "0")
	call("pauseBatch", reason, batch)
	call("resumeBatch", reason, batch)
	call("sealBatch", reason, batch)
	w.advance()
	call("getBatch", "", batch)
	call("listBatches", "")
	call("listBatchResults", "", batch)
	call("retryBatch", reason, batch)
	call("cancelBatch", reason, batch)

	call("listQueues", "")
	call("getCounts", "")
	call("listWorkers", "")
	call("drainWorker", "", worker.String())
	call("drainWorkers", `{"all":true}`)
	call("verifyTasks", "")
	call("planRecovery", "")
	call("recover", "")
	call("simulatePolicy", `{"type":"mail","from":"2026-01-31T09:00:00Z","limit":3}`)
	call("listTypes", "")
	call("changeSettings", `{"types.mail.retry.base":"5s"}`)
	call("listSettings", "")
	call("undoSetting", `{"key":"types.mail.retry.base"}`)
	call("getConfig", "")
	call("createToken", `{"name":"billing","role":"operator","expires":"2160h","reason":"for the billing service"}`)
	call("listTokens", "")
	call("revokeToken", "", "billing")
	call("listAudit", "")
	document := call("getOpenAPI", "")
	head, err := json.Marshal(map[string]any{"openapi": document.at("openapi"), "info": document.at("info")})
	if err != nil {
		w.Fatal(err)
	}
	calls["getOpenAPI"] = api.Example{Status: http.StatusOK, Answer: head}
	return calls
}

// shortened returns a JSON text with fewer items in long lists.
func shortened(t *testing.T, text string) json.RawMessage {
	var value any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	var shorten func(value any)
	shorten = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, member := range value {
				if list, ok := member.([]any); ok && len(list) > longList {
					value[name] = list[:maxExampleItems]
				}
				shorten(value[name])
			}
		case []any:
			for _, item := range value {
				shorten(item)
			}
		}
	}
	shorten(value)
	short, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return short
}

// firstEvent returns the first event of a stream as an example.
func (w *world) firstEvent(path string, headers []string) api.Example {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	request.Header.Set(headers[0], headers[1])
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	var event strings.Builder
	for lines := bufio.NewScanner(answer.Body); lines.Scan() && lines.Text() != ""; {
		event.WriteString(lines.Text() + "\n")
	}
	text, err := json.Marshal(event.String() + "\n")
	if err != nil {
		w.Fatal(err)
	}
	return api.Example{Status: answer.StatusCode, Answer: text}
}
