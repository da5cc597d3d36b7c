package api

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
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

// includes reports whether a caller with the role has may use a route that needs the role needed.
func includes(has, needed Role) bool {
	return needed == Anyone || slices.Index(store.TokenRoles(), has) >= slices.Index(store.TokenRoles(), needed)
}

// caller is the program or the user that sends a request.
type caller struct {
	name  string // the name of the token or the user
	scope string // unique for each caller, unlike the name
	role  Role
	token int64 // the id of the token; 0 if there is none
}

// local is the caller of an API without tokens on a loopback address.
var local = caller{name: "local", scope: "local", role: Admin}

type callerKey struct{}

func withCaller(r *http.Request, c caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// callerOf returns the caller whose request a handler serves.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// authenticate returns the caller of a request, or a problem. It ends within authTimeout.
func (a *API) authenticate(r *http.Request) (caller, *Problem) {
	ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
	defer cancel()
	if header := r.Header.Get("Authorization"); header != "" {
		secret, ok := cutScheme(header, "Bearer")
		if !ok {
			return caller{}, unauthenticated("the header Authorization has another form than: Bearer SECRET")
		}
		return a.byToken(ctx, secret)
	}
	if c, p := a.byProxy(r); p != nil || c.role != "" {
		return c, p
	}
	open, err := a.isOpen(ctx)
	switch {
	case err != nil:
		return caller{}, a.problemOf(err)
	case !open:
		return caller{}, unauthenticated("the request has no token")
	}
	if p := notLocal(r); p != nil {
		return caller{}, p
	}
	return local, nil
}

// cutScheme returns the credentials of a header with the given scheme. It ignores the case of the scheme.
func cutScheme(header, scheme string) (credentials string, ok bool) {
	before, after, found := strings.Cut(header, " ")
	return strings.TrimSpace(after), found && strings.EqualFold(before, scheme)
}

// byToken returns the caller whose token has the secret.
func (a *API) byToken(ctx context.Context, secret string) (caller, *Problem) {
	token, found, err := a.keys.find(ctx, secret)
	switch {
	case err != nil:
		return caller{}, a.problemOf(err)
	case !found:
		return caller{}, unauthenticated("the token is unknown")
	case token.State != store.TokenActive:
		return caller{}, unauthenticated("the token " + token.Name + " is " + string(token.State))
	}
	a.keys.use(ctx, token.ID)
	return caller{name: token.Name, scope: "token " + strconv.FormatInt(token.ID, 10), role: token.Role, token: token.ID}, nil
}

// byProxy returns the user that a trusted proxy has authenticated. Without one, it returns a caller without a role.
func (a *API) byProxy(r *http.Request) (caller, *Problem) {
	proxies := a.b.Config.API
	if proxies.UserHeader == "" {
		return caller{}, nil
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !slices.ContainsFunc(proxies.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) }) {
		return caller{}, nil
	}
	users := r.Header.Values(proxies.UserHeader)
	if len(users) == 0 {
		return caller{}, nil
	}
	c := caller{name: strings.TrimSpace(users[0]), role: Role(proxies.DefaultRole)}
	roles := []string(nil)
	if proxies.RoleHeader != "" {
		roles = r.Header.Values(proxies.RoleHeader)
	}
	if len(roles) > 0 && roles[0] != "" {
		c.role = Role(strings.ToLower(strings.TrimSpace(roles[0])))
	}
	if len(users) > 1 || len(roles) > 1 || c.name == "" || !slices.Contains(store.TokenRoles(), c.role) {
		return caller{}, newProblem(http.StatusForbidden, "forbidden", "the proxy sends no user with the role viewer, operator or admin").
			hint("check the headers of the proxy, and api.user_header, api.role_header and api.default_role")
	}
	if safe := []string{http.MethodGet, http.MethodHead, http.MethodOptions}; !slices.Contains(safe, r.Method) && fromOtherSite(r) {
		return caller{}, newProblem(http.StatusForbidden, "forbidden", "the request comes from a page of another site").
			hint("if the page belongs to this API, the proxy must send the header Host of its client")
	}
	c.scope = "user " + c.name
	return c, nil
}

