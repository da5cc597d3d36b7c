package console_test

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/store"
)

// scheduleForm returns the values of the form of a schedule on a page.
func (r answer) scheduleForm() url.Values {
	for _, f := range r.forms {
		if _, has := f.fields["cron"]; has {
			return f.fields
		}
	}
	return nil
}

// invalid returns the names of the fields that a page marks.
func (r answer) invalid() string {
	var names []string
	for _, e := range r.elements {
		if e.attrs["aria-invalid"] != "" {
			names = append(names, e.attrs["name"])
		}
	}
	return strings.Join(names, " ")
}

// moments returns the number of times that a page shows.
func (r answer) moments() int {
	_, list, _ := strings.Cut(r.text, `<ol class="moments">`)
	list, _, _ = strings.Cut(list, "</ol>")
	return strings.Count(list, "<li>")
}

// TestCreateSchedule shows the next times before a schedule is stored, and keeps what was typed if it cannot be stored.
func TestCreateSchedule(t *testing.T) {
	everywhere(t, func(w *world) {
		b := w.as(store.Operator)
		const path = "/schedules/new"
		if form := b.get(path).scheduleForm(); form == nil || form.Get("reviewed") != "" {
			w.Fatalf("the empty form: %v", form)
		}
		typed := func(pairs ...string) url.Values {
			form := url.Values{
				"name": {"nightly"}, "cron": {"30 2 * * *"}, "timezone": {"Europe/Berlin"}, "type": {"mail"}, "priority": {"high"}, "tags": {"a, b"},
				"payload": {"{\"n\": 9007199254740993,\r\n \"<b>\": 1.0}"}, "overlap": {"queue"}, "missed": {"all"}, "max_attempts": {"7"}, "step": {"review"},
			}
			for i := 0; i < len(pairs); i += 2 {
				form.Set(pairs[i], pairs[i+1])
			}
			return form
		}
		for _, c := range []struct{ field, text string }{
			{"name", ""}, {"name", "not a name"}, {"cron", "61 * * * *"}, {"cron", ""}, {"timezone", "Europe/Nowhere"}, {"every", "5m"}, {"type", ""},
			{"max_attempts", "many"}, {"payload", `{"a":`}, {"catch_up", "soon"}, {"overlap", "never"}, {"jitter", "x"}, {"start", "tomorrow"},
			{"pause_after", "0"}, {"priority", "odd"}, {"queue", "no queue"}, {"tags", strings.Repeat("x", 500)},
		} {
			r := b.post(path, typed(c.field, c.text))
			if r.status != http.StatusUnprocessableEntity || r.moments() != 0 {
				w.Errorf("%s %q: %d, %d times", c.field, c.text, r.status, r.moments())
			}
			if c.field != "priority" && r.invalid() != c.field { // a selection has no other values
				w.Errorf("%s %.20q: the fields %q are marked: %s", c.field, c.text, r.invalid(), r.summary())
			}
			if form := r.scheduleForm(); c.field != "name" && form.Get("name") != "nightly" || c.field != "cron" && form.Get("cron") != "30 2 * * *" || c.field != "payload" && form.Get(c.field) != c.text && c.field != "priority" {
				w.Errorf("%s %.20q: the page has lost what was typed: %v", c.field, c.text, form)
			}
		}
		before, _ := w.entries()
		r := b.post(path, typed())
		if r.status != http.StatusOK || r.moments() != 5 || !strings.Contains(r.text, "02:30:00 CE") {
			w.Fatalf("the review: %d, %d times: %s", r.status, r.moments(), r.summary())
		}
		if after, _ := w.entries(); after != before {
			w.Error("the review has stored something")
		}
		review := r.scheduleForm().Get("reviewed")
		if r := b.post(path, typed("step", "save", "reviewed", review, "cron", "40 2 * * *")); r.status != http.StatusOK || !strings.Contains(r.text, "Nothing is saved yet") {
			w.Errorf("a save of other values: %d %s", r.status, r.summary())
		}
		r = b.post(path, typed("step", "save", "reviewed", review, "reason", "as agreed"))
		if r.status != http.StatusSeeOther || r.header.Get("Location") != "/schedules/nightly" {
			w.Fatalf("the save: %d to %q: %s", r.status, r.header.Get("Location"), r.summary())
		}
		if r := b.get("/schedules/nightly"); len(r.find("div", "notice")) != 1 {
			w.Error("no notice after the save")
		}
		s, err := w.Schedule(w.Context(), "nightly")
		w.must(err)
		if got := string(s.Spec.Task.Payload); !strings.Contains(got, "9007199254740993") || !strings.Contains(got, "<b>") || !strings.Contains(got, "1.0") {
			w.Errorf("the payload is %s", got)
		}
		if s.Spec.Timezone != "Europe/Berlin" || s.Spec.Overlap.String() != "queue" || s.Spec.Task.MaxAttempts != 7 || len(s.Spec.Task.Tags) != 2 || s.Spec.Task.Priority.String() != "high" {
			w.Errorf("the schedule is %+v", s.Spec)
		}
		if _, newest := w.entries(); newest.Reason != "as agreed" || newest.Surface != store.Console || newest.Name != "operator" {
			w.Errorf("the audit entry is %+v", newest)
		}
		if r := b.post(path, typed()); r.status != http.StatusConflict || r.invalid() != "name" {
			w.Errorf("a second schedule with the name: %d, %q is marked: %s", r.status, r.invalid(), r.summary())
		}
	})
}

