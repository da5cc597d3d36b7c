package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/internal/requestbody"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/surface"
)

// Prefix is the beginning of the path of every route.
const Prefix = "/api/v1"

// Options configures an API. Backend is required.
type Options struct {
	Backend *app.Backend
	Version string // the version of the program, for the OpenAPI document
	// Hint returns the text of a hint, or "". If it is nil, problems have no hints.
	Hint func(holdfast.Hint) string
	// Concurrency is the number of requests that may use the store at the same time; the others wait. 0 means 4.
	Concurrency int
	Observer    holdfast.Observer // gets observations about stored tasks; may be nil
	// Observe, if set, is called after each request. route is the pattern of the route, and "" if there is none.
	Observe func(method, route string, status int, took time.Duration)
	Log     logrus.FieldLogger // nil means the log of the backend
	// Guard authenticates the callers. Another server at the same address shares it. If it is nil, New makes one.
	Guard *access.Guard
}

const (
	// bodyOverhead is how many bytes a request body may have in addition to the largest payload.
	bodyOverhead = 64 << 10
	// requestTimeout is the time limit of a request. A stream of events has no limit.
	requestTimeout = 30 * time.Second
	// longTimeout is the time limit of a request that reads all tasks.
	longTimeout = time.Hour
	// slotTimeout is how long a request waits for a slot.
	slotTimeout = 20 * time.Second
)

// MaxPages is the number of pages of another surface that may have slots or wait for one; see Page.
const MaxPages = 50

// API is the HTTP handler of the API. It is safe for concurrent use.
type API struct {
	o           Options
	b           *app.Backend
	log         logrus.FieldLogger
	producer    *producer.Producer
	prepare     func() // registers the routes at its first call; whatever uses mux, document or served calls it first
	mux         *http.ServeMux
	document    *huma.OpenAPI
	served      []byte        // the document as JSON
	slots       chan struct{} // each value is a request that may use the store
	streamSlots chan struct{} // each value is a stream that has a slot, or is the next to get one
	pageSlots   chan struct{} // each value is a page of the console that has a slot, or is the next to get one
	pages       chan struct{} // each value is a page of the console that has a slot or waits for one
	longSlots   chan struct{} // each value is a long request
	maxBody     int64
	access      *access.Guard
	streams     chan struct{} // each value is a stream of events
	stopping    chan struct{} // closed by Stop
	stop        sync.Once
	bodyPause   time.Duration // see requestbody.Bound
}

// New returns an API. It starts no goroutine. The caller calls Bind before the first request and Close after the last
// one. A process calls New before its worker runs. So the first request registers the routes, not New.
func New(o Options) *API {
	if o.Concurrency <= 0 {
		o.Concurrency = 4
	}
	if o.Hint == nil {
		o.Hint = func(holdfast.Hint) string { return "" }
	}
	if o.Observe == nil {
		o.Observe = func(string, string, int, time.Duration) {}
	}
	if o.Log == nil {
		o.Log = o.Backend.Log
	}
	if o.Guard == nil {
		o.Guard = access.New(o.Backend.Store, o.Backend.Config.API)
	}
	a := &API{
		o: o, b: o.Backend, log: o.Log, producer: o.Backend.Producer(o.Observer), mux: http.NewServeMux(),
		slots: make(chan struct{}, o.Concurrency), streamSlots: make(chan struct{}, max(1, o.Concurrency/2)),
		pageSlots: make(chan struct{}, max(1, o.Concurrency-1)), pages: make(chan struct{}, MaxPages),
		longSlots: make(chan struct{}, 1),
		maxBody:   int64(o.Backend.Config.Producer.MaxPayload) + bodyOverhead,
		access:    o.Guard, streams: make(chan struct{}, maxStreams), stopping: make(chan struct{}),
	}
	a.prepare = sync.OnceFunc(a.register)
	return a
}

// Bind tells the API the address at which it is served, before the first request. It returns an ErrInvalid if other
// machines can reach the address, and the API has no active token and no trusted proxy.
func (a *API) Bind(ctx context.Context, address net.Addr) error { return a.access.Bind(ctx, address) }

// Guard returns the guard that authenticates the callers.
func (a *API) Guard() *access.Guard { return a.access }

// Problem returns the problem for an error, with its hint.
func (a *API) Problem(err error) *Problem { return a.problemOf(err) }

// Stop ends the streams of events and the requests that read all tasks. Other requests continue. A second call does
// nothing.
func (a *API) Stop() { a.stop.Do(func() { close(a.stopping) }) }

// Close waits until the broker has confirmed the tickets of the stored tasks. Unconfirmed tickets stay in the outbox.
func (a *API) Close() error { return a.producer.Close() }

