package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfastq/holdfast/api"
	plans "github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// action is a form of the console. Its name is the operation of the HTTP API that makes the change.
type action struct {
	// body returns the body of the request; nil means none. Without a body, the reason goes into the query.
	body func(url.Values) (any, error)
	// done returns what the next page says. answer is the body of the answer.
	done func(form url.Values, answer json.RawMessage) notice
}

// actions has all forms. To add one, add a line here, and a form with the action do/NAME in a template. The fields of
// the form that the path of the API names, such as id, go there. The field tag is the version that the person has seen.
var actions = map[string]action{
	"retryTask":   {done: ofTask("is retried", "undoTask")},
	"cancelTask":  {done: ofTask("is cancelled", "")},
	"archiveTask": {done: ofTask("is archived", "undoTask")},
	"restoreTask": {done: ofTask("is dead again", "")},
	"undoTask":    {done: ofTask("is as it was before", "")},

	"changeDeadGroup": {body: groupChange, done: said("The group is changed")},
	"startOperation":  {body: newOperation, done: startedOperation},
	"pauseOperation":  {done: said("The operation pauses")},
	"resumeOperation": {done: said("The operation goes on")},
	"cancelOperation": {done: said("The operation ends")},

	"drainWorker":    {done: said("The worker finishes its tasks, and stops")},
	"openGate":       {done: said("The gate is open")},
	"closeGate":      {body: newPause, done: said("The tasks are paused")},
	"setLimit":       {body: newLimit, done: said("The limit is set")},
	"unsetLimit":     {done: said("The limit is removed")},
	"runSchedule":    {done: storedTask},
	"pauseSchedule":  {done: said("The schedule is paused")},
	"resumeSchedule": {done: said("The schedule goes on")},
	"deleteSchedule": {done: said("The schedule is deleted; the tasks that it has stored stay")},
	"setSource":      {body: sourceRetries, done: said("The source is changed; the slices that begin later have the new settings")},
	"deleteSource":   {done: said("The source is deleted; the tasks that it has stored stay")},
	"deleteShardJob": {done: said("The shard job is deleted; passes that run end within about a second")},
	"moveShard":      {body: shardMove, done: said("The shard is moved; passes that run end within about a second")},
	"drainZone":      {body: textFields("zone", "reason"), done: said("The zone is drained; passes that run end within about a second")},

	"backfillSchedule": {body: newBackfill, done: startedBackfill("/schedules/")},
	"backfillSource":   {body: newBackfill, done: startedBackfill("/sources/")},

	"pauseBatch":  {done: said("The batch is paused: no more subtasks are stored, and those that are stored run")},
	"resumeBatch": {done: said("The batch goes on")},
	"cancelBatch": {done: said("The batch ends, and an operation cancels its tasks")},
	"retryBatch":  {done: said("An operation retries the dead tasks")},
	"revokeToken": {done: said("The token is revoked")},
	"undoSetting": {body: undoneSetting, done: said("The last change of the setting is taken back")},
}

func said(text string) func(url.Values, json.RawMessage) notice {
	return func(url.Values, json.RawMessage) notice { return notice{Text: text} }
}

func ofTask(what, undo string) func(url.Values, json.RawMessage) notice {
	return func(form url.Values, _ json.RawMessage) notice {
		id := form.Get("id")
		return notice{Text: "Task " + id + " " + what, Link: "/tasks/" + url.PathEscape(id), Undo: undo, ID: id}
	}
}

// groupChange is the body of a change of a group of dead tasks. A field that the form does not have stays as it is.
func groupChange(form url.Values) (any, error) {
	body := make(map[string]any)
	for _, name := range []string{"note", "owner", "state"} {
		if form.Has(name) {
			body[name] = form.Get(name)
		}
	}
	if reason := form.Get("reason"); reason != "" {
		body["reason"] = reason
	}
	return body, nil
}

// textFields returns the body with the fields of a form that are not empty.
func textFields(names ...string) func(url.Values) (any, error) {
	return func(form url.Values) (any, error) {
		body := make(map[string]any)
		for _, name := range names {
			if text := strings.TrimSpace(form.Get(name)); text != "" {
				body[name] = text
			}
		}
		return body, nil
	}
}

