package api

import (
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Route is a route, for tests.
type Route struct {
	Name, Method, Path, Summary string
	Role                        Role
	Stream                      bool
	HasBody                     bool // the route takes a body
	IsPatch                     bool // the body is a JSON Patch
}

// Routes returns the table of routes.
func (a *API) Routes() []Route {
	var all []Route
	for _, r := range a.routes() {
		all = append(all, Route{r.name, r.method, Prefix + r.path, r.summary, r.role, r.stream, r.body != nil, r.body != nil && len(r.body.types) > 0})
	}
	return all
}

// Prepared reports whether the routes are registered and the OpenAPI document exists. No request may be in progress.
func (a *API) Prepared() bool { return a.document != nil }

// Document returns the OpenAPI document.
func (a *API) Document() *huma.OpenAPI {
	a.prepare()
	return a.document
}

// Example is an example of an operation, for tests.
type Example = example

// Recorded returns the examples of the document, by operation id.
func Recorded() map[string]Example { return recorded() }

// OperationOf returns the operation of the document for a request, or nil.
func (a *API) OperationOf(r *http.Request) *huma.Operation {
	_, pattern := a.mux.Handler(r)
	item := a.Document().Paths[strings.TrimPrefix(pattern, r.Method+" ")]
	if item == nil {
		return nil
	}
	return Methods(item)[r.Method]
}

// Methods returns the operations of a path by method.
func Methods(item *huma.PathItem) map[string]*huma.Operation {
	all := map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete}
	maps.DeleteFunc(all, func(_ string, op *huma.Operation) bool { return op == nil })
	return all
}

// SetBodyPause sets how long a client may send nothing while its body is not complete. No request may be in progress.
func (a *API) SetBodyPause(pause time.Duration) { a.bodyPause = pause }
