package access_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/store"
)

// memory is a store with tokens and secrets. The secret of each token is its name.
type memory struct {
	mu      sync.Mutex
	tokens  []store.Token
	secrets map[string]string
	used    []int64 // the tokens whose use was recorded
	reads   int     // of secrets
	fault   error
}

func newMemory(names ...string) *memory {
	m := &memory{secrets: make(map[string]string)}
	for i, name := range names {
		m.tokens = append(m.tokens, store.Token{
			ID: int64(i + 1), Name: name, Role: store.Operator, Hash: app.HashSecret(name), State: store.TokenActive,
		})
	}
	return m
}

func (m *memory) change(f func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

func (m *memory) Tokens(context.Context) ([]store.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.tokens), m.fault
}

func (m *memory) UseToken(_ context.Context, id int64) error {
	m.change(func(m *memory) { m.used = append(m.used, id) })
	return nil
}

func (m *memory) Secret(_ context.Context, name string, create func() string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.secrets[name] == "" {
		m.secrets[name] = create()
	}
	return m.secrets[name], m.fault
}

func (m *memory) CreateToken(context.Context, store.Actor, store.NewToken) (int64, error) {
	panic("the guard creates no token")
}

func (m *memory) RevokeToken(context.Context, store.Actor, string) error {
	panic("the guard revokes no token")
}

const path = "/console/"

