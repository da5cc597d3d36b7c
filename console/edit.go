package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/internal/diff"
	"github.com/holdfastq/holdfast/internal/payload"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// edit is the view of the form that edits a task. It has two steps: the review shows the differences and changes
// nothing, and only what was reviewed can be saved.
type edit struct {
	Task      holdfast.Task
	Tag       string // the version that the form is about
	Seen      string // the document of that version, to see later what another person has changed
	Fields    editFields
	Rows      int    // of the payload
	Closed    string // why the state does not allow an edit
	HasTime   bool   // a ready task has a time to run
	Retryable bool

	Problems []editProblem
	Hint     string
	Misfits  bool             // the payload does not fit its type
	Conflict string           // what has changed since the person opened the form
	Theirs   diff.Differences // the changes that Conflict names
	Changes  diff.Differences // the changes that the form makes
	Review   string           // names what was reviewed; "" if it cannot be saved
	Stale    bool             // the form has other values than those that were reviewed

	to change.Document
}

// editFields are the texts of the form.
type editFields struct {
	Payload, Queue, Priority, MaxAttempts, RunAt, Tags, Reason string
	Skip                                                       bool // the payload need not fit its type
}

// editProblem is an error in the form.
type editProblem struct{ Path, Text string }

// Priorities returns the names of all priorities, the lowest first.
func (*edit) Priorities() []string {
	return surface.Each(holdfast.Priorities(), holdfast.Priority.String)
}

const (
	maxMisfits = 50 // on a page
	maxRows    = 40
)

// edit loads the form with the stored values.
func (c *Console) edit(ctx context.Context, r *request) (any, error) {
	v, err := c.openEdit(ctx, r)
	if err == nil {
		v.fill(fieldsOf(change.DocumentOf(v.Task)))
	}
	return v, err
}

// openEdit reads the task that a request is about.
func (c *Console) openEdit(ctx context.Context, r *request) (*edit, error) {
	id, err := holdfast.ParseTaskID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	task, err := c.b.Store.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	v := &edit{
		Task: task, Tag: api.TaskTag(task), Seen: string(encodeDocument(change.DocumentOf(task))), HasTime: task.State == holdfast.Ready,
		Retryable: slices.Contains(change.Allowed(store.ActionRetry), task.State),
	}
	if allowed := change.Allowed(store.ActionEdit); !slices.Contains(allowed, task.State) {
		v.Closed = fmt.Sprintf("Task %s is %s. Only a task that is ready, dead, cancelled or archived can be edited.", id, task.State)
	}
	return v, nil
}

// fill sets the texts of the form.
func (v *edit) fill(f editFields) {
	v.Fields = f
	v.Rows = min(strings.Count(f.Payload, "\n")+2, maxRows)
}

// fieldsOf returns a document as texts that a person can edit.
func fieldsOf(d change.Document) editFields {
	f := editFields{
		Payload: indented(d.Payload), Queue: d.Queue, Priority: d.Priority.String(), RunAt: d.RunAt.UTC().Format(time.RFC3339Nano),
		Tags: strings.Join(d.Tags, ", "),
	}
	if d.MaxAttempts > 0 {
		f.MaxAttempts = strconv.Itoa(d.MaxAttempts)
	}
	return f
}

// indented returns a document with a line for each value. It keeps the digits of numbers and the order of members. If
// the document would become much longer, as it does if it is deep, indented returns the document itself.
func indented(document json.RawMessage) string {
	var text bytes.Buffer
	if holdfast.JSONDepth(document) > 100 || json.Indent(&text, document, "", "  ") != nil {
		return string(document)
	}
	return text.String()
}

// typed returns the texts of a form. A field that the form does not have keeps its present value.
func typed(form url.Values, present editFields) editFields {
	f := present
	for name, field := range map[string]*string{
		"payload": &f.Payload, "queue": &f.Queue, "priority": &f.Priority, "max_attempts": &f.MaxAttempts, "run_at": &f.RunAt,
		"tags": &f.Tags, "reason": &f.Reason,
	} {
		if form.Has(name) {
			*field = strings.TrimSpace(strings.ReplaceAll(form.Get(name), "\r\n", "\n")) // browsers send line ends as CRLF
		}
	}
	f.Skip = form.Get("skip") != ""
	return f
}

// rebase returns the texts with the present values of the fields that the person has left as they were.
func (f editFields) rebase(was, is editFields) editFields {
	for _, field := range []struct {
		typed   *string
		was, is string
	}{
		{&f.Payload, was.Payload, is.Payload}, {&f.Queue, was.Queue, is.Queue}, {&f.Priority, was.Priority, is.Priority},
		{&f.MaxAttempts, was.MaxAttempts, is.MaxAttempts}, {&f.RunAt, was.RunAt, is.RunAt}, {&f.Tags, was.Tags, is.Tags},
	} {
		if *field.typed == strings.TrimSpace(field.was) {
			*field.typed = field.is
		}
	}
	return f
}

