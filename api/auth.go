package api

import (
	"context"
	"net/http"
)

// Role is what a caller may do. Each role includes the ones before it.
type Role string

// The roles of callers.
const (
	Anyone   Role = "anyone"   // needs no authentication
	Viewer   Role = "viewer"   // reads
	Operator Role = "operator" // also changes tasks
	Admin    Role = "admin"    // also reads settings and changes tokens
)

// rank orders the roles.
func (r Role) rank() int {
	switch r {
	case Viewer:
		return 1
	case Operator:
		return 2
	case Admin:
		return 3
	}
	return 0
}

// includes reports whether a caller with role r may use a route that needs the role needed.
func (r Role) includes(needed Role) bool { return r.rank() >= needed.rank() }

// caller is who sends a request.
type caller struct {
	name string // "" if the API is open
	role Role
}

type callerKey struct{}

func withCaller(r *http.Request, c caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// authenticate returns who sends a request, or a problem.
func (a *API) authenticate(r *http.Request) (caller, *Problem) {
	if p := a.notLocal(r); p != nil {
		return caller{}, p
	}
	return caller{role: Admin}, nil
}

func forbidden(c caller, route route) *Problem {
	p := newProblem(http.StatusForbidden, "forbidden", "%s needs the role %s; %s has the role %s", route.method+" "+Prefix+route.path, route.role, c.name, c.role)
	p.Hint = "use a token with that role; create one with: holdfast token create NAME --role " + string(route.role)
	return p
}
