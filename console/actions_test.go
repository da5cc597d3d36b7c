package console_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/console"
	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/store"
)

// entries returns the number of entries of the audit log, and the newest one.
func (w *world) entries() (n int, newest store.AuditEntry) {
	w.Helper()
	log, err := w.Store.AuditLog(w.Context(), store.AuditFilter{Limit: 1000})
	w.must(err)
	if len(log) > 0 {
		newest = log[0]
	}
	return len(log), newest
}

// TestViewersChangeNothing sends a forged form for every action of the table.
func TestViewersChangeNothing(t *testing.T) {
	onAFileFirst(t, func(w *world) {
		paths := w.seed()
		viewer, operator, stranger := w.as(store.Viewer), w.as(store.Operator), w.browser()
		for name, list := range w.urlsOf(paths) {
			for _, at := range list {
				for _, f := range viewer.get(at).forms {
					if f.method == "post" && f.action != "/logout" {
						w.Errorf("%s shows a viewer the form %s", name, f.action)
					}
				}
			}
		}
		last := func(pattern string) string {
			path := paths[pattern][0]
			return path[strings.LastIndexByte(path, '/')+1:]
		}
		forms := map[string]url.Values{
			"Task": {"id": {last("/tasks/{id}")}}, "DeadGroup": {"fingerprint": {last("/dead/{fingerprint}")}, "note": {"x"}},
			"startOperation": {"action": {"archive"}, "query": {"state:dead"}}, "Operation": {"id": {last("/operations/{id}")}},
			"Worker": {"id": {last("/workers/{id}")}}, "Gate": {"id": {"1"}, "queue": {"default"}}, "Limit": {"id": {"1"}, "type": {"mail"}, "rate": {"1/s"}},
			"Schedule": {"name": {"nightly"}}, "Batch": {"id": {last("/batches/{id}")}}, "Token": {"name": {"operator"}},
		}
		before, _ := w.entries()
		for _, name := range console.Actions() {
			form := url.Values{"id": {"1"}, "name": {"nightly"}, "fingerprint": {last("/dead/{fingerprint}")}}
			for suffix, fields := range forms {
				if strings.HasSuffix(name, suffix) {
					form = fields
				}
			}
			for _, c := range []struct {
				what    string
				by      *browser
				status  int
				headers []string
			}{
				{"viewer", viewer, 403, nil}, {"stranger", stranger, 401, nil},
				{"operator from another site", operator, 403, []string{"Sec-Fetch-Site", "cross-site"}},
				{"operator from another host", operator, 403, []string{"Sec-Fetch-Site", "", "Origin", "https://evil.example"}},
				{"stranger from another site", stranger, 401, []string{"Sec-Fetch-Site", "cross-site"}},
			} {
				r := c.by.post("/do/"+name, form, c.headers...)
				if r.status != c.status || r.header.Get("Location") != "" || r.summary() == "" {
					w.Errorf("%s by a %s: %d %q %s", name, c.what, r.status, r.header.Get("Location"), r.summary())
				}
			}
		}
		if after, newest := w.entries(); after != before {
			w.Errorf("%d entries in the audit log, then %d: %+v", before, after, newest)
		}
		workers, err := w.Store.Workers(w.Context(), false)
		w.must(err)
		if drained := slices.DeleteFunc(workers, func(w store.Worker) bool { return !w.Draining }); len(drained) != 1 {
			w.Errorf("%d workers drain; seed drains one", len(drained))
		}
	})
}

// exerciser submits each form of the pages once.
type exerciser struct {
	*browser
	name string            // of the token
	done map[string]bool   // by key
	urls []string          // the pages
	can  func(string) bool // whether the caller should submit a form of this action
	last bool              // also the forms that delete what their page shows
	used map[string]bool   // the actions
}

