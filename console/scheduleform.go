package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/internal/diff"
	plans "github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// scheduleForm is the view of the form that creates or changes a schedule. It has two steps: the first one is a dry run
// of the HTTP API, which shows the next times, and only what was shown can be saved.
type scheduleForm struct {
	Now      time.Time
	New      bool
	Name     string // of the schedule that the form changes
	Tag      string // the version that the form is about
	Seen     string // the texts of that version, to see later what another person has changed
	Sections []formSection
	Reason   string

	Conflict string           // what has changed since the person opened the form
	Theirs   diff.Differences // the changes that Conflict names
	Closed   string           // why the schedule cannot be changed
	Problem  string           // an error that is about no single field
	Hint     string
	Changes  diff.Differences // the changes that the form makes; for an edit
	Moments  []time.Time      // the next times, if the schedule is saved
	Paused   bool
	Review   string // names what was shown; "" if it cannot be saved
	Stale    bool   // the form has other values than those that were shown
}

type formSection struct {
	Title, Hint string
	Fields      []formField
}

// formField is a field of a form. Its name is the member of the request of the HTTP API.
type formField struct {
	Name, Label, Example string
	Kind                 string   // text, number, list, json or check
	Options              []string // of a selection
	task                 bool     // a member of the task
	removable            bool     // an edit removes the value if the field is empty
	create               bool     // only a new schedule has it

	Value   string
	Problem string
}

// Rows returns the height of a field with a document.
func (f formField) Rows() int { return min(max(strings.Count(f.Value, "\n")+2, 4), maxRows) }

// shownMoments is the number of times that the form shows before a schedule is saved.
const shownMoments = 5

// The hints of the sections.
const (
	hintWhen = "Give a cron expression or an interval. An expression has five fields: minute, hour, day of month, month and day of " +
		"week; with six, the first one is the second. A time without a zone is local to the server."
	hintLate = "A time is missed if no janitor runs it within a minute. Of the missed times run the last one, none (skip) or all, " +
		"but none that is older than the catch-up window. While a task of the schedule is open, the next time is skipped, or one " +
		"time waits (queue), or up to N tasks run."
)

// scheduleSections returns the empty form.
func scheduleSections() []formSection {
	return []formSection{
		{"When", hintWhen, []formField{
			{Name: "name", Label: "Name", Example: "nightly", create: true},
			{Name: "cron", Label: "Cron expression", Example: "30 2 * * *"},
			{Name: "timezone", Label: "Time zone of the expression", Example: "UTC", removable: true},
			{Name: "every", Label: "Or an interval", Example: "15m"},
			{Name: "start", Label: "Not before", Example: "2030-01-31T09:00:00Z", removable: true},
			{Name: "end", Label: "Not after", Example: "2030-12-31T09:00:00Z", removable: true},
			{Name: "run_at_start", Label: "Also store a task at once", Kind: "check", create: true},
		}},
		{"Task", "", []formField{
			{Name: "type", Label: "Type", task: true},
			{Name: "queue", Label: "Queue", Example: "queue of the type", task: true, removable: true},
			{Name: "priority", Label: "Priority", Options: surface.Each(holdfast.Priorities(), holdfast.Priority.String), task: true},
			{Name: "max_attempts", Label: "Max attempts", Example: "setting of the type", Kind: "number", task: true, removable: true},
			{Name: "key", Label: "Key", Example: "none", task: true, removable: true},
			{Name: "topic", Label: "Topic", Example: "none", task: true, removable: true},
			{Name: "tags", Label: "Tags", Example: "none", Kind: "list", task: true},
			{Name: "ordered", Label: "In order of the key", Kind: "check", task: true},
			{Name: "payload", Label: "Payload", Example: "null", Kind: "json", task: true},
		}},
		{"If it is late or busy", hintLate, []formField{
			{Name: "missed", Label: "Missed times", Options: []string{"one", "skip", "all"}},
			{Name: "catch_up", Label: "Catch-up window", Example: "1h"},
			{Name: "overlap", Label: "Overlap: skip, queue or N", Example: "skip"},
			{Name: "jitter", Label: "Jitter: store it up to so much later", Example: "none", removable: true},
			{Name: "pause_after", Label: "Pause after N dead tasks in a row", Example: "never", Kind: "number", removable: true},
			{Name: "note", Label: "Note", Example: "none", removable: true},
		}},
	}
}

// fields calls f with each field.
func (v *scheduleForm) fields(f func(*formField)) {
	for i := range v.Sections {
		for j := range v.Sections[i].Fields {
			f(&v.Sections[i].Fields[j])
		}
	}
}

// texts returns the texts of the fields, by name.
func (v *scheduleForm) texts() map[string]string {
	texts := make(map[string]string)
	v.fields(func(f *formField) { texts[f.Name] = f.Value })
	return texts
}

