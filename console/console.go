package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/internal/requestbody"
)

// Options configures a console. Backend is required.
type Options struct {
	Backend *app.Backend
	// API makes the changes. The console uses its guard, so it must be bound to the same address. If it is nil, New makes
	// an API, which only the console uses. Without a token or a trusted proxy, it refuses all requests.
	API *api.API
	// Prefix is the path below which the console is served, such as /holdfast, without a slash at the end.
	Prefix  string
	Version string                     // of the program, for the foot of each page
	Hint    func(holdfast.Hint) string // returns the text of a hint, or ""; nil means no hints
	Log     logrus.FieldLogger         // nil means the log of the backend
}

// Console is the handler of the console. It is safe for concurrent use.
type Console struct {
	o         Options
	own       bool // New has made the API
	b         *app.Backend
	guard     *access.Guard
	log       logrus.FieldLogger
	mux       *http.ServeMux
	pages     []page
	changes   map[string]api.Operation             // of the API, by id
	templates map[string]func() *template.Template // by page; the first call parses
	common    func() *template.Template            // what all pages share; the first call parses
	assets    map[string]asset                     // by path
	live      *hub

	chartCache chartCache
	bodyPause  time.Duration // see requestbody.Bound
}

//go:embed templates/*.html assets/*
var files embed.FS

// pageTimeout is the time limit of a page.
const pageTimeout = 10 * time.Second

// New returns a console. It starts no goroutine. The caller calls Stop before it shuts down the server. A process calls
// New before its worker runs. So the first request of a page parses its template, not New.
func New(o Options) *Console {
	o.Prefix = strings.TrimRight(o.Prefix, "/")
	if o.Hint == nil {
		o.Hint = func(holdfast.Hint) string { return "" }
	}
	if o.Log == nil {
		o.Log = o.Backend.Log
	}
	own := o.API == nil
	if own {
		o.API = api.New(api.Options{Backend: o.Backend, Version: o.Version, Hint: o.Hint, Log: o.Log})
	}
	c := &Console{
		own: own, o: o, b: o.Backend, guard: o.API.Guard(), log: o.Log, mux: http.NewServeMux(), changes: o.API.Operations(), templates: make(map[string]func() *template.Template),
		assets: readAssets(),
	}
	c.common = sync.OnceValue(c.parseCommon)
	c.live = newHub(c)
	c.pages = c.allPages()
	for _, p := range c.pages {
		c.addTemplate(p.name)
		c.mux.Handle("GET "+o.Prefix+p.path, c.page(p))
	}
	large := maxForm + 8*int64(c.b.Config.Producer.MaxPayload) // the form has a payload twice, encoded
	c.form("/do/{name}", access.Viewer, maxForm, c.do)
	c.form("/tasks/{id}/edit", access.Operator, large, c.withSlot(c.reviewEdit))
	c.form("/schedules/new", access.Operator, large, c.withSlot(c.saveSchedule))
	c.form("/schedules/{name}/edit", access.Operator, large, c.withSlot(c.saveSchedule))
	c.form("/settings/change", access.Admin, maxForm, c.withSlot(c.saveSetting))
	c.form("/tokens", access.Admin, maxForm, c.withSlot(c.createToken))
	c.mux.HandleFunc("GET "+o.Prefix+"/login", c.showLogin)
	c.mux.HandleFunc("POST "+o.Prefix+"/login", c.login)
	c.mux.Handle("POST "+o.Prefix+"/logout", c.guarded(access.Viewer, http.HandlerFunc(c.logout)))
	c.mux.HandleFunc("GET "+o.Prefix+"/assets/{file}", c.asset)
	for _, name := range []string{"login", "problem"} {
		c.addTemplate(name)
	}
	return c
}

// form adds a handler for a form of at most limit bytes. The handler reads it from r.PostForm.
func (c *Console) form(path string, role access.Role, limit int64, handle http.HandlerFunc) {
	c.mux.Handle("POST "+c.o.Prefix+path, c.guarded(role, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.readForm(w, r, limit) {
			handle(w, r)
		}
	})))
}

// readForm reads a form of at most limit bytes. If that fails, it answers and returns false.
func (c *Console) readForm(w http.ResponseWriter, r *http.Request, limit int64) bool {
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	err := r.ParseForm()
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		c.fail(w, r, http.StatusRequestEntityTooLarge, fmt.Errorf("the form has more than %d bytes", limit))
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		c.fail(w, r, http.StatusRequestTimeout, errors.New("the form did not arrive in time; send it again"))
	} else if err != nil {
		c.fail(w, r, http.StatusBadRequest, fmt.Errorf("the form cannot be read: %w", err))
	}
	return err == nil
}

// Stop ends the streams of live pages. A second call does nothing.
func (c *Console) Stop() { c.live.stop() }

// Close stops the console, and closes the API that New has made. The caller calls it after the last request.
func (c *Console) Close() error {
	c.Stop()
	if !c.own {
		return nil
	}
	c.o.API.Stop()
	return c.o.API.Close()
}

// addTemplate adds the template of a page. The test TestTemplatesParse parses all.
func (c *Console) addTemplate(name string) {
	c.templates[name] = sync.OnceValue(func() *template.Template { return c.parse(name) })
}

// parse returns the template of a page, inside the layout.
func (c *Console) parse(name string) *template.Template {
	t := template.Must(c.common().Clone())
	return template.Must(t.ParseFS(files, "templates/"+name+".html"))
}

