package store

import (
	"context"
	"time"
)

// Tokens keeps the tokens with which programs use the HTTP API. A token has a secret, of which the store has only the
// hash.
type Tokens interface {
	// CreateToken stores a token, adds an entry to the audit log and returns the id of the token. Returns ErrConflict if
	// a token that is not revoked has the same name.
	CreateToken(ctx context.Context, by Actor, t NewToken) (int64, error)
	// RevokeToken makes the token with the name useless forever, and adds an entry to the audit log. Returns ErrNotFound
	// if no token that is not revoked has the name.
	RevokeToken(ctx context.Context, by Actor, name string) error
	// Tokens returns all tokens in the order of their creation, with those that are revoked or expired.
	Tokens(ctx context.Context) ([]Token, error)
	// UseToken records that a token was used now. It writes at most once a minute for each token.
	UseToken(ctx context.Context, id int64) error
}

// TokenRole is what the holder of a token may do. Each role includes the ones before it.
type TokenRole string

// The roles of tokens.
const (
	Viewer   TokenRole = "viewer"   // reads
	Operator TokenRole = "operator" // also stores and changes tasks
	Admin    TokenRole = "admin"    // also reads the configuration, and changes settings and tokens
)

// TokenRoles returns all roles of tokens, each of which includes the ones before it.
func TokenRoles() []TokenRole { return []TokenRole{Viewer, Operator, Admin} }

// NewToken is a token to be stored.
type NewToken struct {
	Name     string
	Role     TokenRole
	Hash     string        // of the secret, in hexadecimal digits
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
	ID        int64
	Name      string
	Role      TokenRole
	Hash      string
	State     TokenState // when it was read
	CreatedAt time.Time
	UsedAt    time.Time // exact to a minute; zero if it was never used
	ExpiresAt time.Time // zero if it does not expire
	RevokedAt time.Time
}
