package api_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

var tester = store.Actor{Name: "tester", Surface: store.Library}

// token creates a token and returns the header with its secret.
func (w *world) token(name string, role store.TokenRole, lifetime time.Duration) []string {
	w.Helper()
	secret, err := w.CreateToken(w.Context(), tester, name, role, lifetime)
	if err != nil {
		w.Fatal(err)
	}
	return []string{"Authorization", "Bearer " + secret}
}

func (w *world) revoke(name string) {
	w.Helper()
	if err := w.Store.RevokeToken(w.Context(), tester, name); err != nil {
		w.Fatal(err)
	}
}

// TestEveryRouteForEveryCaller sends a request to every route as every kind of caller. A route that the table below
// does not have fails the test, so a new route needs a line there.
func TestEveryRouteForEveryCaller(t *testing.T) {
	roles := map[string]store.TokenRole{
		"GET /api/v1/tasks": "viewer", "POST /api/v1/tasks": "operator", "GET /api/v1/tasks/{id}": "viewer", "GET /api/v1/tasks/events": "viewer",
		"GET /api/v1/tasks/{id}/explanation": "viewer", "GET /api/v1/tasks/{id}/attempts": "viewer",
		"POST /api/v1/tasks/{id}/retry": "operator", "POST /api/v1/tasks/{id}/cancel": "operator",
		"PATCH /api/v1/tasks/{id}": "operator", "POST /api/v1/tasks/{id}/archive": "operator", "POST /api/v1/tasks/{id}/restore": "operator",
		"POST /api/v1/tasks/{id}/undo": "operator", "GET /api/v1/operations": "viewer", "POST /api/v1/operations": "operator",
		"GET /api/v1/operations/{id}": "viewer", "POST /api/v1/operations/{id}/pause": "operator", "POST /api/v1/operations/{id}/resume": "operator",
		"POST /api/v1/operations/{id}/cancel": "operator", "GET /api/v1/audit": "viewer",
		"GET /api/v1/dead-groups": "viewer", "GET /api/v1/dead-groups/{fingerprint}": "viewer", "PATCH /api/v1/dead-groups/{fingerprint}": "operator",
		"GET /api/v1/gates": "viewer", "POST /api/v1/gates": "operator", "DELETE /api/v1/gates/{id}": "operator",
		"GET /api/v1/gates/{id}": "viewer", "GET /api/v1/limits/{id}": "viewer",
		"PUT /api/v1/limits": "operator", "DELETE /api/v1/limits/{id}": "operator",
		"GET /api/v1/targets": "viewer", "GET /api/v1/targets/state": "viewer",
		"GET /api/v1/keys": "viewer", "GET /api/v1/queues": "viewer", "GET /api/v1/counts": "viewer", "GET /api/v1/workers": "viewer", "GET /api/v1/types": "viewer",
		"GET /api/v1/topics": "viewer", "GET /api/v1/topics/progress": "viewer",
		"GET /api/v1/topics/weights": "viewer", "PUT /api/v1/topics/weights": "operator",
		"GET /api/v1/schedules": "viewer", "POST /api/v1/schedules": "operator", "GET /api/v1/schedules/{name}": "viewer",
		"PATCH /api/v1/schedules/{name}": "operator", "DELETE /api/v1/schedules/{name}": "operator",
		"POST /api/v1/schedules/{name}/pause": "operator", "POST /api/v1/schedules/{name}/resume": "operator",
		"POST /api/v1/schedules/{name}/run": "operator", "POST /api/v1/schedules/{name}/backfill": "operator",
		"GET /api/v1/sources": "viewer", "GET /api/v1/sources/{name}": "viewer", "PUT /api/v1/sources/{name}": "operator",
		"DELETE /api/v1/sources/{name}": "operator", "POST /api/v1/sources/{name}/backfill": "operator", "GET /api/v1/slices": "viewer",
		"GET /api/v1/shard-jobs": "viewer", "GET /api/v1/shard-jobs/{name}": "viewer", "PUT /api/v1/shard-jobs/{name}": "operator",
		"DELETE /api/v1/shard-jobs/{name}": "operator", "GET /api/v1/shard-jobs/{name}/map": "viewer",
		"POST /api/v1/shard-jobs/{name}/move": "operator", "POST /api/v1/shard-jobs/{name}/drain": "operator",
		"GET /api/v1/batches": "viewer", "POST /api/v1/batches": "operator", "GET /api/v1/batches/{id}": "viewer",
		"POST /api/v1/batches/{id}/pages/{number}": "operator", "POST /api/v1/batches/{id}/seal": "operator", "POST /api/v1/batches/{id}/pause": "operator",
		"POST /api/v1/batches/{id}/resume": "operator", "POST /api/v1/batches/{id}/cancel": "operator", "POST /api/v1/batches/{id}/retry": "operator",
		"GET /api/v1/batches/{id}/results": "viewer",
		"GET /api/v1/settings":             "viewer", "PATCH /api/v1/settings": "admin", "POST /api/v1/settings/undo": "admin", "GET /api/v1/config": "admin",
		"GET /api/v1/tokens": "admin", "POST /api/v1/tokens": "admin", "DELETE /api/v1/tokens/{name}": "admin",
		"POST /api/v1/workers/{id}/drain": "admin", "POST /api/v1/workers/drain": "admin", "POST /api/v1/verify": "operator",
		"GET /api/v1/recovery": "viewer", "POST /api/v1/recovery": "admin", "POST /api/v1/policy/simulation": "viewer",
		"GET /api/v1/openapi.json": "anyone",
	}
	rank := map[store.TokenRole]int{"anyone": 0, "viewer": 1, "operator": 2, "admin": 3}
	everywhere(t, func(w *world) {
		roles := maps.Clone(roles)
		callers := []struct {
			name    string
			role    store.TokenRole
			headers []string
			status  int // the status of a refusal
		}{
			{"none", "anyone", nil, 401},
			{"viewer", "viewer", w.token("viewer", store.Viewer, 0), 403},
			{"operator", "operator", w.token("operator", store.Operator, time.Hour), 403},
			{"admin", "admin", w.token("admin", store.Admin, 0), 403},
			{"revoked", "anyone", w.token("revoked", store.Admin, 0), 401},
			{"expired", "anyone", w.token("expired", store.Admin, time.Microsecond), 401},
			{"wrong", "anyone", []string{"Authorization", "Bearer holdfast_" + strings.Repeat("A", 43)}, 401},
			{"malformed", "anyone", []string{"Authorization", "holdfast"}, 401},
			{"basic", "anyone", []string{"Authorization", "Basic YWRtaW46YWRtaW4="}, 401},
			{"empty", "anyone", []string{"Authorization", "Bearer "}, 401},
			{"another header", "anyone", []string{"X-Forwarded-User", "admin"}, 401},
		}
		w.revoke("revoked")
		w.Eventually("the token has expired", func() bool {
			return w.call("GET", "/api/v1/tasks", "", callers[5].headers...).status == 401
		})
		id := w.Enqueue(holdfast.NewTask{Type: "mail"})[0]
		for _, route := range w.api.Routes() {
			name := route.Method + " " + route.Path
			needed, ok := roles[name]
			if !ok || needed != route.Role {
				w.Errorf("%s needs the role %q by its entry, and %q by this test", name, route.Role, needed)
				continue
			}
			delete(roles, name)
			path := strings.NewReplacer("{id}", id.String(), "{name}", "nosuch", "{fingerprint}", "3f9ad02c41b7e685").Replace(route.Path)
			for _, c := range callers {
				body := ""
				if route.Method == "POST" || route.Method == "PUT" || route.Method == "PATCH" {
					body = "{}"
				}
				if route.Stream { // a refused parameter ends the stream at once
					path = route.Path + "?limit=0"
				}
				r := w.call(route.Method, path, body, c.headers...)
				if allowed := rank[c.role] >= rank[needed]; allowed && (r.status == 401 || r.status == 403 || r.status >= 500) || !allowed && r.status != c.status {
					w.Errorf("%s as %s: %d %s", name, c.name, r.status, r.text)
				} else if !allowed && (r.at("hint") == nil || r.status == 401 && r.header.Get("WWW-Authenticate") == "") {
					w.Errorf("%s as %s: no hint or challenge: %v %s", name, c.name, r.header, r.text)
				}
			}
		}
		for name := range roles {
			w.Errorf("there is no route %s", name)
		}
	})
}

func TestTokensOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		admin := w.token("admin", store.Admin, 0)
		created := w.call("POST", "/api/v1/tokens", `{"name":"billing","role":"operator","expires":"1h","reason":"new service"}`, admin...)
		secret, _ := created.at("secret").(string)
		if created.status != 200 || created.at("name") != "billing" || len(secret) < 40 {
			w.Fatalf("create: %d %s", created.status, created.text)
		}
		// A new token works at once, although the list of tokens was read just before.
		billing := []string{"Authorization", "bearer " + secret}
		w.call("POST", "/api/v1/tasks", `{"type":"mail"}`, billing...).
			want("a request with the new token", http.StatusCreated)
		list := w.call("GET", "/api/v1/tokens", "", admin...)
		if list.at("tokens.1.name") != "billing" || list.at("tokens.1.state") != "active" || list.at("tokens.1.used_at") == nil || strings.Contains(list.text, secret) {
			w.Errorf("list: %s", list.text)
		}
		for body, status := range map[string]int{
			`{"name":"billing","role":"viewer"}`: 409, `{"name":"","role":"viewer"}`: 422, `{"name":"x","role":"root"}`: 422,
			`{"name":"x","role":"viewer","expires":"-1h"}`: 422, `{"nam":"x"}`: 400, `{"name":"x","role":"viewer"} x`: 400,
		} {
			w.call("POST", "/api/v1/tokens", body, admin...).want(body, status)
		}
		w.call("DELETE", "/api/v1/tokens/billing?reason=leaked", "", admin...).want("revoke", 200, "state", "revoked")
		w.Eventually("the token is refused", func() bool { return w.call("GET", "/api/v1/tasks", "", billing...).status == http.StatusUnauthorized })
		w.call("DELETE", "/api/v1/tokens/billing", "", admin...).want("revoke again", 404)
		entries, err := w.Store.AuditLog(w.Context(), store.AuditFilter{Actor: "admin"})
		if err != nil || len(entries) != 2 || entries[0].Reason != "leaked" || entries[1].Reason != "new service" || entries[0].Surface != store.API {
			w.Errorf("audit log: %+v, %v", entries, err)
		}
		w.neverLogged(secret)
	})
}