// parseCommon returns the layout and the parts. No page executes it, because a template that was executed cannot be
// cloned.
func (c *Console) parseCommon() *template.Template {
	t := template.New("layout.html").Funcs(c.functions())
	return template.Must(t.ParseFS(files, "templates/layout.html", "templates/parts.html"))
}

// policy is the Content-Security-Policy of every answer. The console loads nothing from other hosts, and its pages have
// neither scripts nor styles of their own.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	defer func() {
		if cause := recover(); cause != nil {
			if cause == http.ErrAbortHandler {
				panic(cause)
			}
			c.log.WithFields(logrus.Fields{"method": r.Method, "path": r.URL.Path, "panic": fmt.Sprint(cause), "stack": string(debug.Stack())}).
				Error("panic in a page of the console")
			c.fail(w, r, http.StatusInternalServerError, errors.New("an error in the server; its log has the details"))
		}
	}()
	r, answered := requestbody.Bound(w, r, c.bodyPause)
	if _, pattern := c.mux.Handler(r); pattern == "" {
		c.noPage(w, r)
	} else {
		c.mux.ServeHTTP(w, r)
	}
	answered()
}

// noPage answers a request without a route.
func (c *Console) noPage(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		c.fail(w, r, http.StatusMethodNotAllowed, fmt.Errorf("%s is not allowed here", r.Method))
		return
	}
	c.fail(w, r, http.StatusNotFound, errors.New("the console has no such page"))
}

// guarded returns a handler for callers that have at least the given role. Others are asked to sign in.
func (c *Console) guarded(needed access.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := c.guard.AuthenticateBrowser(r)
		if denied, ok := errors.AsType[*access.Error](err); ok && denied.Kind == access.Unauthenticated && r.Method == http.MethodGet && !wantsStream(r) {
			http.Redirect(w, r, c.o.Prefix+"/login?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
			return
		}
		if err == nil && !access.Includes(caller.Role, needed) {
			err = &access.Error{Kind: access.Forbidden, Detail: fmt.Sprintf("this page needs the role %s; %s has the role %s", needed, caller.Name, caller.Role)}
		}
		if err != nil {
			c.fail(w, r, 0, err)
			return
		}
		if cookie, err := c.guard.Renew(r, c.root()); err == nil && cookie != nil { // after an error, a later request renews it
			http.SetCookie(w, cookie)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

type callerKey struct{}

func callerOf(r *http.Request) access.Caller {
	c, _ := r.Context().Value(callerKey{}).(access.Caller)
	return c
}

// page returns the handler of a page.
func (c *Console) page(p page) http.Handler {
	shown := c.withSlot(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
		defer cancel()
		req := c.request(r.WithContext(ctx))
		view, err := p.load(ctx, req)
		if err != nil {
			c.fail(w, r, 0, err)
			return
		}
		c.render(w, r, http.StatusOK, p.name, frame{Title: p.title, Nav: p.nav, Live: p.live, request: req, View: view})
	})
	return c.guarded(p.role, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wantsStream(r) { // each computation acquires a slot
			c.live.serve(w, r, p)
			return
		}
		shown(w, r)
	}))
}

// withSlot returns a handler whose requests share the slots of the API. A request frees its slot before it sends the
// first byte.
func (c *Console) withSlot(handle http.HandlerFunc) http.HandlerFunc {
	return c.o.API.Page(handle, func(w http.ResponseWriter, r *http.Request, err error) { c.fail(w, r, 0, err) }).ServeHTTP
}

// render sends a page.
func (c *Console) render(w http.ResponseWriter, r *http.Request, status int, name string, f frame) {
	if f.request == nil {
		f.request = c.request(r)
	}
	f.Notice = takeNotice(w, r, c.o.Prefix)
	var page bytes.Buffer
	if err := c.templates[name]().Execute(&page, f); err != nil {
		panic(err) // a template that does not fit its view; the tests render all
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Vary", "Accept, Cookie")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // the client may be gone
}

// problem is the view of a failed request.
type problem struct {
	Status int
	Word   string
	Detail string
	Hint   string
}

// fail answers with an error. With the status 0 the error decides.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	p := problem{Status: status, Detail: err.Error()}
	if status == 0 {
		failed := c.o.API.Problem(err)
		p = problem{failed.Status, "", failed.Detail, failed.Hint}
		if again := failed.GetHeaders().Get("Retry-After"); again != "" {
			w.Header().Set("Retry-After", again)
		}
	}
	p.Word = http.StatusText(p.Status)
	c.render(w, r, p.Status, "problem", frame{Title: p.Word, View: p})
}

// asset is a file that pages load.
type asset struct {
	text []byte
	kind string
	tag  string
}

func readAssets() map[string]asset {
	found := make(map[string]asset)
	names, err := fs.Glob(files, "assets/*")
	if err != nil {
		panic(err)
	}
	kinds := map[string]string{"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(err)
		}
		found[strings.TrimPrefix(name, "assets/")] = asset{text, kinds[name[strings.LastIndexByte(name, '.')+1:]], tagOf(text)}
	}
	return found
}

// asset serves a file. Its URL has the hash of its text, so a browser may keep it.
func (c *Console) asset(w http.ResponseWriter, r *http.Request) {
	file, ok := c.assets[r.PathValue("file")]
	if !ok {
		c.noPage(w, r)
		return
	}
	if r.URL.RawQuery == file.tag {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", file.kind)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.text))
}
