package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/console"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

// editWorld is a console over a file that no other test uses.
type editWorld struct {
	*testing.T
	*app.Backend
	url string
}

func newEditWorld(t *testing.T) *editWorld {
	t.Helper()
	t.Parallel()
	settings := []string{
		"DATABASE_URL=" + configs.EmbeddedDatabase + backendtest.NewFile(t), "AMQP_URL=" + configs.EmbeddedBroker,
		"HOLDFAST_CONSOLE_PREFIX=/ops",
	}
	if sampled {
		settings = append(settings, "HOLDFAST_PRODUCER_MAX_PAYLOAD=100000")
	}
	cfg, err := configs.Load(configs.Options{Env: settings})
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	w := &editWorld{T: t}
	if w.Backend, err = daemon.Open(t.Context(), cfg, log); err != nil {
		t.Fatal(err)
	}
	served := api.New(api.Options{Backend: w.Backend, Version: "test"})
	c := console.New(console.Options{Backend: w.Backend, API: served, Prefix: "/ops", Version: "test"})
	server := httptest.NewServer(c)
	w.url = server.URL + "/ops"
	if err := served.Bind(t.Context(), server.Listener.Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Stop()
		server.Close()
		if err := errors.Join(served.Close(), w.Backend.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// editPage is an answer of the console.
type editPage struct {
	status int
	header http.Header
	text   string
}

// send sends a request without following redirects. secret is that of a token, or "".
func (w *editWorld) send(method, path, secret string, form url.Values, cookies ...*http.Cookie) editPage {
	w.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, body)
	if err != nil {
		w.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.Fatal(err)
	}
	if strings.Contains(string(text), "<script>") || strings.Contains(string(text), "<b>no") {
		w.Errorf("%s %s: a value is HTML:\n%s", method, path, text)
	}
	return editPage{answer.StatusCode, answer.Header, string(text)}
}

func (w *editWorld) show(path string) editPage {
	w.Helper()
	return w.send("GET", path, "", nil).want(w.T, "GET "+path, http.StatusOK)
}

// want reports an error unless the page has the status and the texts. A text that begins with "!" must be missing.
func (p editPage) want(t *testing.T, label string, status int, texts ...string) editPage {
	t.Helper()
	if p.status != status {
		t.Errorf("%s: status %d, want %d:\n%s", label, p.status, status, p.text)
		return p
	}
	plain := html.UnescapeString(p.text)
	for _, text := range texts {
		if missing, unwanted := strings.CutPrefix(text, "!"); strings.Contains(plain, missing) == unwanted {
			t.Errorf("%s: %q is on the page: %t\n%s", label, missing, unwanted, plain)
		}
	}
	return p
}

var (
	editInputs   = regexp.MustCompile(`<input[^>]*\bname="(\w+)"[^>]*>`)
	editValues   = regexp.MustCompile(`\bvalue="([^"]*)"`)
	editPriority = regexp.MustCompile(`<option selected>(\w+)</option>`)
)

// form returns the fields of the form of an edit or of a plan, as a browser would send them.
func (p editPage) form(t *testing.T) url.Values {
	t.Helper()
	_, inside, found := strings.Cut(p.text, `<form method="post" action="/ops/tasks/`)
	if !found {
		_, inside, found = strings.Cut(p.text, `<form method="post" action="/ops/do/startOperation"`)
	}
	if !found {
		t.Fatalf("no form on the page:\n%s", p.text)
	}
	inside, _, _ = strings.Cut(inside, "</form>")
	before, payload, hasPayload := strings.Cut(inside, `<textarea name="payload"`) // texts are long, and expressions slow
	payload, after, _ := strings.Cut(payload, "</textarea>")
	form := url.Values{}
	for _, input := range editInputs.FindAllStringSubmatch(before+after, -1) {
		if strings.Contains(input[0], "checkbox") && !strings.Contains(input[0], " checked") {
			continue
		}
		value := ""
		if v := editValues.FindStringSubmatch(input[0]); v != nil {
			value = html.UnescapeString(v[1])
		}
		form.Set(input[1], value)
	}
	if _, text, ok := strings.Cut(payload, ">\n"); hasPayload && ok {
		form.Set("payload", strings.ReplaceAll(html.UnescapeString(text), "\n", "\r\n"))
	}
	if priority := editPriority.FindStringSubmatch(after); priority != nil {
		form.Set("priority", priority[1])
	}
	return form
}

// deadTask stores a task whose only attempt has failed for good.
func (w *editWorld) deadTask(task holdfast.NewTask) holdfast.TaskID {
	w.Helper()
	p := w.Producer(nil)
	defer p.Close()
	stored, err := p.Enqueue(w.Context(), task)
	if err != nil {
		w.Fatal(err)
	}
	worker, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "worker", Concurrency: 1}, time.Hour)
	if err != nil {
		w.Fatal(err)
	}
	claims, err := w.Store.Claim(w.Context(), worker, store.AnyOf(task.Type), []message.Ticket{{Task: stored.ID, Attempt: 1}}, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		w.Fatal(claims, err)
	}
	move, err := holdfast.Settle(w.task(stored.ID), holdfast.Returned(holdfast.Permanent(errors.New("<b>no</b>"))), time.Now(), holdfast.DefaultPolicy())
	if err != nil {
		w.Fatal(err)
	}
	if ok, err := w.Store.Apply(w.Context(), []holdfast.Transition{move}); err != nil || !ok[0] {
		w.Fatal(ok, err)
	}
	return stored.ID
}