// reviewForm compares a form with the task as it is now, and checks it. It changes nothing.
func (c *Console) reviewForm(ctx context.Context, r *request, form url.Values) (*edit, error) {
	v, err := c.openEdit(ctx, r)
	if err != nil {
		return nil, err
	}
	now := change.DocumentOf(v.Task)
	present := fieldsOf(now)
	fields := typed(form, present)
	if tag := form.Get("tag"); tag != v.Tag {
		v.Conflict = fmt.Sprintf("The task has changed since you opened the form: it is now %s at attempt %d. Review your edit again.", v.Task.State, v.Task.Attempt)
		if seen, err := change.ParseDocument([]byte(form.Get("seen"))); err == nil {
			v.Theirs = diffDocuments(seen, now)
			fields = fields.rebase(fieldsOf(seen), present)
		}
	}
	v.fill(fields)
	v.read(now)
	if len(v.Problems) > 0 || v.Closed != "" {
		return v, nil
	}
	if err := c.checkEdit(ctx, v); err != nil {
		return nil, err
	}
	v.Changes = diffDocuments(now, v.to)
	if len(v.Problems) == 0 {
		v.Review = tagOf(append(v.patch(), v.Tag+strconv.FormatBool(fields.Skip)...))
	}
	return v, nil
}

// read sets the document that the texts of the form mean, or the problems.
func (v *edit) read(now change.Document) {
	problem := func(path, format string, args ...any) {
		v.Problems = append(v.Problems, editProblem{path, fmt.Sprintf(format, args...)})
	}
	f := v.Fields
	v.to = change.Document{Payload: diff.Compact(json.RawMessage(f.Payload)), Queue: f.Queue, RunAt: now.RunAt, Tags: []string{}}
	if at := whereInvalid(f.Payload); at != "" {
		problem("/payload", "%s", at)
	}
	var err error
	if v.to.Priority, err = holdfast.ParsePriority(f.Priority); err != nil {
		problem("/priority", "%q is not a priority", f.Priority)
	}
	if f.MaxAttempts != "" {
		if v.to.MaxAttempts, err = strconv.Atoi(f.MaxAttempts); err != nil || v.to.MaxAttempts < 1 {
			problem("/max_attempts", "%q is not a number from 1 on; leave it empty for the setting of the type", f.MaxAttempts)
		}
	}
	if v.HasTime {
		if v.to.RunAt, err = time.Parse(time.RFC3339, f.RunAt); err != nil {
			problem("/run_at", "%q is not a time like 2030-01-31T09:00:00Z", f.RunAt)
		}
	}
	for _, tag := range strings.FieldsFunc(f.Tags, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		if err := holdfast.CheckTag(tag); err != nil {
			problem("/tags", "%s", strings.TrimPrefix(err.Error(), holdfast.ErrInvalid.Error()+": "))
		}
		v.to.Tags = append(v.to.Tags, tag)
	}
}

// whereInvalid returns the place and the kind of the first error in a JSON text, and "" if the text is JSON.
func whereInvalid(text string) string {
	if text == "" {
		return "it is empty; for an empty value use null"
	}
	var document json.RawMessage
	err := json.Unmarshal([]byte(text), &document)
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	switch {
	case err == nil:
		return ""
	case !ok:
		return err.Error()
	}
	before := text[:max(0, min(int(syntax.Offset)-1, len(text)))]
	line := strings.Count(before, "\n") + 1
	column := len([]rune(before[strings.LastIndexByte(before, '\n')+1:])) + 1
	return fmt.Sprintf("line %d, character %d: %s", line, column, syntax)
}

// checkEdit adds what keeps the document from being stored to the problems of a view.
func (c *Console) checkEdit(ctx context.Context, v *edit) error {
	validation := change.Validation(v.Fields.Skip)
	if !bytes.Equal(diff.Compact(v.Task.Payload), v.to.Payload) && !v.Fields.Skip {
		schemas, err := c.b.Store.TypeSchemas(ctx, v.Task.Type)
		if err != nil {
			return err
		}
		for _, s := range schemas {
			found, err := payload.Misfits(s.Schema, v.to.Payload, maxMisfits)
			if err != nil {
				return err
			}
			for _, m := range found {
				v.Problems = append(v.Problems, editProblem{"/payload" + m.Path, m.Reason})
			}
		}
		if v.Misfits = len(v.Problems) > 0; v.Misfits {
			validation = change.SkipValidation // for the problems of the other values
		}
	}
	_, err := c.b.PlanEdit(ctx, v.Task, v.to, validation)
	if err != nil && !errors.Is(err, holdfast.ErrInvalid) && !errors.Is(err, holdfast.ErrConflict) {
		return err
	}
	if err != nil {
		p := c.o.API.Problem(err)
		v.Problems = append(v.Problems, editProblem{"", p.Detail})
		v.Hint = p.Hint
	}
	return nil
}