// register adds the routes to the mux and to the OpenAPI document.
func (a *API) register() {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	format := huma.Format{Marshal: surface.WriteJSON}
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Holdfast", Version: a.o.Version,
				Description: "Enqueue, find, explain and retry tasks. Errors are problems of RFC 9457 with a hint of what to do.",
			},
			Servers: []*huma.Server{
				{URL: "/", Description: "The server that has served this document."},
				{URL: "http://" + configs.Default().Listen, Description: "A daemon of this machine, at the default address."},
			},
			Components: &huma.Components{
				Schemas: schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "A token that \"holdfast token create\" prints."},
				},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{a.asProblem},
	}
	guarded := &guardedMux{api: a}
	described := humago.New(guarded, config)
	problem := response("A problem.", problemType, schemas.Schema(typeOf[Problem](), true, "Problem"))
	routes := a.routes()
	ops := make([]huma.Operation, len(routes))
	for i, r := range routes {
		guarded.route = r
		op := huma.Operation{
			OperationID: r.name, Method: r.method, Path: Prefix + r.path, Summary: r.summary, Tags: []string{r.tag()},
			Description: "Needs the role " + string(r.role) + ".", SkipValidateBody: true, MaxBodyBytes: a.maxBody, DefaultStatus: r.status,
			Responses: map[string]*huma.Response{"default": problem},
			Security:  []map[string][]string{{"token": {}}},
			Extensions: map[string]any{
				"x-role": r.role,
			},
		}
		if r.role == Anyone {
			op.Description, op.Security = "Needs no token.", []map[string][]string{}
		}
		if r.body != nil {
			op.RequestBody = new(huma.RequestBody)
		}
		r.register(described, op)
		ops[i] = op
	}
	for _, answer := range schemas.Map() { // the schemas of requests are added below; in a request null is an empty list
		for _, member := range answer.Properties {
			member.Nullable = member.Nullable && member.Type != huma.TypeArray
		}
	}
	stored := schemas.Map()["Problem"].Properties["tasks"]
	stored.Items = &huma.Schema{AnyOf: []*huma.Schema{stored.Items, {Type: "null"}}}
	examples := recorded()
	for i, r := range routes {
		e := examples[r.name]
		if r.body != nil {
			*ops[i].RequestBody = r.body.document(schemas) // the library describes a raw body as a binary string
			ops[i].RequestBody.Content[jsonType].Example = e.Request
		}
		if answer := ops[i].Responses[strconv.Itoa(e.Status)]; answer != nil {
			for _, form := range answer.Content {
				form.Example = e.Answer
			}
		}
	}
	delete(schemas.Map(), "ErrorModel") // unused: asProblem replaces the errors of the library
	delete(schemas.Map(), "ErrorDetail")
	a.document = described.OpenAPI()
	var text bytes.Buffer
	if err := surface.WriteJSON(&text, a.document); err != nil {
		panic(err) // the document depends on the program only
	}
	a.served = text.Bytes()
}

// guardedMux adds the handler of a route to the mux, behind its guard.
type guardedMux struct {
	api   *API
	route route
}

// HandleFunc implements humago.Mux.
func (g *guardedMux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	g.api.mux.Handle(pattern, g.api.guard(g.route, http.HandlerFunc(handler)))
}

// ServeHTTP implements humago.Mux.
func (g *guardedMux) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.api.mux.ServeHTTP(w, r) }

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began, status := time.Now(), 0
	r, answered := requestbody.Bound(w, r, a.bodyPause)
	answer := &hooked{w, func(first int) { status = cmp.Or(status, first) }}
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	a.prepare()
	handler, route := a.mux.Handler(r)
	defer func() {
		if cause := recover(); cause != nil {
			if cause == http.ErrAbortHandler {
				panic(cause)
			}
			a.log.WithFields(logrus.Fields{"method": r.Method, "route": route, "panic": fmt.Sprint(cause), "stack": string(debug.Stack())}).
				Error("panic in a request")
			if status == 0 {
				a.write(answer, r, newProblem(http.StatusInternalServerError, "internal", "an error in the server; its log has the details"))
			}
		}
		a.o.Observe(r.Method, strings.TrimPrefix(route, r.Method+" "), status, time.Since(began))
	}()
	if route == "" {
		a.noRoute(answer, r, handler)
	} else {
		a.mux.ServeHTTP(answer, r)
	}
	answered()
}

// noRoute answers a request for a path without a route. handler is the handler of the mux for such requests.
func (a *API) noRoute(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	var dropped discarded
	handler.ServeHTTP(&dropped, r)
	if allowed := dropped.Header().Get("Allow"); dropped.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allowed)
		a.write(w, r, newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "%s is not allowed here; use %s", r.Method, allowed))
		return
	}
	p := newProblem(http.StatusNotFound, "not_found", "there is no route %s", r.URL.Path)
	p.Hint = "GET " + Prefix + "/openapi.json describes all routes"
	a.write(w, r, p)
}

// hooked is a response writer that calls begin before each write.
type hooked struct {
	http.ResponseWriter
	begin func(status int)
}