func (w *editWorld) task(id holdfast.TaskID) holdfast.Task {
	w.Helper()
	task, err := w.Store.Task(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return task
}

// tokenOf creates a token and returns its secret.
func (w *editWorld) tokenOf(name string, role store.TokenRole) string {
	w.Helper()
	secret, err := w.CreateToken(w.Context(), store.Actor{Name: "test", Surface: store.CommandLine}, name, role, 0)
	if err != nil {
		w.Fatal(err)
	}
	return secret
}

// step changes fields of a form, and sends it.
func (w *editWorld) step(path string, form url.Values, step string, fields ...string) editPage {
	w.Helper()
	form.Set("step", step)
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return w.send("POST", path, "", form)
}

// taken returns the page after a redirect, with the notice.
func (w *editWorld) taken(p editPage) editPage {
	w.Helper()
	location := p.header.Get("Location")
	if p.status != http.StatusSeeOther || !strings.HasPrefix(location, "/ops/") {
		w.Fatalf("status %d, location %q:\n%s", p.status, location, p.text)
	}
	cookies := (&http.Response{Header: p.header}).Cookies()
	return w.send("GET", strings.TrimPrefix(location, "/ops"), "", nil, cookies...)
}

const editedPayload = `{"z":1.0,"id":12345678901234567890123,"a":{"url":"https://a.example/?x=1&y=<script>alert(1)</script>"},"odd":"\ud800","list":[1,2,3]}`

func TestEditFormKeepsEveryCharacter(t *testing.T) {
	w := newEditWorld(t)
	id := w.deadTask(holdfast.NewTask{Type: "mail", Payload: []byte(editedPayload), Tags: []string{"eu"}})
	path := "/tasks/" + id.String() + "/edit"
	w.show("/tasks/"+id.String()).want(t, "the task", 200, `/ops`+path)
	form := w.show(path).want(t, "the form", 200, "12345678901234567890123", "!Run at").form(t)
	var stored bytes.Buffer
	if err := json.Compact(&stored, []byte(form.Get("payload"))); err != nil || stored.String() != editedPayload {
		t.Errorf("the form has the payload %s, %v; want %s", stored.String(), err, editedPayload)
	}
	w.step(path, form, "review").want(t, "nothing edited", 422, "the edit changes nothing")

	payload := strings.Replace(form.Get("payload"), "x=1&", "x=2&", 1)
	review := w.step(path, form, "review", "payload", payload, "queue", "slow", "priority", "high", "max_attempts", "7", "tags", "eu, us", "reason", "wrong <b>no</b> url")
	review.want(t, "the review", 200, "/payload/a/url", "/queue", "/priority", "/max_attempts", "/tags/1", "!/payload/z", "!/payload/id", ">Save and retry<")
	if task := w.task(id); task.Queue != "default" || task.Attempt != 1 {
		t.Errorf("the review has changed the task: %+v", task)
	}
	form = review.form(t)
	w.step(path, form, "save", "queue", "slower").want(t, "another value than reviewed", 200, "has changed since the review", "slower")
	saved := w.taken(w.step(path, review.form(t), "save"))
	saved.want(t, "after the save", 200, "Task "+id.String()+" is edited", ">Undo<", "Revisions", "/payload/a/url", "wrong <b>no</b> url")
	task := w.task(id)
	if want := strings.Replace(editedPayload, "x=1&", "x=2&", 1); string(task.Payload) != want {
		t.Errorf("the payload is %s; want %s", task.Payload, want)
	}
	if task.Queue != "slow" || task.Priority != holdfast.PriorityHigh || task.MaxAttempts != 7 || strings.Join(task.Tags, " ") != "eu us" || task.State != holdfast.Dead {
		t.Errorf("the task is %+v", task)
	}
	entries, err := w.Store.AuditLog(w.Context(), store.AuditFilter{Task: id, Limit: 1})
	if err != nil || entries[0].Surface != store.Console || entries[0].Reason != "wrong <b>no</b> url" || entries[0].Action != store.ActionEdit {
		t.Errorf("the audit log has %+v, %v", entries, err)
	}
	w.taken(w.send("POST", "/do/undoTask", "", url.Values{"id": {id.String()}, "to": {"/ops/tasks/" + id.String()}}))
	if task := w.task(id); string(task.Payload) != editedPayload || task.Queue != "default" || len(task.Tags) != 1 {
		t.Errorf("after the undo the task is %+v", task)
	}
}

func TestEditAndRetry(t *testing.T) {
	w := newEditWorld(t)
	id := w.deadTask(holdfast.NewTask{Type: "mail", Payload: []byte(`{"to":"a"}`)})
	path := "/tasks/" + id.String() + "/edit"
	review := w.step(path, w.show(path).form(t), "review", "payload", `{"to":"b"}`)
	w.taken(w.step(path, review.form(t), "retry")).want(t, "after the retry", 200, "is edited and retried", ">Undo<")
	if task := w.task(id); task.State != holdfast.Ready || string(task.Payload) != `{"to":"b"}` {
		t.Errorf("the task is %+v", task)
	}
	// Its time can be edited now, and a retry makes no sense.
	form := w.show(path).form(t)
	w.step(path, form, "review", "run_at", "tomorrow").want(t, "a bad time", 422, "/run_at", `"tomorrow" is not a time`)
	review = w.step(path, form, "review", "run_at", "2031-01-31T09:00:00+01:00").want(t, "a time", 200, `"2031-01-31T08:00:00Z"`, "!Save and retry")
	w.taken(w.step(path, review.form(t), "save"))
	if at := w.task(id).NextRunAt; !at.Equal(time.Date(2031, 1, 31, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("the time is %s", at)
	}
}

func TestEditShowsProblemsByPath(t *testing.T) {
	w := newEditWorld(t)
	schema := json.RawMessage(`{"type":["object"],"properties":{"url":{"type":["string"]},"n":{"type":["integer"]}}}`)
	if _, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Types: []string{"mail"}, Schemas: map[string]json.RawMessage{"mail": schema}}, time.Hour); err != nil {
		t.Fatal(err)
	}
	id := w.deadTask(holdfast.NewTask{Type: "mail", Payload: []byte(`{"url":"a","n":1}`)})
	path := "/tasks/" + id.String() + "/edit"
	form := w.show(path).form(t)
	w.step(path, form, "review", "payload", "{\r\n  \"url\": \"a\",\r\n  \"n\": oops\r\n}", "priority", "urgent", "max_attempts", "-1", "tags", `a"b`).
		want(t, "texts that cannot be read", 422, "line 3, character 8", "/priority", "/max_attempts", "/tags", "oops", "!>Save<")
	w.step(path, form, "review", "payload", `{"url":5,"n":"<script>"}`, "priority", "low", "max_attempts", "", "tags", "", "queue", "No Queue").
		want(t, "values that do not fit", 422, "/payload/url", "expected string, got number", "/payload/n", "expected integer, got string", `"No Queue"`, `name="skip"`, "!>Save<")
	review := w.step(path, form, "review", "queue", "default", "skip", "1").want(t, "without validation", 200, ">Save<")
	w.taken(w.step(path, review.form(t), "save")).want(t, "after the save", 200, "/skipped_validation")
	if got := string(w.task(id).Payload); got != `{"url":5,"n":"<script>"}` {
		t.Errorf("the payload is %s", got)
	}
}