// request returns a request with pairs of a header and a value.
func request(t *testing.T, method string, headers ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://tasks.example.com/console/tasks", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// with adds a session to a request.
func with(r *http.Request, value string) *http.Request {
	r.AddCookie(&http.Cookie{Name: access.SessionCookie, Value: value})
	return r
}

// signIn returns the cookie with a new session for a token.
func signIn(t *testing.T, g *access.Guard, token string) *http.Cookie {
	t.Helper()
	cookie, c, err := g.SignIn(request(t, "POST", "Sec-Fetch-Site", "same-origin"), path, token)
	if err != nil || c.Name != token {
		t.Fatalf("sign in: %+v, %v", c, err)
	}
	return cookie
}

// refused fails the test unless an error is a refusal of a kind with a detail and a hint.
func refused(t *testing.T, what string, err error, kind access.Kind, detail string) {
	t.Helper()
	refusal, ok := errors.AsType[*access.Error](err)
	if !ok || refusal.Kind != kind || refusal.Detail != detail || refusal.Hint == "" {
		t.Errorf("%s: %#v; want %s: %s", what, err, kind, detail)
	}
}

// during runs a test with a clock that advances when every goroutine waits.
func during(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

func TestASessionIsACaller(t *testing.T) {
	during(t, func(t *testing.T) {
		m := newMemory("ada", "ben")
		g := access.New(m, configs.API{})
		cookie := signIn(t, g, "ben")
		want := access.Caller{Name: "ben", Scope: "token 2", Role: store.Operator, Token: 2}
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if c, err := g.AuthenticateBrowser(with(request(t, method), cookie.Value)); err != nil || c != want {
				t.Errorf("%s: %+v, %v", method, c, err)
			}
		}
		if !g.MayStay(t.Context(), want) {
			t.Error("a stream for the session ends")
		}
		// The token in the header takes precedence over the session.
		if c, err := g.AuthenticateBrowser(with(request(t, "GET", "Authorization", "Bearer ada"), cookie.Value)); err != nil || c.Name != "ada" {
			t.Errorf("a token and a session: %+v, %v", c, err)
		}
		_, err := g.AuthenticateBrowser(with(request(t, "GET", "Authorization", "Bearer wrong"), cookie.Value))
		refused(t, "a wrong token and a session", err, access.Unauthenticated, "the token is unknown")
		_, err = g.AuthenticateBrowser(request(t, "GET"))
		refused(t, "no session", err, access.Unauthenticated, "the request has no token")

		m.change(func(m *memory) {
			if m.reads != 1 {
				t.Errorf("the key was read %d times within a minute", m.reads)
			}
		})
		time.Sleep(time.Minute)
		if _, err := g.AuthenticateBrowser(with(request(t, "GET"), cookie.Value)); err != nil {
			t.Error(err)
		}
		m.change(func(m *memory) {
			if !slices.Equal(m.used, []int64{2, 1, 2}) {
				t.Errorf("the use of the tokens %v is recorded", m.used)
			}
		})
	})
}

// The API calls Authenticate.
func TestAuthenticateIgnoresSessions(t *testing.T) {
	during(t, func(t *testing.T) {
		g := access.New(newMemory("ada"), configs.API{})
		_, err := g.Authenticate(with(request(t, "GET", "Sec-Fetch-Site", "same-origin"), signIn(t, g, "ada").Value))
		refused(t, "a session", err, access.Unauthenticated, "the request has no token")
	})
}

func TestSignIn(t *testing.T) {
	during(t, func(t *testing.T) {
		m := newMemory("ada", "old")
		m.tokens[1].State = store.TokenExpired
		g := access.New(m, configs.API{})
		for secret, detail := range map[string]string{"": "the token is unknown", "wrong": "the token is unknown", "old": "the token old is expired"} {
			cookie, _, err := g.SignIn(request(t, "POST"), path, secret)
			if refused(t, secret, err, access.Unauthenticated, detail); cookie != nil {
				t.Errorf("%q: %v", secret, cookie)
			}
		}
		cookie, _, err := g.SignIn(request(t, "POST", "Sec-Fetch-Site", "cross-site"), path, "ada")
		if refused(t, "from another site", err, access.Forbidden, "the request comes from a page of another site"); cookie != nil {
			t.Errorf("from another site: %v", cookie)
		}
	})
}

func TestTheCookie(t *testing.T) {
	during(t, func(t *testing.T) {
		proxied := configs.API{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, UserHeader: "X-User", DefaultRole: "viewer"}
		g := access.New(newMemory("ada"), proxied)
		for _, c := range []struct {
			what, from, forwarded string
			tls                   *tls.ConnectionState
			secure                bool
		}{
			{"plain", "192.0.2.1:4", "", nil, false},
			{"TLS", "192.0.2.1:4", "", new(tls.ConnectionState), true},
			{"TLS to a trusted proxy", "10.1.2.3:4", "https", nil, true},
			{"TLS to the first proxy", "10.1.2.3:4", "HTTPS, http", nil, true},
			{"TLS between proxies", "10.1.2.3:4", "http, https", nil, false},
			{"plain to a trusted proxy", "10.1.2.3:4", "http", nil, false},
			{"another proxy", "10.2.2.3:4", "https", nil, false},
		} {
			r := request(t, "POST")
			r.RemoteAddr, r.TLS = c.from, c.tls
			if c.forwarded != "" {
				r.Header.Set("X-Forwarded-Proto", c.forwarded)
			}
			cookie, _, err := g.SignIn(r, path, "ada")
			if err != nil {
				t.Fatal(err)
			}
			if cookie.Name != "holdfast_session" || cookie.Path != path || cookie.Domain != "" || cookie.MaxAge != 12*60*60 || cookie.Secure != c.secure ||
				!cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Valid() != nil {
				t.Errorf("%s: %v", c.what, cookie)
			}
		}
	})
}

func TestASessionExpires(t *testing.T) {
	during(t, func(t *testing.T) {
		g := access.New(newMemory("ada"), configs.API{})
		cookie := signIn(t, g, "ada")
		time.Sleep(12*time.Hour - time.Second)
		if _, err := g.AuthenticateBrowser(with(request(t, "GET"), cookie.Value)); err != nil {
			t.Errorf("before its end: %v", err)
		}
		time.Sleep(time.Second)
		_, err := g.AuthenticateBrowser(with(request(t, "GET"), cookie.Value))
		refused(t, "at its end", err, access.Unauthenticated, "the session has expired")
		if renewed, err := g.Renew(with(request(t, "GET"), cookie.Value), path); renewed != nil || err != nil {
			t.Errorf("an expired session is renewed: %v, %v", renewed, err)
		}
	})
}

func TestASessionIsRenewedInItsSecondHalf(t *testing.T) {
	during(t, func(t *testing.T) {
		m := newMemory("ada")
		g := access.New(m, configs.API{})
		cookie := signIn(t, g, "ada")
		renew := func(r *http.Request) *http.Cookie {
			t.Helper()
			renewed, err := g.Renew(r, path)
			if err != nil {
				t.Fatal(err)
			}
			return renewed
		}
		time.Sleep(6*time.Hour - time.Second)
		if renewed := renew(with(request(t, "GET"), cookie.Value)); renewed != nil {
			t.Errorf("in its first half: %v", renewed)
		}
		time.Sleep(2 * time.Second)
		renewed := renew(with(request(t, "GET"), cookie.Value))
		if renewed == nil || renewed.Value == cookie.Value || renewed.Path != path || !renewed.HttpOnly || renewed.MaxAge != cookie.MaxAge {
			t.Fatalf("in its second half: %v", renewed)
		}
		for what, r := range map[string]*http.Request{
			"no session":       request(t, "GET"),
			"another form":     with(request(t, "GET"), "x"),
			"a forged session": with(request(t, "GET"), altered(t, cookie.Value, 40)),
			"a token":          with(request(t, "GET", "Authorization", "Bearer ada"), cookie.Value),
		} {
			if renewed := renew(r); renewed != nil {
				t.Errorf("%s: %v", what, renewed)
			}
		}
		time.Sleep(8 * time.Hour) // after the end of the first session
		if c, err := g.AuthenticateBrowser(with(request(t, "GET"), renewed.Value)); err != nil || c.Name != "ada" {
			t.Errorf("the renewed session: %+v, %v", c, err)
		}
		m.change(func(m *memory) { m.tokens[0].State = store.TokenRevoked })
		time.Sleep(time.Second)
		if again := renew(with(request(t, "GET"), renewed.Value)); again != nil {
			t.Errorf("with a revoked token: %v", again)
		}
	})
}

// altered returns the value of a session with another bit in one byte.
func altered(t *testing.T, value string, at int) string {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		t.Fatal(err)
	}
	text[at] ^= 1
	return base64.RawURLEncoding.EncodeToString(text)
}