// WriteHeader implements http.ResponseWriter.
func (w *hooked) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *hooked) Write(text []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(text)
}

// Unwrap is for http.ResponseController.
func (w *hooked) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// discarded is a response writer that sends nothing.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header {
	if d.header == nil {
		d.header = make(http.Header)
	}
	return d.header
}

func (d *discarded) Write(text []byte) (int, error) { return len(text), nil }
func (d *discarded) WriteHeader(status int)         { d.status = status }

// guard returns the handler of a route with the checks that all routes share.
func (a *API) guard(route route, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route.role != Anyone {
			caller, err := a.authenticate(r)
			if err == nil && !access.Includes(caller.Role, route.role) {
				err = forbidden(caller, route)
			}
			if err != nil {
				a.write(w, r, a.problemOf(err))
				return
			}
			r = withCaller(r, caller)
		}
		if p := a.readRequest(route, r); p != nil {
			a.write(w, r, p)
			return
		}
		if route.stream || route.role == Anyone { // a stream acquires a slot for each page; the document needs no store
			next.ServeHTTP(w, r)
			return
		}
		limit, slots := requestTimeout, a.slots
		if route.long { // a slot and time limits of its own, so that it delays no other request
			limit, slots = longTimeout, a.longSlots
			rc, end := http.NewResponseController(w), time.Now().Add(longTimeout+requestTimeout)
			if err := errors.Join(rc.SetReadDeadline(end), rc.SetWriteDeadline(end)); err != nil && !errors.Is(err, http.ErrNotSupported) {
				panic(http.ErrAbortHandler) // the connection is gone
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		if route.long {
			go func() { // ends with the request
				select {
				case <-a.stopping:
					cancel()
				case <-ctx.Done():
				}
			}()
		}
		if r.Context().Value(admitted{}) != nil && !route.long { // a page of the console makes this request
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		release, p := a.acquire(ctx, slots)
		if p != nil {
			a.write(w, r, p)
			return
		}
		defer release()
		// The request frees its slot before it sends the first byte, so that a slow client does not keep the slot.
		next.ServeHTTP(&hooked{w, func(int) { release() }}, r.WithContext(ctx))
	})
}

// readRequest checks the URL of a request and reads its body.
func (a *API) readRequest(route route, r *http.Request) *Problem {
	if p := checkURL(r); p != nil {
		return p
	}
	text, p := a.readBody(route, r)
	if p == nil && len(text) > 0 && route.body.optional {
		p = readReason(text, r)
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	return p
}

// overloaded is the code of the problem that there are too many requests or streams.
const overloaded = "overloaded"

// admitted is the key of a context whose request has a slot already.
type admitted struct{}

// Page returns a handler that serves the pages of another surface of this process with slots of the API. Pages leave a
// slot to the requests of the API. If too many pages wait, or a page waits too long, refuse sends the error.
func (a *API) Page(next http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case a.pages <- struct{}{}:
		default:
			refuse(w, r, tooMany())
			return
		}
		leave := sync.OnceFunc(func() { <-a.pages })
		defer leave()
		release, p := a.acquire(r.Context(), a.pageSlots, a.slots)
		if p != nil {
			refuse(w, r, p)
			return
		}
		defer release()
		sends := &hooked{w, func(int) { release(); leave() }}
		next.ServeHTTP(sends, r.WithContext(context.WithValue(r.Context(), admitted{}, true)))
	})
}

// LiveSlot waits for a slot of those that live pages and live lists share. The caller calls release when it no longer
// uses the store.
func (a *API) LiveSlot(ctx context.Context) (release func(), err error) {
	release, p := a.acquire(ctx, a.streamSlots, a.slots)
	if p != nil {
		return nil, p
	}
	return release, nil
}

// acquire waits for a slot of each kind, with which a request may use the store. The caller calls release when it no
// longer uses the store; further calls do nothing.
func (a *API) acquire(ctx context.Context, each ...chan struct{}) (release func(), p *Problem) {
	limit := time.NewTimer(slotTimeout)
	defer limit.Stop()
	for i, slots := range each {
		select {
		case slots <- struct{}{}:
			continue
		case <-limit.C:
		case <-ctx.Done():
		}
		free(each[:i])
		return nil, tooMany()
	}
	return sync.OnceFunc(func() { free(each) }), nil
}

// free frees a slot of each kind.
func free(each []chan struct{}) {
	for _, slots := range each {
		<-slots
	}
}

// tooMany returns the problem that all slots are in use.
func tooMany() *Problem {
	p := newProblem(http.StatusServiceUnavailable, overloaded, "too many requests at the same time")
	p.retryAfter = time.Second
	p.Hint = "try again later, or start another process with the role api"
	return p
}

// problemOf returns the problem for an error of a handler.
func (a *API) problemOf(err error) *Problem {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		p = problemOf(err)
	}
	if p.Hint == "" {
		p.Hint = a.o.Hint(holdfast.HintOf(err))
	}
	return p
}