// neverLogged fails the test if a secret is in the log.
func (w *world) neverLogged(secret string) {
	w.Helper()
	if text := w.log.String(); strings.Contains(text, secret) {
		w.Errorf("the log has the secret: %s", text)
	}
}

// A page of another site can make a browser send its cookies. So the API takes no session, also of a guard that it
// shares with a server for browsers.
func TestTheAPITakesNoSession(t *testing.T) {
	everywhere(t, func(w *world) {
		w.token("first", store.Viewer, 0) // so that the API of the world needs a token
		guard := access.New(w.Store, w.Config.API)
		shares := api.New(api.Options{Backend: w.Backend, Guard: guard})
		defer shares.Close()
		secret := strings.TrimPrefix(w.token("ada", store.Admin, 0)[1], "Bearer ")
		r := httptest.NewRequestWithContext(w.Context(), "GET", "http://tasks.example.com"+api.Prefix+"/tasks", nil)
		cookie, _, err := guard.SignIn(r, "/", secret)
		if err != nil {
			w.Fatal(err)
		}
		r.AddCookie(cookie)
		if c, err := guard.AuthenticateBrowser(r); err != nil || c.Name != "ada" {
			w.Fatalf("a server for browsers: %+v, %v", c, err)
		}
		for _, served := range []*api.API{w.api, shares} {
			answer := httptest.NewRecorder()
			if served.ServeHTTP(answer, r); answer.Code != http.StatusUnauthorized || !strings.Contains(answer.Body.String(), "the request has no token") {
				w.Errorf("the API: %d %s", answer.Code, answer.Body)
			}
		}
		w.neverLogged(cookie.Value)
	})
}

