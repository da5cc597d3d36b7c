package access

import (
	"slices"
	"strconv"

	"github.com/holdfastq/holdfast/store"
)

// Role says what a caller may do. Each role includes the roles before it.
type Role = store.TokenRole

// The roles of callers. Anyone needs no authentication.
const (
	Anyone   Role = "anyone"
	Viewer        = store.Viewer
	Operator      = store.Operator
	Admin         = store.Admin
)

// Includes reports whether a caller with the role has may use a route that needs the role needed.
func Includes(has, needed Role) bool {
	return needed == Anyone || slices.Index(store.TokenRoles(), has) >= slices.Index(store.TokenRoles(), needed)
}

// Caller is the program or the user that sends a request.
type Caller struct {
	Name  string // the name of the token or the user
	Scope string // unique for each caller, unlike the name
	Role  Role
	Token int64 // the id of the token; 0 if there is none
}

// callerWith returns the caller who has a token.
func callerWith(t store.Token) Caller {
	return Caller{Name: t.Name, Scope: "token " + strconv.FormatInt(t.ID, 10), Role: t.Role, Token: t.ID}
}

// local is the caller of a server without tokens on a loopback address.
var local = Caller{Name: "local", Scope: "local", Role: Admin}

// Kind is the kind of a refusal.
type Kind string

// The kinds of refusals.
const (
	Unauthenticated Kind = "unauthenticated" // the caller is unknown
	Forbidden       Kind = "forbidden"       // the caller or the page in the browser may not send the request
)

// Error is a refusal of a request.
type Error struct {
	Kind   Kind
	Detail string // what is wrong, for people
	Hint   string // what to do about it
}

// Error implements error.
func (e *Error) Error() string { return e.Detail }

// createToken is a hint.
const createToken = "create a token with: holdfast token create NAME --role viewer"

func unauthenticated(detail string) *Error {
	return &Error{Unauthenticated, detail, "send the header Authorization: Bearer SECRET; " + createToken}
}

func forbidden(detail, hint string) *Error { return &Error{Forbidden, detail, hint} }