// A conflict keeps what the person typed, takes the new values of the other fields, and shows what has changed.
func TestEditConflictKeepsTheForm(t *testing.T) {
	w := newEditWorld(t)
	id := w.deadTask(holdfast.NewTask{Type: "mail", Payload: []byte(`{"to":"a"}`)})
	path := "/tasks/" + id.String() + "/edit"
	review := w.step(path, w.show(path).form(t), "review", "payload", `{"to":"mine"}`)
	theirs := w.step(path, w.show(path).form(t), "review", "queue", "theirs")
	w.taken(w.step(path, theirs.form(t), "save"))
	for _, step := range []string{"save", "review"} {
		conflict := w.step(path, review.form(t), step).want(t, step, http.StatusPreconditionFailed,
			"has changed since you opened the form", "Changed meanwhile", `"theirs"`, `{"to":"mine"}`)
		if got := string(w.task(id).Payload); got != `{"to":"a"}` {
			t.Fatalf("the payload is %s", got)
		}
		if step == "review" {
			w.taken(w.step(path, conflict.form(t), "save"))
		}
	}
	if task := w.task(id); string(task.Payload) != `{"to":"mine"}` || task.Queue != "theirs" {
		t.Errorf("the task is %+v", task)
	}
}

func TestEditRefusedByTheAPIKeepsTheForm(t *testing.T) {
	w := newEditWorld(t)
	id := w.deadTask(holdfast.NewTask{Type: "mail", Payload: []byte(`{"to":"a"}`)})
	path := "/tasks/" + id.String() + "/edit"
	review := w.step(path, w.show(path).form(t), "review", "payload", `{"to":"mine"}`)
	w.step(path, review.form(t), "save", "reason", strings.Repeat("x", 2000)).want(t, "a long reason", 422, "at most 1000", `{"to":"mine"}`)
	if got := string(w.task(id).Payload); got != `{"to":"a"}` {
		t.Errorf("the payload is %s", got)
	}
}

