package surface

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// NewToken is a request to create a token.
type NewToken struct {
	Name    string `json:"name" arg:"0"`
	Role    string `json:"role" flag:"ROLE" required:"true" enum:"viewer,operator,admin" doc:"What the token may do."`
	Expires string `json:"expires,omitempty" flag:"DURATION" doc:"The token expires after this duration, such as 2160h; never, if it is missing."`
	Reason  string `json:"reason,omitempty" flag:"TEXT" doc:"Why, for the audit log; at most 1000 characters."`
}

// Check returns an error if the request is invalid.
func (r NewToken) Check() error {
	_, err := r.lifetime()
	return err
}

// lifetime returns how long the token is valid, and 0 if it does not expire.
func (r NewToken) lifetime() (time.Duration, error) {
	if r.Expires == "" {
		return 0, nil
	}
	return duration("expires", r.Expires)
}

// CreatedToken is a new token with its secret.
type CreatedToken struct {
	Name   string          `json:"name"`
	Role   store.TokenRole `json:"role"`
	Secret string          `json:"secret"`
}

// CreateToken creates a token; see desk.Desk.
func CreateToken(ctx context.Context, b *app.Backend, by store.Actor, r NewToken) (CreatedToken, error) {
	lifetime, err := r.lifetime()
	if err != nil {
		return CreatedToken{}, err
	}
	by.Reason = r.Reason
	secret, err := b.CreateToken(ctx, by, r.Name, store.TokenRole(r.Role), lifetime)
	return CreatedToken{Name: r.Name, Role: store.TokenRole(r.Role), Secret: secret}, err
}