// patch returns the JSON Patch from the task to the document.
func (v *edit) patch() []byte {
	now := change.DocumentOf(v.Task)
	steps := []surface.PatchStep{}
	replace := func(differs bool, path string, value any) {
		if differs {
			steps = append(steps, surface.PatchStep{Op: "replace", Path: path, Value: value})
		}
	}
	replace(!bytes.Equal(diff.Compact(now.Payload), v.to.Payload), "/payload", v.to.Payload)
	replace(now.Queue != v.to.Queue, "/queue", v.to.Queue)
	replace(now.Priority != v.to.Priority, "/priority", v.to.Priority)
	replace(now.MaxAttempts != v.to.MaxAttempts, "/max_attempts", v.to.MaxAttempts)
	replace(!now.RunAt.Equal(v.to.RunAt), "/run_at", v.to.RunAt)
	replace(!slices.Equal(now.Tags, v.to.Tags), "/tags", v.to.Tags)
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // it would change the characters of the payload
	if err := encoder.Encode(steps); err != nil {
		panic(err) // the values come from texts that were read
	}
	return text.Bytes()
}

// reviewEdit answers the form of an edit: the review, or a save of what was reviewed.
func (c *Console) reviewEdit(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	req, form := c.request(r.WithContext(ctx)), r.PostForm
	v, err := c.reviewForm(ctx, req, form)
	if err != nil {
		c.fail(w, r, 0, err)
		return
	}
	step := form.Get("step")
	status := http.StatusOK
	switch {
	case v.Conflict != "":
		status = http.StatusPreconditionFailed
	case v.Closed != "":
		status = http.StatusConflict
	case len(v.Problems) > 0:
		status = http.StatusUnprocessableEntity
	case step != "save" && step != "retry":
	case form.Get("reviewed") != v.Review:
		v.Stale = true
	default:
		if status, v = c.save(w, req, v, step == "retry"); v == nil {
			return
		}
	}
	c.render(w, r, status, "edit", frame{Title: "Edit task", Nav: "tasks", request: req, View: v})
}

// save makes a reviewed edit by the operation of the HTTP API, and after it a retry if retry is set. If the API refuses
// the edit, save returns the status, and the form with the reason. Otherwise it answers the request and returns no
// form.
func (c *Console) save(w http.ResponseWriter, r *request, v *edit, retry bool) (status int, refused *edit) {
	id := v.Task.ID.String()
	query := url.Values{}
	if v.Fields.Reason != "" {
		query.Set("reason", v.Fields.Reason)
	}
	if v.Fields.Skip {
		query.Set("skip_validation", "true")
	}
	saved, err := c.serve(r.Request, "editTask", url.Values{"id": {id}, "tag": {v.Tag}}, query, "application/json-patch+json", v.patch())
	if err != nil {
		c.fail(w, r.Request, 0, err)
		return 0, nil
	}
	if saved.status >= http.StatusMultipleChoices {
		failed := problemIn(saved.status, saved.body.Bytes())
		if failed.Status == http.StatusPreconditionFailed { // another change came first
			if again, err := c.reviewForm(r.Context(), r, r.PostForm); err == nil && again.Conflict != "" {
				return failed.Status, again
			}
		}
		v.Problems, v.Hint, v.Review = append(v.Problems, editProblem{"", failed.Detail}), failed.Hint, ""
		return failed.Status, v
	}
	n := notice{Text: "Task " + id + " is edited", Undo: "undoTask", ID: id}
	if retry {
		retried, answer, err := c.call(r.Request, "retryTask", actions["retryTask"], url.Values{"id": {id}, "tag": {saved.header.Get("ETag")}, "reason": {v.Fields.Reason}})
		switch {
		case err != nil:
			n.Text, n.Failed = n.Text+", but not retried: "+err.Error(), true
		case retried >= http.StatusMultipleChoices:
			n.Text, n.Failed = n.Text+", but not retried: "+problemIn(retried, answer).Detail, true
		default:
			n.Text += " and retried; undo takes back the retry first"
		}
	}
	c.setNotice(w, n)
	http.Redirect(w, r.Request, c.o.Prefix+"/tasks/"+id, http.StatusSeeOther)
	return 0, nil
}
