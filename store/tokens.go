package store

import (
	"context"
	"time"
)

// Tokens keeps the tokens with which programs use the HTTP API. A token has a secret, and the store has only the hash
// of that secret.
type Tokens interface {
	// CreateToken stores a token, adds an audit entry and returns the id of the token. It returns ErrConflict if a
	// token with the same name exists and is not revoked.
	CreateToken(ctx context.Context, by Actor, t NewToken) (int64, error)
	// RevokeToken revokes the token with the name forever, and adds an audit entry. It returns ErrNotFound if no
	// unrevoked token has the name.
	RevokeToken(ctx context.Context, by Actor, name string) error
	// Tokens returns all tokens in the order of their creation, including revoked and expired ones.
	Tokens(ctx context.Context) ([]Token, error)
	// UseToken records that a token was used now. It writes at most once a minute for each token.
	UseToken(ctx context.Context, id int64) error
}

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