func TestForgedSessionsAreRefused(t *testing.T) {
	during(t, func(t *testing.T) {
		m := newMemory("ada", "ben")
		g := access.New(m, configs.API{})
		cookie := signIn(t, g, "ada")
		text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
		if err != nil {
			t.Fatal(err)
		}
		forged := map[string]string{
			"empty": "", "another form": "session", "shortened": cookie.Value[:len(cookie.Value)-4], "continued": cookie.Value + "AAAA",
			"without a MAC":    base64.RawURLEncoding.EncodeToString(text[:33]),
			"with another key": signIn(t, access.New(newMemory("ada"), configs.API{}), "ada").Value,
			// The last character has two bits that no byte uses.
			"other unused bits": cookie.Value[:len(cookie.Value)-1] + string(cookie.Value[len(cookie.Value)-1]+1),
		}
		for at := range text {
			forged[fmt.Sprint("altered byte ", at)] = altered(t, cookie.Value, at)
		}
		for what, value := range forged {
			_, err := g.AuthenticateBrowser(with(request(t, "GET"), value))
			refused(t, what, err, access.Unauthenticated, "the session is not valid")
		}
		if _, err := g.AuthenticateBrowser(with(request(t, "GET"), cookie.Value)); err != nil {
			t.Errorf("the session itself: %v", err)
		}
		// A store that was restored from a backup may give the id to another token.
		m.change(func(m *memory) { m.tokens[0].Hash = app.HashSecret("another") })
		time.Sleep(time.Second)
		_, err = g.AuthenticateBrowser(with(request(t, "GET"), cookie.Value))
		refused(t, "another token with the id", err, access.Unauthenticated, "the session is not valid")
	})
}

func TestARevokedTokenEndsItsSessions(t *testing.T) {
	during(t, func(t *testing.T) {
		m := newMemory("ada", "ben")
		g := access.New(m, configs.API{})
		ada, ben := signIn(t, g, "ada"), signIn(t, g, "ben")
		m.change(func(m *memory) { m.tokens[0].State = store.TokenRevoked })
		time.Sleep(time.Second)
		_, err := g.AuthenticateBrowser(with(request(t, "GET"), ada.Value))
		refused(t, "the session", err, access.Unauthenticated, "the token ada is revoked")
		if g.MayStay(t.Context(), access.Caller{Name: "ada", Scope: "token 1", Role: store.Operator, Token: 1}) {
			t.Error("a stream for the session continues")
		}
		if c, err := g.AuthenticateBrowser(with(request(t, "GET"), ben.Value)); err != nil || c.Name != "ben" {
			t.Errorf("the session of another token: %+v, %v", c, err)
		}
	})
}

func TestGuardsOfOneStoreAcceptTheSessionsOfEachOther(t *testing.T) {
	during(t, func(t *testing.T) {
		m := newMemory("ada")
		guards := []*access.Guard{access.New(m, configs.API{}), access.New(m, configs.API{})}
		var both sync.WaitGroup
		cookies := make([]*http.Cookie, len(guards))
		for i, g := range guards {
			both.Go(func() { cookies[i] = signIn(t, g, "ada") })
		}
		both.Wait()
		for i, g := range guards {
			if c, err := g.AuthenticateBrowser(with(request(t, "GET"), cookies[1-i].Value)); err != nil || c.Name != "ada" {
				t.Errorf("guard %d: %+v, %v", i, c, err)
			}
		}
		// A new token can sign in at one process, and send its next request to another one.
		m.change(func(m *memory) {
			m.tokens = append(m.tokens, store.Token{ID: 2, Name: "ben", Role: store.Viewer, Hash: app.HashSecret("ben"), State: store.TokenActive})
		})
		if c, err := guards[1].AuthenticateBrowser(with(request(t, "GET"), signIn(t, guards[0], "ben").Value)); err != nil || c.Name != "ben" {
			t.Errorf("a new token: %+v, %v", c, err)
		}
	})
}

