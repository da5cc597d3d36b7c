package api

import (
	"context"
	"net/http"

	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/store"
)

// Role says what a caller may do. Each role includes the roles before it.
type Role = access.Role

// The roles of callers. Anyone needs no authentication.
const (
	Anyone   = access.Anyone
	Viewer   = access.Viewer
	Operator = access.Operator
	Admin    = access.Admin
)

type callerKey struct{}

func withCaller(r *http.Request, c access.Caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// callerOf returns the caller whose request a handler serves.
func callerOf(ctx context.Context) access.Caller {
	c, _ := ctx.Value(callerKey{}).(access.Caller)
	return c
}

// ServeAs serves a request of another surface of this process, which has authenticated the caller. The audit log names
// that surface. All other checks are those of a request to the API.
func (a *API) ServeAs(w http.ResponseWriter, r *http.Request, c access.Caller, from store.Surface) {
	a.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), givenKey{}, given{c, from})))
}

// given is a caller that another surface has authenticated. A client cannot send one.
type given struct {
	caller access.Caller
	from   store.Surface
}

type givenKey struct{}

// authenticate returns the caller of a request.
func (a *API) authenticate(r *http.Request) (access.Caller, error) {
	if by, ok := r.Context().Value(givenKey{}).(given); ok {
		return by.caller, nil
	}
	return a.access.Authenticate(r)
}

// surfaceOf returns the surface of a request, for the audit log.
func surfaceOf(ctx context.Context) store.Surface {
	if by, ok := ctx.Value(givenKey{}).(given); ok {
		return by.from
	}
	return store.API
}

func forbidden(c access.Caller, route route) *Problem {
	return newProblem(http.StatusForbidden, "forbidden", "%s %s needs the role %s; %s has the role %s", route.method, Prefix+route.path, route.role, c.Name, c.Role).
		hint("use a token with that role; create one with: holdfast token create NAME --role " + string(route.role))
}