// The revocation of the last token does not open the API.
func TestARevokedTokenNeverOpensTheAPI(t *testing.T) {
	everywhere(t, func(w *world) {
		if r := w.call("GET", "/api/v1/tasks", ""); r.status != 200 {
			w.Fatalf("before the first token: %d %s", r.status, r.text)
		}
		w.token("one", store.Viewer, 0)
		w.Eventually("the API needs a token", func() bool { return w.call("GET", "/api/v1/tasks", "").status == 401 })
		w.revoke("one")
		// An unknown secret makes the API read the tokens again, so the next request sees the revocation.
		w.call("GET", "/api/v1/tasks", "", "Authorization", "Bearer unknown")
		w.call("GET", "/api/v1/tasks", "").want("after the revocation", 401)
	})
}

func TestOffTheLoopbackAddressItNeedsTokens(t *testing.T) {
	everywhere(t, func(w *world) {
		public := &net.TCPAddr{IP: net.IPv4zero, Port: 8480}
		err := w.api.Bind(w.Context(), public)
		if holdfast.HintOf(err).Kind != holdfast.HintCreateToken {
			w.Errorf("without tokens: %v", err)
		}
		w.token("one", store.Viewer, 0)
		if err := w.api.Bind(w.Context(), public); err != nil {
			w.Errorf("with a token: %v", err)
		}
		w.revoke("one")
		if err := w.api.Bind(w.Context(), public); err == nil {
			w.Error("with a revoked token, the API may serve other machines")
		}
	})
	t.Run("behind a proxy", func(t *testing.T) {
		w := newWorld(t, append(backendtest.FileSettings(t), "HOLDFAST_API_TRUSTED_PROXIES=10.0.0.0/8", "HOLDFAST_API_USER_HEADER=X-User", "HOLDFAST_API_DEFAULT_ROLE=viewer"), nil)
		if err := w.api.Bind(t.Context(), &net.TCPAddr{IP: net.IPv4zero, Port: 8480}); err != nil {
			t.Error(err)
		}
	})
}

