package api

import (
	"context"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// tokenList is a list of tokens.
type tokenList struct {
	Tokens []store.Token `json:"tokens"`
}

func (a *API) listTokens(ctx context.Context, _ *struct{}) (tokenList, error) {
	found, err := a.b.Store.Tokens(ctx)
	return tokenList{append([]store.Token{}, found...)}, err
}

func (a *API) createToken(ctx context.Context, _ *RawJSON, r surface.NewToken) (surface.CreatedToken, error) {
	return surface.CreateToken(ctx, a.b, actor(ctx, r.Reason), r)
}

// namePath has the parameters of routes about one token.
type namePath struct {
	Name   string `path:"name" doc:"The name of the token."`
	Reason string `query:"reason" doc:"Why, for the audit log."`
}

// revoked is the response to the revocation of a token.
type revoked struct {
	Name  string           `json:"name"`
	State store.TokenState `json:"state"`
}

func (a *API) revokeToken(ctx context.Context, in *namePath) (revoked, error) {
	return revoked{in.Name, store.TokenRevoked}, a.b.Store.RevokeToken(ctx, actor(ctx, in.Reason), in.Name)
}

// actor returns the caller as the actor of a change, for the audit log.
func actor(ctx context.Context, reason string) store.Actor {
	return store.Actor{Name: callerOf(ctx).Name, Surface: surfaceOf(ctx), Reason: reason}
}
