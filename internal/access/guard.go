package access

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
)

// Store is the part of a store that a Guard uses.
type Store interface {
	Tokens
	Secrets
}

// Tokens is the part of a desk that a Guard uses; see package desk.
type Tokens interface {
	Tokens(ctx context.Context) ([]store.Token, error)
	UseToken(ctx context.Context, id int64) error
}

// Guard decides who sends a request. It is safe for concurrent use.
type Guard struct {
	proxies  configs.API
	keys     *keyring
	sessions *Sessions
	loopback bool // only this machine can reach the address of the server; set by Bind
}

// New returns a Guard for the callers that the tokens of a store and the configuration know. It starts no goroutine.
// The caller calls Bind before the first request.
func New(s Store, c configs.API) *Guard {
	return &Guard{proxies: c, keys: newKeyring(s), sessions: NewSessions(s)}
}

// Bind tells the guard the address of the server, before the first request. It returns an ErrInvalid if other machines
// can reach the address, and there is no active token and no trusted proxy.
func (g *Guard) Bind(ctx context.Context, address net.Addr) error {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		g.loopback = true
		return nil
	}
	if g.proxies.UserHeader != "" {
		return nil
	}
	tokens, err := g.keys.store.Tokens(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(tokens, func(t store.Token) bool { return t.State == store.TokenActive }) {
		return nil
	}
	return holdfast.WithHint(fmt.Errorf("%w: the HTTP API would serve other machines at %s without authentication", holdfast.ErrInvalid, address),
		holdfast.Hint{Kind: holdfast.HintCreateToken})
}

// Authenticate returns the caller of a request, an *Error if it refuses the request, or an error of the store. It ends
// within authTimeout. It ignores sessions.
func (g *Guard) Authenticate(r *http.Request) (Caller, error) {
	ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
	defer cancel()
	if header := r.Header.Get("Authorization"); header != "" {
		secret, ok := cutScheme(header, "Bearer")
		if !ok {
			return Caller{}, unauthenticated("the header Authorization has another form than: Bearer SECRET")
		}
		return g.byToken(ctx, secret)
	}
	if c, err := g.byProxy(r); err != nil || c.Role != "" {
		return c, err
	}
	open, err := g.isOpen(ctx)
	switch {
	case err != nil:
		return Caller{}, err
	case !open:
		return Caller{}, unauthenticated("the request has no token")
	}
	if err := notLocal(r); err != nil {
		return Caller{}, err
	}
	return local, nil
}

// cutScheme returns the credentials of a header with the given scheme. It ignores the case of the scheme.
func cutScheme(header, scheme string) (credentials string, ok bool) {
	before, after, found := strings.Cut(header, " ")
	return strings.TrimSpace(after), found && strings.EqualFold(before, scheme)
}

// byToken returns the caller whose token has the secret.
func (g *Guard) byToken(ctx context.Context, secret string) (Caller, error) {
	token, err := g.tokenOf(ctx, secret)
	if err != nil {
		return Caller{}, err
	}
	return callerWith(token), nil
}

// tokenOf returns the active token with the secret, and records its use.
func (g *Guard) tokenOf(ctx context.Context, secret string) (store.Token, error) {
	token, found, err := g.keys.bySecret(ctx, secret)
	switch {
	case err != nil:
		return store.Token{}, err
	case !found:
		return store.Token{}, unauthenticated("the token is unknown")
	case token.State != store.TokenActive:
		return store.Token{}, unauthenticated("the token " + token.Name + " is " + string(token.State))
	}
	g.keys.use(ctx, token.ID)
	return token, nil
}

// byProxy returns the user that a trusted proxy has authenticated. Without one, it returns a caller without a role.
func (g *Guard) byProxy(r *http.Request) (Caller, error) {
	proxies := g.proxies
	if proxies.UserHeader == "" || !g.fromProxy(r) {
		return Caller{}, nil
	}
	users := r.Header.Values(proxies.UserHeader)
	if len(users) == 0 {
		return Caller{}, nil
	}
	c := Caller{Name: strings.TrimSpace(users[0]), Role: Role(proxies.DefaultRole)}
	roles := []string(nil)
	if proxies.RoleHeader != "" {
		roles = r.Header.Values(proxies.RoleHeader)
	}
	if len(roles) > 0 && roles[0] != "" {
		c.Role = Role(strings.ToLower(strings.TrimSpace(roles[0])))
	}
	if len(users) > 1 || len(roles) > 1 || c.Name == "" || !slices.Contains(store.TokenRoles(), c.Role) {
		return Caller{}, forbidden("the proxy sends no user with the role viewer, operator or admin",
			"check the headers of the proxy, and api.user_header, api.role_header and api.default_role")
	}
	if safe := []string{http.MethodGet, http.MethodHead, http.MethodOptions}; !slices.Contains(safe, r.Method) && FromOtherSite(r) {
		return Caller{}, forbidden("the request comes from a page of another site",
			"if the page belongs to this API, the proxy must send the header Host of its client")
	}
	c.Scope = "user " + c.Name
	return c, nil
}

// fromProxy reports whether the request comes from the network of a trusted proxy.
func (g *Guard) fromProxy(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && slices.ContainsFunc(g.proxies.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) })
}

// FromOtherSite reports whether a browser sends the request for a page of another site. A browser names the site in one
// of two headers; other programs send neither.
func FromOtherSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "": // an older browser, or an address without TLS
		origin := r.Header.Get("Origin")
		page, err := url.Parse(origin)
		return origin != "" && (err != nil || !strings.EqualFold(page.Host, r.Host))
	}
	return true
}

// isOpen reports whether the API serves requests without authentication: it is at a loopback address, and neither a
// token nor a trusted proxy was ever set up. A revoked token is still a token here, so that a revocation never opens
// the API.
func (g *Guard) isOpen(ctx context.Context) (bool, error) {
	if !g.loopback || g.proxies.UserHeader != "" {
		return false, nil
	}
	tokens, err := g.keys.load(ctx, time.Now().Add(-keysFresh))
	return err == nil && len(tokens) == 0, err
}

// MayStay reports whether the caller of a stream may still receive it.
func (g *Guard) MayStay(ctx context.Context, c Caller) bool {
	tokens, err := g.keys.load(ctx, time.Now().Add(-keysFresh))
	switch {
	case err != nil:
		return true // the store is unavailable; if that lasts, the stream ends for that reason
	case c == local:
		return len(tokens) == 0
	case c.Token == 0:
		return true
	}
	return slices.ContainsFunc(tokens, func(t store.Token) bool { return t.ID == c.Token && t.State == store.TokenActive })
}
