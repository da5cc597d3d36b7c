package api

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// tokenList is a list of tokens.
type tokenList struct {
	Tokens []surface.Token `json:"tokens"`
}

func (a *API) listTokens(ctx context.Context, _ *struct{}) (tokenList, error) {
	found, err := a.b.Store.Tokens(ctx)
	return tokenList{surface.Each(found, surface.TokenOf)}, err
}

// newToken is a request to create a token.
type newToken struct {
	Name    string `json:"name"`
	Role    string `json:"role" enum:"viewer,operator,admin"`
	Expires string `json:"expires,omitempty" doc:"The token expires after this duration, such as 2160h; never, if it is missing."`
	Reason  string `json:"reason,omitempty" doc:"Why, for the audit log."`
}

func (a *API) createToken(ctx context.Context, in *RawJSON) (surface.CreatedToken, error) {
	var request newToken
	if err := decode(in.RawBody, &request); err != nil {
		return surface.CreatedToken{}, err
	}
	var lifetime time.Duration
	if request.Expires != "" {
		var err error
		if lifetime, err = time.ParseDuration(request.Expires); err != nil || lifetime <= 0 {
			return surface.CreatedToken{}, newProblem(http.StatusUnprocessableEntity, "invalid", "expires %q is not a duration like 2160h", request.Expires)
		}
	}
	secret, err := a.b.CreateToken(ctx, actor(ctx, request.Reason), request.Name, store.TokenRole(request.Role), lifetime)
	return surface.CreatedToken{Name: request.Name, Role: store.TokenRole(request.Role), Secret: secret}, err
}

// namePath has the parameters of routes about one token.
type namePath struct {
	Name   string `path:"name" doc:"The name of the token."`
	Reason string `query:"reason" doc:"Why, for the audit log."`
}

// revoked is the answer to the revocation of a token.
type revoked struct {
	Name  string           `json:"name"`
	State store.TokenState `json:"state"`
}

func (a *API) revokeToken(ctx context.Context, in *namePath) (revoked, error) {
	return revoked{in.Name, store.TokenRevoked}, a.b.Store.RevokeToken(ctx, actor(ctx, in.Reason), in.Name)
}

// actor returns who requests a change, for the audit log.
func actor(ctx context.Context, reason string) store.Actor {
	return store.Actor{Name: callerOf(ctx).name, Surface: store.API, Reason: reason}
}
