package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
)

// page is a page of the console.
type page struct {
	name  string // of its template, without .html
	path  string // below the prefix, as a pattern of http.ServeMux
	role  access.Role
	title string
	nav   string // the entry of the navigation that is marked
	// live is the minimum time between two computations while somebody looks at the page. 0 means that it does not change
	// by itself.
	live time.Duration
	load func(context.Context, *request) (view any, err error)
}

// allPages returns all pages. To add a page, add a line here, a function and a template.
func (c *Console) allPages() []page {
	return []page{
		{name: "overview", path: "/{$}", role: access.Viewer, title: "Overview", nav: "overview", live: time.Second, load: c.overview},
		{name: "dead", path: "/dead", role: access.Viewer, title: "Dead", nav: "dead", live: time.Second, load: c.dead},
		{name: "group", path: "/dead/{fingerprint}", role: access.Viewer, title: "Group", nav: "dead", live: time.Second, load: c.group},
		{name: "tasks", path: "/tasks", role: access.Viewer, title: "Tasks", nav: "tasks", live: time.Second, load: c.tasks},
		{name: "task", path: "/tasks/{id}", role: access.Viewer, title: "Task", nav: "tasks", live: time.Second, load: c.task},
		{name: "edit", path: "/tasks/{id}/edit", role: access.Operator, title: "Edit task", nav: "tasks", load: c.edit},
		{name: "queues", path: "/queues", role: access.Viewer, title: "Queues", nav: "queues", live: time.Second, load: c.queues},
		{name: "queue", path: "/queues/{name}", role: access.Viewer, title: "Queue", nav: "queues", live: time.Second, load: c.queue},
		{name: "workers", path: "/workers", role: access.Viewer, title: "Workers", nav: "workers", live: time.Second, load: c.workers},
		{name: "worker", path: "/workers/{id}", role: access.Viewer, title: "Worker", nav: "workers", live: time.Second, load: c.worker},
		{name: "operations", path: "/operations", role: access.Viewer, title: "Operations", nav: "operations", live: time.Second, load: c.operations},
		{name: "plan", path: "/operations/new", role: access.Operator, title: "New operation", nav: "operations", load: c.plan},
		{name: "operation", path: "/operations/{id}", role: access.Viewer, title: "Operation", nav: "operations", live: time.Second, load: c.operation},
		{name: "gates", path: "/gates", role: access.Viewer, title: "Gates and limits", nav: "gates", live: time.Second, load: c.gates},
		{name: "keys", path: "/keys", role: access.Viewer, title: "Keys", nav: "gates", live: time.Second, load: c.keys},
		{name: "topics", path: "/topics", role: access.Viewer, title: "Topics", nav: "gates", live: time.Second, load: c.topics},
		{name: "schedules", path: "/schedules", role: access.Viewer, title: "Schedules", nav: "schedules", live: time.Second, load: c.schedules},
		{name: "new-schedule", path: "/schedules/new", role: access.Operator, title: "New schedule", nav: "schedules", load: c.newSchedule},
		{name: "schedule", path: "/schedules/{name}", role: access.Viewer, title: "Schedule", nav: "schedules", live: time.Second, load: c.schedule},
		{name: "edit-schedule", path: "/schedules/{name}/edit", role: access.Operator, title: "Edit schedule", nav: "schedules", load: c.editSchedule},
		{name: "source", path: "/sources/{name}", role: access.Viewer, title: "Source", nav: "schedules", live: time.Second, load: c.source},
		{name: "shard-job", path: "/shards/{name}", role: access.Viewer, title: "Shard job", nav: "schedules", live: time.Second, load: c.shardJob},
		{name: "batches", path: "/batches", role: access.Viewer, title: "Batches", nav: "batches", live: time.Second, load: c.batches},
		{name: "batch", path: "/batches/{id}", role: access.Viewer, title: "Batch", nav: "batches", live: time.Second, load: c.batch},
		{name: "audit", path: "/audit", role: access.Viewer, title: "Audit", nav: "audit", load: c.audit},
		{name: "tokens", path: "/tokens", role: access.Admin, title: "Tokens", nav: "tokens", load: c.tokens},
		{name: "settings", path: "/settings", role: access.Viewer, title: "Settings", nav: "settings", load: c.settings},
		{name: "setting", path: "/settings/change", role: access.Admin, title: "Change a setting", nav: "settings", load: c.setting},
	}
}

// entry is an entry of the navigation.
type entry struct{ Nav, Path, Title string }

var navigation = []entry{
	{"overview", "/", "Overview"}, {"dead", "/dead", "Dead"}, {"tasks", "/tasks", "Tasks"},
	{"queues", "/queues", "Queues"}, {"workers", "/workers", "Workers"}, {"operations", "/operations", "Operations"},
	{"gates", "/gates", "Gates"}, {"schedules", "/schedules", "Schedules"}, {"batches", "/batches", "Batches"},
	{"audit", "/audit", "Audit"}, {"tokens", "/tokens", "Tokens"}, {"settings", "/settings", "Settings"},
}

// Entries returns the entries of the navigation with pages that the caller may see.
func (f frame) Entries() []entry {
	pages := f.console.pages
	return slices.DeleteFunc(slices.Clone(navigation), func(e entry) bool {
		i := slices.IndexFunc(pages, func(p page) bool { return p.name == e.Nav })
		return !access.Includes(f.Caller.Role, pages[i].role)
	})
}

// request is what the load function of a page reads, and what the layout needs of the request.
type request struct {
	*http.Request
	console *Console
	Caller  access.Caller
}

func (c *Console) request(r *http.Request) *request { return &request{r, c, callerOf(r)} }

// q returns a parameter of the query.
func (r *request) q(name string) string { return strings.TrimSpace(r.URL.Query().Get(name)) }

// filter returns the filter of the search of a page.
func (r *request) filter(text string) (store.Filter, error) {
	f, err := search.Parse(text, time.Now())
	if err != nil {
		return f, err
	}
	return r.console.b.KnownFilter(r.Context(), f)
}

// frame is what the layout shows around a view.
type frame struct {
	*request
	Title  string
	Nav    string
	Live   time.Duration
	Notice notice
	View   any
}

// Version returns the version of the program.
func (f frame) Version() string { return f.console.o.Version }

// Prefix returns the prefix of all paths.
func (f frame) Prefix() string { return f.console.o.Prefix }

// Here returns the path and the query of the page.
func (f frame) Here() string { return f.URL.RequestURI() }

// With returns the URL of this page with another value of a parameter, and without the place in the list.
func (f frame) With(name, value string) string {
	q := f.URL.Query()
	q.Del("before")
	q.Set(name, value)
	if value == "" {
		q.Del(name)
	}
	return (&url.URL{Path: f.URL.Path, RawQuery: q.Encode()}).String()
}

// Can reports whether the caller may use an operation of the HTTP API, such as retryTask. A page shows no button that the
// API would refuse.
func (f frame) Can(operation string) bool {
	op, known := f.console.changes[operation]
	return known && access.Includes(f.Caller.Role, op.Role)
}

// SignedIn reports whether the caller has a session, which a person can end.
func (f frame) SignedIn() bool {
	_, err := f.Cookie(access.SessionCookie)
	return err == nil
}

// wantsStream reports whether a browser asks for the live page.
func wantsStream(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream")
}