// from returns the status of a request for tasks.example.com that comes from an address.
func (w *world) from(address, method, path string, headers ...string) int {
	w.Helper()
	r := httptest.NewRequestWithContext(w.Context(), method, "http://tasks.example.com"+path, nil)
	r.RemoteAddr = address
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Add(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	answer := httptest.NewRecorder()
	w.api.ServeHTTP(answer, r)
	return answer.Code
}

// The API accepts the name of a user only from a trusted proxy.
func TestUsersOfAProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, append(backendtest.FileSettings(t), "HOLDFAST_API_TRUSTED_PROXIES=10.1.0.0/16", "HOLDFAST_API_USER_HEADER=X-User",
		"HOLDFAST_API_ROLE_HEADER=X-Role", "HOLDFAST_API_DEFAULT_ROLE=viewer"), nil)
	for _, c := range []struct {
		what, path, from string
		headers          []string
		want             int
	}{
		{"default role", "/api/v1/tasks", "10.1.2.3:4", []string{"X-User", "ada"}, 200},
		{"mapped address", "/api/v1/tasks", "[::ffff:10.1.2.3]:4", []string{"X-User", "ada"}, 200},
		{"default role is too low", "/api/v1/config", "10.1.2.3:4", []string{"X-User", "ada"}, 403},
		{"role", "/api/v1/config", "10.1.2.3:4", []string{"X-User", "ada", "X-Role", "Admin"}, 200},
		{"another address", "/api/v1/tasks", "10.2.2.3:4", []string{"X-User", "ada"}, 401},
		{"loopback", "/api/v1/tasks", "127.0.0.1:4", []string{"X-User", "ada"}, 401},
		{"no user", "/api/v1/tasks", "10.1.2.3:4", nil, 401},
		{"a role without a user", "/api/v1/tasks", "10.1.2.3:4", []string{"X-Role", "admin"}, 401},
		{"empty user", "/api/v1/tasks", "10.1.2.3:4", []string{"X-User", " "}, 403},
		{"two users", "/api/v1/tasks", "10.1.2.3:4", []string{"X-User", "ada", "X-User", "ben"}, 403},
		{"two roles", "/api/v1/tasks", "10.1.2.3:4", []string{"X-User", "ada", "X-Role", "admin", "X-Role", "viewer"}, 403},
		{"unknown role", "/api/v1/tasks", "10.1.2.3:4", []string{"X-User", "ada", "X-Role", "root"}, 403},
		{"the role anyone does not exist", "/api/v1/tasks", "10.1.2.3:4", []string{"X-User", "ada", "X-Role", "anyone"}, 403},
		{"a forwarded address", "/api/v1/tasks", "10.2.2.3:4", []string{"X-User", "ada", "X-Forwarded-For", "10.1.2.3"}, 401},
		{"a wrong token beside", "/api/v1/tasks", "10.1.2.3:4", []string{"X-User", "ada", "Authorization", "Bearer x"}, 401},
	} {
		if got := w.from(c.from, "GET", c.path, c.headers...); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// A page of another site can make a browser send requests as a user of the proxy. Such a request changes nothing.
func TestPagesOfOtherSitesChangeNothingThroughAProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, append(backendtest.FileSettings(t), "HOLDFAST_API_TRUSTED_PROXIES=10.1.0.0/16", "HOLDFAST_API_USER_HEADER=X-User", "HOLDFAST_API_DEFAULT_ROLE=operator"), nil)
	secret := w.token("ada", store.Operator, 0)
	cancel := func(headers ...string) (int, holdfast.State) {
		id := w.Enqueue(holdfast.NewTask{Type: "mail"})[0]
		status := w.from("10.1.2.3:4", "POST", "/api/v1/tasks/"+id.String()+"/cancel", append(headers, "X-User", "ada")...)
		task, err := w.Store.Task(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return status, task.State
	}
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example.com"}, {"Origin", "null"}, {"Origin", "://"},
		{"Sec-Fetch-Site", "cross-site", "Origin", "https://tasks.example.com"},
	} {
		if status, state := cancel(headers...); status != http.StatusForbidden || state != holdfast.Ready {
			t.Errorf("%s: %d, %s", headers, status, state)
		}
		if status := w.from("10.1.2.3:4", "GET", "/api/v1/tasks", append(headers, "X-User", "ada")...); status != http.StatusOK {
			t.Errorf("%s: the status of a list is %d", headers, status)
		}
	}
	for _, headers := range [][]string{
		nil, {"Sec-Fetch-Site", "none"}, {"Origin", "https://tasks.example.com"}, {"Origin", "https://TASKS.example.com"},
		{"Sec-Fetch-Site", "same-origin", "Origin", "https://tasks.example.com", "Host", "10.1.2.9:8480"},
		append([]string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example.com"}, secret...),
	} {
		if status, state := cancel(headers...); status != http.StatusOK || state != holdfast.Cancelled {
			t.Errorf("%.60s: %d, %s", headers, status, state)
		}
	}
}

// Requests with unknown tokens share a few reads of the list of tokens.
func TestUnknownTokensDoNotLoadTheStore(t *testing.T) {
	t.Parallel()
	counted := new(countedTokens)
	w := newWorld(t, backendtest.FileSettings(t), func(o *api.Options) {
		counted.Store = o.Backend.Store
		o.Backend.Store = counted
	})
	w.token("one", store.Viewer, 0)
	began := time.Now()
	var statuses [100]int
	done := make(chan struct{})
	for i := range statuses {
		go func() {
			statuses[i] = w.call("GET", "/api/v1/tasks", "", "Authorization", fmt.Sprintf("Bearer wrong%d", i)).status
			done <- struct{}{}
		}()
	}
	for range statuses {
		<-done
	}
	for i, status := range statuses {
		if status != 401 {
			t.Errorf("request %d: %d", i, status)
		}
	}
	if most := 2 + int64(time.Since(began)/(100*time.Millisecond)); counted.reads.Load() > most {
		t.Errorf("%d reads of the list of tokens, at most %d were expected", counted.reads.Load(), most)
	}
}

// countedTokens counts the reads of the list of tokens.
type countedTokens struct {
	desk.Store
	reads atomic.Int64
}

func (c *countedTokens) Tokens(ctx context.Context) ([]store.Token, error) {
	c.reads.Add(1)
	return c.Store.Tokens(ctx)
}