// fill sets the texts of the fields.
func (v *scheduleForm) fill(texts map[string]string) {
	v.fields(func(f *formField) { f.Value = texts[f.Name] })
}

// scheduleTexts returns a schedule as texts that a person can edit.
func scheduleTexts(s surface.Schedule) map[string]string {
	interval := func(d plans.Duration) string {
		if d == 0 {
			return ""
		}
		text := time.Duration(d).String()
		if cut, ok := strings.CutSuffix(text, "m0s"); ok {
			text = cut + "m"
		}
		if cut, ok := strings.CutSuffix(text, "h0m"); ok {
			text = cut + "h"
		}
		return text
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	positive := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	check := func(set bool) string { return map[bool]string{true: "1"}[set] }
	texts := map[string]string{
		"cron": s.Cron, "timezone": s.Timezone, "every": interval(s.Every), "start": at(s.Start), "end": at(s.End), "missed": string(s.Missed),
		"catch_up": cmp.Or(interval(s.CatchUp), "0s"), "overlap": s.Overlap.String(), "jitter": interval(s.Jitter), "pause_after": positive(s.PauseAfter),
		"note": s.Note, "type": s.Task.Type, "queue": s.Task.Queue, "priority": s.Task.Priority.String(), "max_attempts": positive(s.Task.MaxAttempts),
		"key": s.Task.Key, "topic": s.Task.Topic, "tags": strings.Join(s.Task.Tags, ", "), "ordered": check(s.Task.Ordered),
	}
	if len(s.Task.Payload) > 0 {
		texts["payload"] = string(s.Task.Payload)
		if bytes.Equal(diff.Compact(s.Task.Payload), s.Task.Payload) { // a person has not formatted it
			texts["payload"] = indented(s.Task.Payload)
		}
	}
	return texts
}

// newSchedule loads the empty form.
func (c *Console) newSchedule(ctx context.Context, r *request) (any, error) {
	v, err := c.openScheduleForm(ctx, r)
	if err == nil {
		v.fill(map[string]string{"priority": holdfast.PriorityNormal.String()})
	}
	return v, err
}

// editSchedule loads the form with the stored values.
func (c *Console) editSchedule(ctx context.Context, r *request) (any, error) {
	v, err := c.openScheduleForm(ctx, r)
	if err == nil {
		v.fill(v.seen())
	}
	return v, err
}

// seen returns the texts of the version that the form is about.
func (v *scheduleForm) seen() (texts map[string]string) {
	_ = json.Unmarshal([]byte(v.Seen), &texts) // a person cannot break it; a forged form has no texts
	return texts
}

// openScheduleForm reads the schedule that a request is about, if it names one.
func (c *Console) openScheduleForm(ctx context.Context, r *request) (*scheduleForm, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	v := &scheduleForm{Now: now, Name: r.PathValue("name"), Sections: scheduleSections()}
	if v.New = v.Name == ""; v.New {
		return v, nil
	}
	for i := range v.Sections {
		v.Sections[i].Fields = slices.DeleteFunc(v.Sections[i].Fields, func(f formField) bool { return f.create })
	}
	if err := plans.CheckName(v.Name); err != nil {
		return nil, err
	}
	s, err := c.b.Schedule(ctx, v.Name)
	if err != nil {
		return nil, err
	}
	texts, err := json.Marshal(scheduleTexts(surface.ScheduleOf(s)))
	if err != nil {
		return nil, err
	}
	v.Tag, v.Seen, v.Paused = api.ScheduleTag(s), string(texts), s.State == store.PlanPaused
	if s.Spec.BackfillOf != "" {
		v.Closed = v.Name + " is a backfill, which cannot be changed. Delete it, and start another one."
	}
	return v, nil
}

// typeIn sets the texts that a person has typed. If the schedule has changed since the person opened the form, the
// fields that the person has left as they were get the present values.
func (v *scheduleForm) typeIn(form url.Values) {
	texts := make(map[string]string)
	v.fields(func(f *formField) {
		texts[f.Name] = strings.TrimSpace(strings.ReplaceAll(form.Get(f.Name), "\r\n", "\n"))
	})
	v.Reason = strings.TrimSpace(form.Get("reason"))
	if tag := form.Get("tag"); !v.New && tag != v.Tag {
		v.Conflict = "The schedule has changed since you opened the form. Show the next times again."
		was, is := (&scheduleForm{Seen: form.Get("seen")}).seen(), v.seen()
		v.Theirs = v.diff(was, is)
		for name, text := range texts {
			if text == strings.TrimSpace(was[name]) {
				texts[name] = is[name]
			}
		}
	}
	v.fill(texts)
}

// diff returns the differences between the texts of two versions.
func (v *scheduleForm) diff(was, is map[string]string) (d diff.Differences) {
	v.fields(func(f *formField) {
		if a, b := strings.TrimSpace(was[f.Name]), strings.TrimSpace(is[f.Name]); a != b {
			kind := "changed"
			switch {
			case a == "":
				kind = "added"
			case b == "":
				kind = "removed"
			}
			d.List = append(d.List, diff.Difference{Path: f.Name, Kind: kind, Was: diff.Shortened(a), Is: diff.Shortened(b)})
		}
	})
	return d
}

// body returns the request that the texts mean, without the name of a schedule that is changed. It sets the problems of
// the fields.
func (v *scheduleForm) body() (body map[string]any, fine bool) {
	body, fine = make(map[string]any), true
	task, was, texts := make(map[string]any), v.seen(), v.texts()
	v.fields(func(f *formField) {
		f.Problem = ""
		if f.Value == strings.TrimSpace(was[f.Name]) {
			return
		}
		value, problem := f.read()
		if f.Name == "every" && f.Value != "" && texts["cron"] != "" {
			problem = "give a cron expression or an interval, and not both"
		}
		if f.Problem = problem; problem != "" {
			fine = false
			return
		}
		switch {
		case f.Value == "" && (f.Name == "cron" || f.Name == "every"): // the other one replaces it
		case f.task:
			task[f.Name] = value
		default:
			body[f.Name] = value
		}
	})
	if len(task) > 0 || v.New {
		body["task"] = task
	}
	if v.Reason != "" {
		body["reason"] = v.Reason
	}
	if v.New && texts["cron"] == "" && texts["every"] == "" {
		fine = false
		v.about("cron", "give a cron expression or an interval")
	}
	for _, name := range []string{"name", "type"} {
		if text, has := texts[name]; has && text == "" {
			fine = false
			v.about(name, "it is empty")
		}
	}
	return body, fine
}

// about sets the problem of a field.
func (v *scheduleForm) about(name, problem string) {
	v.fields(func(f *formField) {
		if f.Name == name && f.Problem == "" {
			f.Problem = problem
		}
	})
}

// read returns the value of a field, or its problem. It is only called if the text is not the stored one.
func (f *formField) read() (value any, problem string) {
	switch {
	case f.Kind == "check":
		return f.Value != "", ""
	case f.Kind == "list":
		list := strings.FieldsFunc(f.Value, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
		return append([]string{}, list...), ""
	case f.Kind == "json" && f.Value == "":
		return json.RawMessage("null"), ""
	case f.Kind == "json":
		return json.RawMessage(f.Value), whereInvalid(f.Value)
	case f.Value == "" && f.removable:
		return nil, ""
	case f.Value == "" && f.Name != "cron" && f.Name != "every":
		return nil, "it is empty"
	case f.Options != nil && !slices.Contains(f.Options, f.Value):
		return nil, fmt.Sprintf("%.40q is not one of %s", f.Value, strings.Join(f.Options, ", "))
	case f.Kind == "number":
		n, err := strconv.Atoi(f.Value)
		if err != nil || n < 1 {
			return nil, fmt.Sprintf("%.40q is not a number from 1 on", f.Value)
		}
		return n, ""
	}
	return f.Value, ""
}

// formMentions says which field a problem of the HTTP API is about: the first one whose text the detail begins with.
var formMentions = []struct{ text, field string }{
	{"there is already", "name"}, {"the name", "name"}, {"cron expression", "cron"}, {"unknown time zone", "timezone"}, {"the time zone", "timezone"},
	{"an interval has no timezone", "timezone"}, {"give a cron", "cron"}, {"the interval", "every"}, {"the catch-up", "catch_up"}, {"the jitter", "jitter"},
	{"pause after", "pause_after"}, {"the note", "note"}, {"the start", "start"}, {"the type", "type"}, {"task type", "type"}, {"the queue", "queue"},
	{"queue", "queue"}, {"the key", "key"}, {"the topic", "topic"}, {"tag", "tags"}, {"the tag", "tags"}, {"the payload", "payload"}, {"payload", "payload"},
	{"invalid payload", "payload"}, {"type", "type"},
}

// refuse shows a problem of the HTTP API, at its field if the detail says which one.
func (v *scheduleForm) refuse(p problem) {
	v.Review, v.Moments, v.Hint = "", nil, p.Hint
	named := ""
	v.fields(func(f *formField) {
		if named == "" && strings.HasPrefix(p.Detail, f.Name+" ") {
			named = f.Name
		}
	})
	for _, m := range formMentions {
		if named == "" && strings.HasPrefix(p.Detail, m.text) {
			named = m.field
		}
	}
	if _, has := v.texts()[named]; !has {
		v.Problem = p.Detail
		return
	}
	v.about(named, p.Detail)
}

// document returns an object as JSON. Unlike a json.Encoder, it keeps the spaces of raw values, such as a payload.
func document(members map[string]any) ([]byte, error) {
	text := bytes.NewBufferString("{")
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(text, "%q:", name) // a name has no characters that JSON escapes
		switch value := members[name].(type) {
		case json.RawMessage:
			text.Write(value)
		case map[string]any:
			inner, err := document(value)
			if err != nil {
				return nil, err
			}
			text.Write(inner)
		default:
			if err := surface.WriteJSON(text, value); err != nil {
				return nil, err
			}
		}
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}

// send makes the request of the form. A dry run changes nothing.
func (v *scheduleForm) send(c *Console, r *request, body map[string]any, dry bool) (*recorder, error) {
	body["dry_run"] = dry
	text, err := document(body)
	if err != nil {
		return nil, err
	}
	operation := "editSchedule"
	if v.New {
		operation = "createSchedule"
	}
	return c.serve(r.Request, operation, url.Values{"name": {v.Name}, "tag": {v.Tag}}, nil, "application/json", text)
}

// review fills the view from a form, and makes the dry run. It returns the status of the page, and the body of the
// request that saves the schedule.
func (v *scheduleForm) review(c *Console, r *request) (status int, body map[string]any, err error) {
	v.typeIn(r.PostForm)
	body, fine := v.body()
	if v.Closed != "" {
		return http.StatusConflict, nil, nil
	}
	if !fine {
		return http.StatusUnprocessableEntity, nil, nil
	}
	if !v.New {
		v.Changes = v.diff(v.seen(), v.texts())
	}
	answer, err := v.send(c, r, body, true)
	if err != nil {
		return 0, nil, err
	}
	if answer.status >= http.StatusMultipleChoices {
		v.refuse(problemIn(answer.status, answer.body.Bytes()))
		return answer.status, nil, nil
	}
	var shown surface.ScheduleDetails
	if err := json.Unmarshal(answer.body.Bytes(), &shown); err != nil {
		return 0, nil, fmt.Errorf("read the dry run: %w", err)
	}
	zone, err := time.LoadLocation(shown.Timezone)
	if err != nil {
		zone = time.UTC
	}
	for _, at := range shown.Next[:min(len(shown.Next), shownMoments)] {
		v.Moments = append(v.Moments, at.In(zone))
	}
	v.Review = tagOf(append(reviewed(body), v.Tag...))
	if v.Conflict != "" {
		return http.StatusPreconditionFailed, body, nil
	}
	return http.StatusOK, body, nil
}

// reviewed returns a body without the reason, which a person may still change after the review.
func reviewed(body map[string]any) []byte {
	shown := make(map[string]any)
	for name, value := range body {
		if name != "reason" && name != "dry_run" {
			shown[name] = value
		}
	}
	text, err := document(shown)
	if err != nil {
		panic(err) // the values come from texts that were read
	}
	return text
}

// saveSchedule answers the form: the next times, or a save of what was shown.
func (c *Console) saveSchedule(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	req := c.request(r.WithContext(ctx))
	v, err := c.openScheduleForm(ctx, req)
	if err != nil {
		c.fail(w, r, 0, err)
		return
	}
	status, body, err := v.review(c, req)
	if err != nil {
		c.fail(w, r, 0, err)
		return
	}
	if status == http.StatusOK && r.PostForm.Get("step") == "save" {
		if r.PostForm.Get("reviewed") != v.Review {
			v.Stale = true
		} else {
			saved, err := v.send(c, req, body, false)
			if err != nil {
				c.fail(w, r, 0, err)
				return
			}
			if saved.status < http.StatusMultipleChoices {
				name, said := v.Name, "changed"
				if v.New {
					name, said = v.texts()["name"], "created"
				}
				c.setNotice(w, notice{Text: "Schedule " + name + " is " + said})
				http.Redirect(w, r, c.path("/schedules", name), http.StatusSeeOther)
				return
			}
			if saved.status == http.StatusPreconditionFailed { // another change came first
				if v, err = c.openScheduleForm(ctx, req); err == nil {
					status, _, err = v.review(c, req)
				}
				if err != nil {
					c.fail(w, r, 0, err)
					return
				}
			} else {
				status = saved.status
				v.refuse(problemIn(status, saved.body.Bytes()))
			}
		}
	}
	page := "edit-schedule"
	if v.New {
		page = "new-schedule"
	}
	c.render(w, r, status, page, frame{Title: map[bool]string{true: "New schedule", false: "Edit schedule"}[v.New], Nav: "schedules", request: req, View: v})
}
