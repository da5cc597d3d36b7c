package store

import (
	"time"
)

// TokenRole is the set of calls that a token permits. Each role includes the roles before it.
type TokenRole string

// The roles of tokens.
const (
	Viewer   TokenRole = "viewer"   // may read
	Operator TokenRole = "operator" // may also store and change tasks
	Admin    TokenRole = "admin"    // may also read the configuration, and change settings and tokens
)

// TokenRoles returns all roles of tokens. Each includes the roles before it.
func TokenRoles() []TokenRole { return []TokenRole{Viewer, Operator, Admin} }

// NewToken is a token to be stored.
type NewToken struct {
	Name     string
	Role     TokenRole
	Hash     string        // hash of the secret, in hexadecimal digits
	Lifetime time.Duration // 0 means forever
}

// TokenState is the state of a token.
type TokenState string

// The states of a token.
const (
	TokenActive  TokenState = "active"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
)

// Token is a stored token.
type Token struct {
	ID        int64      `json:"-"`
	Name      string     `json:"name"`
	Role      TokenRole  `json:"role"`
	Hash      string     `json:"-"`
	State     TokenState `json:"state"` // when it was read
	CreatedAt time.Time  `json:"created_at"`
	UsedAt    time.Time  `json:"used_at,omitzero"`    // zero if it was never used; otherwise exact to a minute
	ExpiresAt time.Time  `json:"expires_at,omitzero"` // zero if it does not expire
	RevokedAt time.Time  `json:"revoked_at,omitzero"`
}