// If the store has lost the key, all processes use the next one soon.
func TestALostKeyEndsTheSessions(t *testing.T) {
	during(t, func(t *testing.T) {
		m := newMemory("ada")
		first := access.New(m, configs.API{})
		cookie := signIn(t, first, "ada")
		m.change(func(m *memory) { clear(m.secrets) })
		next := signIn(t, access.New(m, configs.API{}), "ada")
		time.Sleep(time.Minute)
		_, err := first.AuthenticateBrowser(with(request(t, "GET"), cookie.Value))
		refused(t, "a session with the lost key", err, access.Unauthenticated, "the session is not valid")
		if _, err := first.AuthenticateBrowser(with(request(t, "GET"), next.Value)); err != nil {
			t.Errorf("a session with the next key: %v", err)
		}
		for _, bad := range []string{"short", base64.RawURLEncoding.EncodeToString(make([]byte, 31)), base64.RawURLEncoding.EncodeToString(make([]byte, 33))} {
			m.change(func(m *memory) { m.secrets["console_key"] = bad })
			time.Sleep(time.Minute)
			if _, err := first.AuthenticateBrowser(with(request(t, "GET"), next.Value)); err == nil || err.Error() != "the key of the sessions in the store has another form" {
				t.Errorf("the key %q: %v", bad, err)
			}
		}
	})
}

func TestPagesOfOtherSitesChangeNothingWithASession(t *testing.T) {
	during(t, func(t *testing.T) {
		g := access.New(newMemory("ada"), configs.API{})
		cookie := signIn(t, g, "ada")
		for _, headers := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example.com"}, {"Origin", "null"},
		} {
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
				_, err := g.AuthenticateBrowser(with(request(t, method, headers...), cookie.Value))
				refused(t, method+" "+headers[1], err, access.Forbidden, "the request comes from a page of another site")
			}
			if _, err := g.AuthenticateBrowser(with(request(t, "GET", headers...), cookie.Value)); err != nil {
				t.Errorf("GET with %s: %v", headers, err)
			}
		}
		for _, headers := range [][]string{nil, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}, {"Origin", "http://tasks.example.com"}} {
			if _, err := g.AuthenticateBrowser(with(request(t, "POST", headers...), cookie.Value)); err != nil {
				t.Errorf("POST with %s: %v", headers, err)
			}
		}
	})
}

// A browser may still have the cookie of an earlier session although it needs none.
func TestAnInvalidSessionDoesNotLockOut(t *testing.T) {
	during(t, func(t *testing.T) {
		open := access.New(newMemory(), configs.API{})
		if err := open.Bind(t.Context(), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8480}); err != nil {
			t.Fatal(err)
		}
		local := with(request(t, "GET"), "old")
		local.RemoteAddr, local.Host = "127.0.0.1:4", "localhost:8480"
		if c, err := open.AuthenticateBrowser(local); err != nil || c.Name != "local" {
			t.Errorf("without tokens: %+v, %v", c, err)
		}
		local.Header.Set("X-Forwarded-For", "192.0.2.1")
		_, err := open.AuthenticateBrowser(local)
		refused(t, "through a proxy", err, access.Forbidden,
			"the request came through a proxy, because it has the header X-Forwarded-For, and the API has no tokens")

		proxied := access.New(newMemory(), configs.API{
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, UserHeader: "X-User", DefaultRole: "viewer",
		})
		user := with(request(t, "GET", "X-User", "ada"), "old")
		user.RemoteAddr = "10.1.2.3:4"
		if c, err := proxied.AuthenticateBrowser(user); err != nil || c.Scope != "user ada" {
			t.Errorf("a user of a proxy: %+v, %v", c, err)
		}
	})
}

func TestErrorsOfTheStoreComeBackAsTheyAre(t *testing.T) {
	during(t, func(t *testing.T) {
		m := newMemory("ada")
		g := access.New(m, configs.API{})
		cookie := signIn(t, g, "ada")
		m.change(func(m *memory) { m.fault = holdfast.ErrUnavailable })
		time.Sleep(time.Minute)
		if _, err := g.AuthenticateBrowser(with(request(t, "GET"), cookie.Value)); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("a session: %v", err)
		}
		if _, _, err := g.SignIn(request(t, "POST"), path, "ada"); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("sign in: %v", err)
		}
		if _, err := g.Authenticate(request(t, "GET", "Authorization", "Bearer ada")); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("a token: %v", err)
		}
		time.Sleep(6 * time.Hour)
		if _, err := g.Renew(with(request(t, "GET"), cookie.Value), path); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("renew: %v", err)
		}
	})
}