// TestEditSchedule changes only what was typed, and keeps it if another person changes the schedule meanwhile.
func TestEditSchedule(t *testing.T) {
	everywhere(t, func(w *world) {
		w.change("POST", "/schedules", `{"name":"nightly","cron":"30 2 * * *","timezone":"Europe/Berlin","note":"old","task":{"type":"mail","payload":{"n":9007199254740993}}}`)
		b := w.as(store.Operator)
		const path = "/schedules/nightly/edit"
		text := b.get(path).text
		if !strings.Contains(text, "9007199254740993") {
			w.Errorf("the form lacks the payload: %s", text)
		}
		open := func() url.Values {
			form := b.get(path).scheduleForm()
			for _, name := range []string{"priority", "missed", "payload"} { // a selection and a text area have no attribute value
				form.Set(name, map[string]string{"priority": "normal", "missed": "one", "payload": "{\n  \"n\": 9007199254740993\n}"}[name])
			}
			form.Del("ordered")
			form.Set("step", "review")
			return form
		}
		if r := b.post(path, open()); r.status != http.StatusUnprocessableEntity || !strings.Contains(r.summary(), "nothing to change") {
			w.Errorf("no change: %d %s", r.status, r.summary())
		}
		form := open()
		form.Set("cron", "0 4 * * *")
		form.Set("note", "")
		w.change("PATCH", "/schedules/nightly", `{"jitter":"10m"}`)
		r := b.post(path, form)
		if got := r.scheduleForm(); r.status != http.StatusPreconditionFailed || got.Get("cron") != "0 4 * * *" || got.Get("jitter") != "10m" || !strings.Contains(r.text, "Changed meanwhile") {
			w.Fatalf("after another change: %d %s %v", r.status, r.summary(), got)
		}
		next := r.scheduleForm()
		for name, values := range open() {
			if !next.Has(name) || name == "priority" || name == "missed" || name == "payload" {
				next[name] = values
			}
		}
		next.Del("ordered")
		next.Set("step", "save")
		next.Set("reason", "backup")
		if r = b.post(path, next); r.status != http.StatusSeeOther {
			w.Fatalf("the save: %d %s %v", r.status, r.summary(), next)
		}
		s, err := w.Schedule(w.Context(), "nightly")
		w.must(err)
		if s.Spec.Cron != "0 4 * * *" || s.Spec.Note != "" || s.Spec.Jitter == 0 || s.Spec.Timezone != "Europe/Berlin" || !strings.Contains(string(s.Spec.Task.Payload), "9007199254740993") {
			w.Errorf("the schedule is %+v", s.Spec)
		}
		// An interval replaces the expression and its zone.
		form = open()
		form.Set("cron", "")
		form.Set("timezone", "")
		form.Set("every", "15m")
		r = b.post(path, form)
		if r.status != http.StatusOK || r.moments() != 5 {
			w.Errorf("an interval: %d, %d times: %s", r.status, r.moments(), r.summary())
		}
	})
}

