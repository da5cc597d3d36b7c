package access

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// SessionCookie is the name of the cookie with a session. It cannot have the prefix __Host-, because a server may be
// below a path, or on http://localhost.
const SessionCookie = "holdfast_session"

// SignIn checks the secret of a token and returns the caller, and the cookie with a new session for the response. path
// is the path of the cookie, below which the browser sends it. SignIn returns an *Error if it refuses the secret or the
// request, which may come from a page that wants to sign the browser in with another token.
func (g *Guard) SignIn(r *http.Request, path, secret string) (*http.Cookie, Caller, error) {
	ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
	defer cancel()
	if err := crossOrigin(r); err != nil {
		return nil, Caller{}, err
	}
	token, err := g.tokenOf(ctx, secret)
	if refusal, ok := errors.AsType[*Error](err); ok {
		return nil, Caller{}, &Error{refusal.Kind, refusal.Detail, createToken}
	}
	if err != nil {
		return nil, Caller{}, err
	}
	cookie, err := g.cookie(ctx, r, path, token)
	if err != nil {
		return nil, Caller{}, err
	}
	return cookie, callerWith(token), nil
}

// AuthenticateBrowser returns the caller whose session is in the cookie of a request without the header Authorization.
// For any other request, and if the session is not valid, it does what Authenticate does. It refuses a change with a
// session that the browser sends for a page of another site.
func (g *Guard) AuthenticateBrowser(r *http.Request) (Caller, error) {
	session, found := sessionIn(r)
	if !found {
		return g.Authenticate(r)
	}
	if err := crossOrigin(r); err != nil {
		return Caller{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
	defer cancel()
	token, err := g.tokenOfSession(ctx, session)
	if err == nil {
		g.keys.use(ctx, token.ID)
		return callerWith(token), nil
	}
	if _, ok := errors.AsType[*Error](err); !ok {
		return Caller{}, err
	}
	c, other := g.Authenticate(r)
	if refusal, ok := errors.AsType[*Error](other); ok && refusal.Kind == Unauthenticated {
		return Caller{}, err // says more than that the request has no token
	}
	return c, other
}

// Renew returns a cookie with a new session for the response to a request that AuthenticateBrowser has accepted, or nil
// if the request has no session in its second half. So the session of a person who works does not end. path is that of
// SignIn.
func (g *Guard) Renew(r *http.Request, path string) (*http.Cookie, error) {
	value, found := sessionIn(r)
	if session, ok := ParseSession(value); !found || !ok || !session.IsDue() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
	defer cancel()
	token, err := g.tokenOfSession(ctx, value)
	if _, ok := errors.AsType[*Error](err); ok {
		return nil, nil // the caller has not used the session
	}
	if err != nil {
		return nil, err
	}
	return g.cookie(ctx, r, path, token)
}

// sessionIn returns the value of the session of a request without the header Authorization.
func sessionIn(r *http.Request) (value string, found bool) {
	cookie, err := r.Cookie(SessionCookie)
	if err != nil || r.Header.Get("Authorization") != "" {
		return "", false
	}
	return cookie.Value, true
}

// crossOrigin returns an *Error if a browser sends a change for a page of another site.
func crossOrigin(r *http.Request) error {
	var protection http.CrossOriginProtection
	if protection.Check(r) == nil {
		return nil
	}
	return forbidden("the request comes from a page of another site",
		"if the page belongs to this server, the proxy must send the header Host of its client")
}

// tokenOfSession returns the active token of the session with a value, or an *Error.
func (g *Guard) tokenOfSession(ctx context.Context, value string) (store.Token, error) {
	session, ok := ParseSession(value)
	if !ok {
		return store.Token{}, signedOut("the session is not valid")
	}
	token, found, err := g.keys.find(ctx, func(t store.Token) bool { return t.ID == session.Token })
	genuine := false
	if err == nil && found {
		genuine, err = g.sessions.Genuine(ctx, session, token)
	}
	switch {
	case err != nil:
		return store.Token{}, err
	case !genuine:
		return store.Token{}, signedOut("the session is not valid")
	case !time.Now().Before(session.Expires):
		return store.Token{}, signedOut("the session has expired")
	case token.State != store.TokenActive:
		return store.Token{}, signedOut("the token " + token.Name + " is " + string(token.State))
	}
	return token, nil
}

func signedOut(detail string) *Error { return &Error{Unauthenticated, detail, "sign in again"} }

// cookie returns the cookie with a new session for a token.
func (g *Guard) cookie(ctx context.Context, r *http.Request, path string, t store.Token) (*http.Cookie, error) {
	session, err := g.sessions.Create(ctx, t)
	if err != nil {
		return nil, err
	}
	return &http.Cookie{
		Name: SessionCookie, Value: session.Value(), Path: path, MaxAge: int(SessionLifetime.Seconds()),
		Secure: g.isEncrypted(r), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}, nil
}

// isEncrypted reports whether the browser has sent the request by TLS, to this server or to a trusted proxy.
func (g *Guard) isEncrypted(r *http.Request) bool {
	scheme, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",") // the first proxy is the one that the browser uses
	return r.TLS != nil || g.fromProxy(r) && strings.EqualFold(strings.TrimSpace(scheme), "https")
}