// A payload as large as a producer allows passes the form, although the form has it twice and encodes it.
func TestEditOfALargePayload(t *testing.T) {
	w := newEditWorld(t)
	items := w.Config.Producer.MaxPayload/4 - 10
	payload := `["x",` + strings.TrimSuffix(strings.Repeat(`"a",`, items), ",") + `]`
	id := w.deadTask(holdfast.NewTask{Type: "mail", Payload: []byte(payload)})
	path := "/tasks/" + id.String() + "/edit"
	form := w.show(path).form(t)
	review := w.step(path, form, "review", "payload", strings.Replace(form.Get("payload"), `"x"`, `"y"`, 1)).want(t, "the review", 200, "/payload/0")
	w.taken(w.step(path, review.form(t), "save"))
	if got := string(w.task(id).Payload); got != strings.Replace(payload, "x", "y", 1) {
		t.Errorf("the payload has %d bytes; want %d", len(got), len(payload))
	}
}

// editRace is a store that another person changes at a certain call.
type editRace struct {
	desk.Store
	schemas, attempts func()
}

func (r *editRace) TypeSchemas(ctx context.Context, taskType string) ([]store.TypeSchema, error) {
	if change := r.schemas; change != nil {
		r.schemas = nil
		change()
	}
	return r.Store.TypeSchemas(ctx, taskType)
}

func (r *editRace) Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error) {
	if change := r.attempts; change != nil {
		r.attempts = nil
		change()
	}
	return r.Store.Attempts(ctx, id)
}