// TestScheduleFormKeepsThePayload checks that a schedule has the payload byte for byte as it was typed, and that a review
// is about these bytes.
func TestScheduleFormKeepsThePayload(t *testing.T) {
	w := onFile(t, "")
	b := w.as(store.Operator)
	for i, typed := range []string{
		`{ "sp" :  [1,  2.0] }`, "{\n\t\"a\":1}", `"\u003c<\ud83d\ude00é"`, `[1e2, 1E+02,  -0.0]`, `{"z":1,"a" : 2,"z2":{ }}`, "[\"\u2028\" ]",
		`{"compact":[1,2.0]}`,
	} {
		name := fmt.Sprint("s", i)
		form := url.Values{"name": {name}, "every": {"1h"}, "type": {"mail"}, "priority": {"normal"}, "payload": {typed}}
		save := func(path, want string) {
			t.Helper()
			form.Set("step", "review")
			r := b.post(path, form)
			if r.status != http.StatusOK {
				t.Fatalf("the review of %s: %d %s", want, r.status, r.summary())
			}
			form.Set("step", "save")
			form.Set("reviewed", r.scheduleForm().Get("reviewed"))
			other := maps.Clone(form)
			other["payload"] = []string{strings.Replace(strings.Replace(want, "[", "[ ", 1), ":", ": ", 1)}
			if other.Get("payload") != want && b.post(path, other).status == http.StatusSeeOther {
				t.Errorf("%s: the form has saved other spaces than those of the review", want)
			}
			if r := b.post(path, form); r.status != http.StatusSeeOther {
				t.Fatalf("the save of %s: %d %s", want, r.status, r.summary())
			}
			s, err := w.Schedule(w.Context(), name)
			w.must(err)
			if got := string(s.Spec.Task.Payload); got != want {
				t.Errorf("the payload is %q, want %q", got, want)
			}
		}
		save("/schedules/new", typed)
		path := "/schedules/" + name + "/edit"
		page := b.get(path)
		shown := typed
		if i == 6 { // has no spaces, so the form adds some
			shown = "{\n  \"compact\": [\n    1,\n    2.0\n  ]\n}"
		}
		if !strings.Contains(html.UnescapeString(page.text), ">\n"+shown+"</textarea>") {
			t.Errorf("the form does not show %s: %s", shown, page.summary())
		}
		form = page.scheduleForm()
		form.Del("ordered")
		form.Set("priority", "normal")
		form.Set("missed", "one")
		form.Set("payload", shown)
		form.Set("every", "2h")
		save(path, typed) // the payload is the stored one
		form = b.get(path).scheduleForm()
		form.Del("ordered")
		form.Set("priority", "normal")
		form.Set("missed", "one")
		form.Set("payload", " [ "+typed+" ]\n")
		save(path, "[ "+typed+" ]")
	}
}

// TestScheduleFormRefuses checks that the form changes nothing for others.
func TestScheduleFormRefuses(t *testing.T) {
	w := onFile(t, "")
	w.change("POST", "/schedules", `{"name":"nightly","cron":"30 2 * * *","task":{"type":"mail"}}`)
	w.change("POST", "/schedules/nightly/backfill", `{"from":"2025-01-01T00:00:00Z","to":"2025-01-05T00:00:00Z"}`)
	viewer, operator, stranger := w.as(store.Viewer), w.as(store.Operator), w.browser()
	form := url.Values{"name": {"other"}, "cron": {"0 3 * * *"}, "type": {"mail"}, "step": {"save"}}
	for _, path := range []string{"/schedules/new", "/schedules/nightly/edit"} {
		for who, c := range map[string]struct {
			by     *browser
			status int
			site   string
		}{
			"viewer": {viewer, 403, "same-origin"}, "stranger": {stranger, 401, "same-origin"}, "operator from another site": {operator, 403, "cross-site"},
		} {
			if r := c.by.post(path, form, "Sec-Fetch-Site", c.site); r.status != c.status {
				w.Errorf("%s by a %s: %d %s", path, who, r.status, r.summary())
			}
		}
	}
	schedules, err := w.Schedules(w.Context(), "", 10)
	w.must(err)
	if len(schedules) != 2 {
		w.Fatalf("%d schedules", len(schedules))
	}
	for _, s := range schedules {
		if s.Spec.BackfillOf != "" {
			path := "/schedules/" + s.Name + "/edit"
			if r := operator.get(path); r.status != http.StatusOK || r.scheduleForm() != nil {
				w.Errorf("the form of a backfill: %d", r.status)
			}
			if r := operator.post(path, form); r.status != http.StatusConflict {
				w.Errorf("the change of a backfill: %d", r.status)
			}
		}
	}
	if r := operator.post("/schedules/nosuch/edit", form); r.status != http.StatusNotFound {
		w.Errorf("no such schedule: %d", r.status)
	}
}