// key distinguishes the forms of an action that make different changes.
func (f form) key() string {
	text := f.action
	for name, values := range f.fields {
		switch {
		case name == "action" || name == "state":
			text += " " + values[0]
		case !f.hidden[name]:
			text += " with " + name
		}
	}
	parts := strings.Fields(text)
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// fill returns the values of a form after a person has typed into its fields. A placeholder that is an example is one.
func (f form) fill() url.Values {
	values := make(url.Values)
	for name, given := range f.fields {
		values[name] = slices.Clone(given)
		typed := map[string]string{"reason": "because", "owner": "ann", "note": "the bank is down", "queue": "default", "concurrency": "3", "for": "2h",
			"begin": "2025-01-01T00:00:00Z", "end": "2025-01-03T00:00:00Z", "in_flight": "2", "shard": "0", "zone": "c"}[name]
		if name == "rate" {
			typed = map[bool]string{true: "7", false: f.examples[name]}[strings.HasPrefix(f.examples[name], "no ")]
		}
		if !f.hidden[name] && typed != "" {
			values.Set(name, typed)
		}
	}
	return values
}

// next returns a form of a page that is not done yet.
func (e *exerciser) next(at string) (f form, found bool) {
	e.Helper()
	for _, f := range e.get(at).forms {
		name, isAction := strings.CutPrefix(f.action, "/do/")
		if isAction && !e.done[f.key()] && e.can(name) && (e.last || !strings.HasPrefix(name, "delete")) && f.fields.Get("name") != e.name {
			return f, true
		}
	}
	return form{}, false
}

// exercise submits all forms.
func (e *exerciser) exercise() {
	e.Helper()
	for more := true; more || !e.last; {
		e.last = !more
		more = false
		for _, at := range e.urls {
			for f, found := e.next(at); found; f, found = e.next(at) {
				e.submit(at, f)
				more = true
			}
		}
	}
}

// newOperation is the page that plans an operation. After the start, the list of operations follows.
const newOperation = "/operations/new"

// submit submits a form of a page. If the form names a version, submit first submits it with another version.
func (e *exerciser) submit(at string, f form) {
	e.Helper()
	e.done[f.key()] = true
	name := strings.TrimPrefix(f.action, "/do/")
	e.used[name] = true
	form := f.fill()
	before, _ := e.entries()
	if form.Has("tag") {
		stale := maps.Clone(form)
		stale.Set("tag", `"12345"`)
		r := e.post(f.action, stale)
		if after, _ := e.entries(); r.status != http.StatusPreconditionFailed || len(r.find("p", "hint")) == 0 || after != before {
			e.Errorf("%s of %s with another tag: %d %s; %d new entries", f.key(), at, r.status, r.summary(), after-before)
		}
	}
	r := e.post(f.action, form)
	to := form.Get("to")
	if r.status != http.StatusSeeOther || r.header.Get("Location") != to || to != at && !strings.HasPrefix(at, newOperation) && !strings.HasPrefix(name, "delete") {
		e.Errorf("%s of %s with %v: %d to %q: %s", f.key(), at, form, r.status, r.header.Get("Location"), r.summary())
		return
	}
	after, newest := e.entries()
	if name != "drainWorker" && (after == before || newest.Surface != store.Console || newest.Name != e.name || form.Get("reason") != newest.Reason) {
		e.Errorf("%s of %s: %d new entries in the audit log, the last: %+v", f.key(), at, after-before, newest)
	}
	if r := e.get(to); r.status != http.StatusOK || len(r.find("div", "notice")) != 1 {
		e.Errorf("%s after %s: %d, %d notices", to, f.key(), r.status, len(r.find("div", "notice")))
	}
}

// TestEveryAction submits every form that the pages show to an operator, and then what only an admin sees.
func TestEveryAction(t *testing.T) {
	onAFileFirst(t, func(w *world) {
		paths := w.seed()
		var urls []string
		for _, p := range w.console.Pages() {
			urls = append(urls, w.urlsOf(paths)[p.Name]...)
		}
		operations := w.api.Operations()
		used := make(map[string]bool)
		done := make(map[string]bool)
		for _, role := range []store.TokenRole{store.Operator, store.Admin} {
			b := w.as(role)
			e := &exerciser{
				browser: b, name: string(role), done: done, urls: urls, used: used,
				can: func(name string) bool { return access.Includes(role, operations[name].Role) },
			}
			e.exercise()
		}
		for _, name := range console.Actions() {
			if !sampled && !used[name] && name != "undoTask" { // only a notice has its form
				w.Errorf("no page has a form for %s", name)
			}
		}
		w.Logf("%d forms: %s", len(done), strings.Join(slices.Sorted(maps.Keys(done)), "; "))
	})
}

func TestProblemsOfActions(t *testing.T) {
	w := onFile(t, "")
	operator := w.as(store.Operator)
	id := w.Enqueue(holdfast.NewTask{Type: "mail"})[0].String()
	for _, c := range []struct {
		name   string
		form   url.Values
		status int
		text   string
	}{
		{"nosuch", url.Values{}, 404, "nosuch"},
		{"editSettings", url.Values{}, 404, ""},
		{"listTasks", url.Values{}, 404, ""}, // of the API, but no form
		{"retryTask", url.Values{}, 400, "id"},
		{"retryTask", url.Values{"id": {id}}, 409, "ready"},
		{"retryTask", url.Values{"id": {"../../workers/drain"}}, 422, ""},
		{"retryTask", url.Values{"id": {"77777"}}, 404, "77777"},
		{"cancelTask", url.Values{"id": {id}, "tag": {`"9-dead"`}}, 412, "changed"},
		{"setLimit", url.Values{"queue": {"default"}, "concurrency": {"many"}}, 400, "many"},
		{"setLimit", url.Values{"queue": {"default"}, "rate": {"fast"}}, 422, "fast"},
		{"closeGate", url.Values{}, 422, ""},
		{"startOperation", url.Values{"action": {"retry"}, "query": {"state:dead"}, "ramp": {"1, x"}}, 400, "x"},
		{"startOperation", url.Values{"action": {"retry"}, "query": {"state:dead"}, "stop_above": {"x"}}, 400, "x"},
		{"startOperation", url.Values{"action": {"retry"}, "query": {"state:dead"}, "rate": {"x"}}, 400, "x"},
		{"startOperation", url.Values{"action": {"retry"}, "query": {"odd:1"}}, 422, "odd"},
		{"revokeToken", url.Values{"name": {"operator"}}, 403, "admin"},
		{"cancelTask", url.Values{"id": {id}, "reason": {strings.Repeat("x", 5<<20)}}, 413, "bytes"},
	} {
		before, _ := w.entries()
		r := operator.post("/do/"+c.name, c.form)
		if after, _ := w.entries(); r.status != c.status || !strings.Contains(r.summary(), c.text) || after != before || len(r.find("h1", "")) != 1 {
			w.Errorf("%s %.80s: %d %s; %d new entries", c.name, fmt.Sprint(c.form), r.status, r.summary(), after-before)
		}
	}
}

// TestNoticeAndUndo retries a dead task. The page after it says once that the task is retried, and has a button that undoes the retry.
func TestNoticeAndUndo(t *testing.T) {
	everywhere(t, func(w *world) {
		id := w.Dead(holdfast.NewTask{Type: "mail"})
		path, operator := "/tasks/"+id.String(), w.as(store.Operator)
		retry, found := operator.get(path).formFor("retryTask")
		if !found {
			w.Fatal("no form for a retry")
		}
		answer := operator.post(retry.action, retry.fill())
		for _, cookie := range (&http.Response{Header: answer.header}).Cookies() {
			if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
				w.Errorf("a cookie that scripts or other sites may use: %s", cookie)
			}
		}
		page := operator.get(path)
		undo, found := page.formFor("undoTask")
		if notices := page.find("div", "notice"); len(notices) != 1 || !found || !strings.Contains(page.text, "Task "+id.String()+" is retried") {
			w.Fatalf("the page after the retry: %s", page.text)
		}
		again := operator.get(path)
		if _, found := again.formFor("undoTask"); found || len(again.find("div", "notice")) != 0 {
			w.Error("the notice is shown a second time")
		}
		if task, err := w.Store.Task(w.Context(), id); err != nil || task.State != holdfast.Ready {
			w.Fatalf("after the retry: %+v, %v", task, err)
		}
		if r := operator.post(undo.action, undo.fill()); r.status != http.StatusSeeOther || r.header.Get("Location") != path {
			w.Fatalf("undo: %d %s", r.status, r.summary())
		}
		if task, err := w.Store.Task(w.Context(), id); err != nil || task.State != holdfast.Dead {
			w.Errorf("after the undo: %+v, %v", task, err)
		}
		if page := operator.get(path); len(page.find("div", "notice")) != 1 {
			w.Errorf("the page after the undo: %s", page.text)
		}
		if _, newest := w.entries(); newest.Action != store.ActionUndo || newest.Surface != store.Console || newest.Name != "operator" {
			w.Errorf("the audit entry of the undo: %+v", newest)
		}
	})
}

// TestForgedNotice checks that a notice that another program has set is only a text.
func TestForgedNotice(t *testing.T) {
	w := onFile(t, "")
	b := w.browser()
	for _, value := range []string{"x", "e30", "eyJUZXh0IjoiPHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0PiIsIkxpbmsiOiJqYXZhc2NyaXB0OmFsZXJ0KDEpIiwiVW5kbyI6InJldHJ5VGFzayIsIklEIjoiMSJ9"} {
		r := b.get("/settings", "Cookie", "holdfast_notice="+value)
		w.checkText(value, r.text)
		if r.status != http.StatusOK || strings.Contains(r.text, `href="javascript`) {
			w.Errorf("%s: %d %s", value, r.status, r.text)
		}
	}
}