// The version in If-Match decides, even if the task changes after the console has compared it.
func TestEditConflictAtTheAPIKeepsTheForm(t *testing.T) {
	w := newEditWorld(t)
	race := &editRace{Store: w.Store}
	w.Store = race
	id := w.deadTask(holdfast.NewTask{Type: "mail", Payload: []byte(`{"to":"a"}`)})
	path := "/tasks/" + id.String() + "/edit"
	act := func(action store.Action) {
		if _, err := w.Act(w.Context(), store.Actor{Name: "bob", Surface: store.CommandLine}, id, action); err != nil {
			t.Error(err)
		}
	}
	review := w.step(path, w.show(path).form(t), "review", "payload", `{"to":"mine"}`)
	race.schemas = func() { act(store.ActionArchive) }
	conflict := w.step(path, review.form(t), "retry").want(t, "a save", http.StatusPreconditionFailed, "it is now archived", `{"to":"mine"}`)
	if task := w.task(id); string(task.Payload) != `{"to":"a"}` || task.State != holdfast.Archived {
		t.Errorf("the task is %+v", task)
	}
	act(store.ActionRestore)
	conflict = w.step(path, conflict.form(t), "review").want(t, "the next review", http.StatusPreconditionFailed)
	race.attempts = func() { act(store.ActionCancel) }
	saved := w.taken(w.step(path, conflict.form(t), "retry"))
	saved.want(t, "a retry of another version", 200, "is edited, but not retried: ", "has changed", ">Undo<")
	if task := w.task(id); string(task.Payload) != `{"to":"mine"}` || task.State != holdfast.Cancelled {
		t.Errorf("the task is %+v", task)
	}
}

func TestEditOfATaskThatCannotBeEdited(t *testing.T) {
	w := newEditWorld(t)
	id := w.deadTask(holdfast.NewTask{Type: "mail"})
	path := "/tasks/" + id.String() + "/edit"
	review := w.step(path, w.show(path).form(t), "review", "queue", "mine")
	if _, err := w.Act(w.Context(), store.Actor{Name: "test", Surface: store.CommandLine}, id, store.ActionRetry); err != nil {
		t.Fatal(err)
	}
	worker, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "worker", Concurrency: 1}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := w.Store.Claim(w.Context(), worker, store.AnyOf("mail"), []message.Ticket{{Task: id, Attempt: w.task(id).Attempt}}, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		t.Fatal(claims, err)
	}
	w.step(path, review.form(t), "save").want(t, "a save", http.StatusPreconditionFailed, "is running", "mine", "!>Save<")
	w.show(path).want(t, "the form", 200, "is running", "!<textarea")
	w.show("/tasks/"+id.String()).want(t, "the task", 200, "!/edit")
	w.send("GET", "/tasks/9999/edit", "", nil).want(t, "no task", 404)
}

// An action whose operation takes no body keeps its reason, too.
func TestActionsKeepTheirReason(t *testing.T) {
	w := newEditWorld(t)
	id := w.deadTask(holdfast.NewTask{Type: "mail"})
	for _, action := range []string{"archiveTask", "restoreTask", "retryTask", "cancelTask"} {
		w.taken(w.send("POST", "/do/"+action, "", url.Values{"id": {id.String()}, "reason": {"because of " + action}, "to": {"/ops/tasks"}}))
		entries, err := w.Store.AuditLog(w.Context(), store.AuditFilter{Task: id, Limit: 1})
		if err != nil || entries[0].Reason != "because of "+action {
			t.Errorf("%s: the audit log has %+v, %v", action, entries, err)
		}
	}
}

func TestEditNeedsTheRole(t *testing.T) {
	w := newEditWorld(t)
	id := w.deadTask(holdfast.NewTask{Type: "mail", Payload: []byte(`{"to":"a"}`)})
	path := "/tasks/" + id.String() + "/edit"
	form := w.step(path, w.show(path).form(t), "review", "queue", "mine").form(t)
	viewer, operator := w.tokenOf("eve", store.Viewer), w.tokenOf("ann", store.Operator)
	form.Set("step", "save")
	w.send("GET", path, viewer, nil).want(t, "the form for a viewer", 403)
	w.send("POST", path, viewer, form).want(t, "a save of a viewer", 403)
	w.send("POST", path, "", form).want(t, "a save of no person", 401)
	w.send("GET", "/tasks/"+id.String(), viewer, nil).want(t, "the task for a viewer", 200, "!/edit")
	if queue := w.task(id).Queue; queue != "default" {
		t.Errorf("the queue is %s", queue)
	}
	w.send("POST", path, operator, form).want(t, "a save of an operator", http.StatusSeeOther)
	entries, err := w.Store.AuditLog(context.WithoutCancel(w.Context()), store.AuditFilter{Task: id, Limit: 1})
	if err != nil || entries[0].Name != "ann" {
		t.Errorf("the audit log has %+v, %v", entries, err)
	}
}