// fromOtherSite reports whether a browser sends the request for a page of another site. A browser names the site in one of
// two headers; other programs send neither.
func fromOtherSite(r *http.Request) bool {
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
func (a *API) isOpen(ctx context.Context) (bool, error) {
	if !a.loopback || a.b.Config.API.UserHeader != "" {
		return false, nil
	}
	tokens, err := a.keys.load(ctx, time.Now().Add(-keysFresh))
	return err == nil && len(tokens) == 0, err
}

// mayStay reports whether the caller of a stream may still receive it.
func (a *API) mayStay(ctx context.Context, c caller) bool {
	tokens, err := a.keys.load(ctx, time.Now().Add(-keysFresh))
	switch {
	case err != nil:
		return true // the store is unavailable; if that lasts, the stream ends for that reason
	case c == local:
		return len(tokens) == 0
	case c.token == 0:
		return true
	}
	return slices.ContainsFunc(tokens, func(t store.Token) bool { return t.ID == c.token && t.State == store.TokenActive })
}

func unauthenticated(detail string) *Problem {
	return newProblem(http.StatusUnauthorized, "unauthenticated", "%s", detail).
		hint("send the header Authorization: Bearer SECRET; create a token with: holdfast token create NAME --role viewer")
}

func forbidden(c caller, route route) *Problem {
	return newProblem(http.StatusForbidden, "forbidden", "%s %s needs the role %s; %s has the role %s", route.method, Prefix+route.path, route.role, c.name, c.role).
		hint("use a token with that role; create one with: holdfast token create NAME --role " + string(route.role))
}

const (
	// authTimeout is the time limit of an authentication, and of a read of the tokens.
	authTimeout = 3 * time.Second

	keysFresh = time.Second            // a revocation takes effect within this time
	keysPause = 100 * time.Millisecond // minimum time between two reads
	useEvery  = time.Minute            // minimum time between two records of the use of a token
)

// keyring caches the tokens. It reads them at most once per keysPause, however many requests arrive.
type keyring struct {
	store store.Tokens

	mu      sync.Mutex
	last    tokenRead           // the last successful read
	begun   time.Time           // start of the last read, successful or not
	current *tokenRead          // the read in progress, or nil
	used    map[int64]time.Time // by token id: when its use was recorded
}

// tokenRead is one read of the list of tokens. The calls that wait for it share its result.
type tokenRead struct {
	done   chan struct{} // closed at the end
	began  time.Time
	tokens []store.Token
	err    error
}

func newKeyring(s store.Tokens) *keyring {
	return &keyring{store: s, used: make(map[int64]time.Time)}
}

// find returns the token with a secret. An unknown secret may belong to a new token, so find then reads the tokens
// again.
func (k *keyring) find(ctx context.Context, secret string) (store.Token, bool, error) {
	arrived, hash := time.Now(), []byte(app.HashSecret(secret))
	for _, since := range []time.Time{arrived.Add(-keysFresh), arrived} {
		tokens, err := k.load(ctx, since)
		if err != nil {
			return store.Token{}, false, err
		}
		found := -1
		for i, t := range tokens { // compares all, so that the duration reveals nothing about the tokens
			if subtle.ConstantTimeCompare([]byte(t.Hash), hash) == 1 {
				found = i
			}
		}
		if found >= 0 {
			return tokens[found], true, nil
		}
	}
	return store.Token{}, false, nil
}

// load returns the tokens from a read that began after since. If the read fails, all calls that wait for it get its
// error, so that they do not wait one after another.
func (k *keyring) load(ctx context.Context, since time.Time) ([]store.Token, error) {
	for {
		k.mu.Lock()
		if k.last.began.After(since) {
			defer k.mu.Unlock()
			return k.last.tokens, nil
		}
		read, mine := k.current, k.current == nil
		if mine {
			read = &tokenRead{done: make(chan struct{})}
			k.current = read
		}
		pause := keysPause - time.Since(k.begun)
		k.mu.Unlock()
		if mine {
			k.read(context.WithoutCancel(ctx), read, pause) // other calls also wait for this read
		}
		select {
		case <-read.done:
		case <-ctx.Done():
			return nil, errSlowStore
		}
		if read.err != nil {
			return nil, read.err
		}
	}
}

var errSlowStore = fmt.Errorf("%w: the store did not return the tokens within %s", holdfast.ErrUnavailable, authTimeout)

// read reads the tokens after a pause.
func (k *keyring) read(ctx context.Context, read *tokenRead, pause time.Duration) {
	time.Sleep(pause)
	ctx, cancel := context.WithTimeout(ctx, authTimeout)
	defer cancel()
	read.began, read.err = time.Now(), errSlowStore // the error if the store panics
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if read.err == nil {
			k.last = *read
		}
		k.begun, k.current = read.began, nil
		close(read.done)
	}()
	tokens, err := k.store.Tokens(ctx)
	if ctx.Err() == nil {
		read.tokens, read.err = tokens, err
	}
}

// use records that a token was used, at most once a minute. After an error, a later request tries again.
func (k *keyring) use(ctx context.Context, id int64) {
	k.mu.Lock()
	last, now := k.used[id], time.Now()
	due := now.Sub(last) >= useEvery
	if due {
		k.used[id] = now
	}
	k.mu.Unlock()
	if due && k.store.UseToken(ctx, id) != nil {
		k.mu.Lock()
		k.used[id] = last
		k.mu.Unlock()
	}
}
