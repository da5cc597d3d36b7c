package surface

import (
	"time"

	"github.com/holdfastq/holdfast/store"
)

// Token is a token of the HTTP API without its secret.
type Token struct {
	Name      string           `json:"name"`
	Role      store.TokenRole  `json:"role"`
	State     store.TokenState `json:"state"`
	CreatedAt time.Time        `json:"created_at"`
	UsedAt    time.Time        `json:"used_at,omitzero"` // exact to a minute
	ExpiresAt time.Time        `json:"expires_at,omitzero"`
	RevokedAt time.Time        `json:"revoked_at,omitzero"`
}

// TokenOf returns the form of a stored token.
func TokenOf(t store.Token) Token {
	return Token{t.Name, t.Role, t.State, t.CreatedAt, t.UsedAt, t.ExpiresAt, t.RevokedAt}
}

// CreatedToken is a new token with its secret.
type CreatedToken struct {
	Name   string          `json:"name"`
	Role   store.TokenRole `json:"role"`
	Secret string          `json:"secret"`
}