// newPause is the body of a pause.
func newPause(form url.Values) (any, error) {
	fields, err := textFields("queue", "type", "key", "target", "for", "reason")(form)
	fields.(map[string]any)["kind"] = string(store.GatePause)
	return fields, err
}

// newLimit is the body of a limit.
func newLimit(form url.Values) (any, error) {
	fields, err := textFields("queue", "type", "key", "rate", "reason")(form)
	body := fields.(map[string]any)
	if text := strings.TrimSpace(form.Get("concurrency")); text != "" {
		if body["concurrency"], err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("concurrency: %q is not a number", text)
		}
	}
	return body, err
}

// sourceRetries is the body of a change of the timeout and the retries of a source. An empty field removes the setting, so
// that the source default or the type decides.
func sourceRetries(form url.Values) (any, error) {
	body := make(map[string]any)
	for _, f := range retryFields(plans.Source{}) {
		text := strings.TrimSpace(form.Get(f.Name))
		switch {
		case text == "" && form.Has(f.Name):
			body[f.Name] = nil
		case text != "" && f.Kind == "number":
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is not a number", f.Name, text)
			}
			body[f.Name] = n
		case text != "":
			body[f.Name] = text
		}
	}
	if reason := form.Get("reason"); reason != "" {
		body["reason"] = reason
	}
	return body, nil
}

// newOperation is the body of a new operation. A person who purges tasks types how many the plan has shown. The limit is
// that of the plan, so that the operation does not change more tasks than the person has read.
func newOperation(form url.Values) (any, error) {
	total := form.Get("total")
	switch {
	case form.Get("action") == string(store.ActionPurge) && (total == "" || strings.NewReplacer(",", "", " ", "").Replace(form.Get("typed")) != total):
		return nil, fmt.Errorf("to purge the tasks, type how many the plan shows: %s", total)
	case form.Has("planned_limit") && strings.TrimSpace(form.Get("limit")) != form.Get("planned_limit"):
		return nil, errors.New("the limit has changed since the plan; show the plan again")
	}
	return operationBody(form)
}

// operationBody is the body of a new operation, without a check of what a person confirms.
func operationBody(form url.Values) (map[string]any, error) {
	body := map[string]any{"action": form.Get("action"), "query": form.Get("query"), "reason": form.Get("reason")}
	for _, name := range []string{"rate", "limit"} {
		if text := strings.TrimSpace(form.Get(name)); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is not a number", name, text)
			}
			body[name] = n
		}
	}
	if text := strings.TrimSpace(form.Get("stop_above")); text != "" {
		share, err := plans.ParsePercent(strings.TrimSpace(strings.TrimSuffix(text, "%")))
		if err != nil {
			return nil, fmt.Errorf("stop above: %w", err)
		}
		body["stop_above"] = share / 100
	}
	if text := strings.TrimSpace(form.Get("ramp")); text != "" {
		var ramp []int
		for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
			n, err := strconv.Atoi(strings.TrimSuffix(part, "%"))
			if err != nil {
				return nil, fmt.Errorf("ramp: %q is not a number", part)
			}
			ramp = append(ramp, n)
		}
		body["ramp"] = ramp
	}
	return body, nil
}

func startedOperation(_ url.Values, answer json.RawMessage) notice {
	var started struct {
		ID json.Number `json:"id"`
	}
	_ = json.Unmarshal(answer, &started) // the page of operations shows it, too
	return notice{Text: "Operation " + started.ID.String() + " has started", Link: "/operations/" + started.ID.String()}
}

// storedTask is the notice after a schedule has stored a task.
func storedTask(_ url.Values, answer json.RawMessage) notice {
	var run struct{ Task string }
	if json.Unmarshal(answer, &run) != nil || run.Task == "" {
		return notice{Text: "A task of the schedule is stored"}
	}
	return notice{Text: "Task " + run.Task + " of the schedule is stored", Link: "/tasks/" + url.PathEscape(run.Task)}
}

// newBackfill is the body of a backfill. The fields of its range are not those of the API, because the field to is the
// page that follows.
func newBackfill(form url.Values) (any, error) {
	body := map[string]any{"from": strings.TrimSpace(form.Get("begin")), "to": strings.TrimSpace(form.Get("end"))}
	if form.Get("again") != "" {
		body["again"] = true
	}
	if reason := form.Get("reason"); reason != "" {
		body["reason"] = reason
	}
	if text := strings.TrimSpace(form.Get("in_flight")); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("in flight: %q is not a number", text)
		}
		body["in_flight"] = n
	}
	return body, nil
}

// startedBackfill returns the notice after the start of a backfill, whose page is below path.
func startedBackfill(path string) func(url.Values, json.RawMessage) notice {
	return func(_ url.Values, answer json.RawMessage) notice {
		var started struct{ Name string }
		_ = json.Unmarshal(answer, &started) // the list shows it, too
		return notice{Text: "The backfill " + started.Name + " has started", Link: path + url.PathEscape(started.Name)}
	}
}

// shardMove is the body of a move of a shard.
func shardMove(form url.Values) (any, error) {
	body := map[string]any{"shard": strings.TrimSpace(form.Get("shard")), "to": strings.TrimSpace(form.Get("zone"))}
	if reason := form.Get("reason"); reason != "" {
		body["reason"] = reason
	}
	return body, nil
}

// do makes a change: it makes the request of the HTTP API from the form, and serves it with the caller of the session.
func (c *Console) do(w http.ResponseWriter, r *http.Request) {
	name, form := r.PathValue("name"), r.PostForm
	act, known := actions[name]
	if !known {
		c.fail(w, r, http.StatusNotFound, fmt.Errorf("the console has no action %s", name))
		return
	}
	status, answer, err := c.call(r, name, act, form)
	if err != nil {
		c.fail(w, r, http.StatusBadRequest, err)
		return
	}
	if status >= http.StatusMultipleChoices {
		failed := problemIn(status, answer)
		c.render(w, r, status, "problem", frame{Title: failed.Word, View: failed})
		return
	}
	n := act.done(form, answer)
	if n.Link != "" {
		n.Link = c.o.Prefix + n.Link
	}
	c.setNotice(w, n)
	http.Redirect(w, r, c.local(form.Get("to")), http.StatusSeeOther)
}

// problemIn returns the problem in an answer of the HTTP API.
func problemIn(status int, answer []byte) problem {
	failed := problem{Status: status, Word: http.StatusText(status)}
	var p api.Problem
	if json.Unmarshal(answer, &p) == nil {
		failed.Detail, failed.Hint = p.Detail, p.Hint
	}
	return failed
}

// call serves the request of the HTTP API that a form means.
func (c *Console) call(r *http.Request, name string, act action, form url.Values) (status int, answer []byte, err error) {
	var text []byte
	query := make(url.Values)
	if reason := form.Get("reason"); act.body == nil && reason != "" {
		query.Set("reason", reason)
	}
	if act.body != nil {
		body, err := act.body(form)
		if err != nil {
			return 0, nil, err
		}
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	rec, err := c.serve(r, name, form, query, "application/json", text)
	if err != nil {
		return 0, nil, err
	}
	return rec.status, rec.body.Bytes(), nil
}

// serve serves a request of the HTTP API with the caller of the session, and returns the answer. form has the parameters
// of the path, and may have the field tag.
func (c *Console) serve(r *http.Request, name string, form, query url.Values, kind string, text []byte) (*recorder, error) {
	op := c.changes[name]
	path := op.Path
	for _, field := range pathFields(op.Path) {
		value := form.Get(field)
		if value == "" {
			return nil, fmt.Errorf("the form lacks the field %s", field)
		}
		path = strings.Replace(path, "{"+field+"}", url.PathEscape(value), 1)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	call, err := http.NewRequestWithContext(r.Context(), op.Method, path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	call.Header.Set("Content-Type", kind)
	if tag := form.Get("tag"); tag != "" {
		call.Header.Set("If-Match", tag)
	}
	rec := &recorder{header: make(http.Header)}
	c.o.API.ServeAs(rec, call, callerOf(r), store.Console)
	return rec, nil
}

// pathFields returns the names of the parameters of a path.
func pathFields(path string) (names []string) {
	for part := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(text []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(text)
}
