package console_test

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/store"
)

// TestWithoutTokens checks that without tokens only browsers on this machine may use the console.
func TestWithoutTokens(t *testing.T) {
	w := onFile(t, "")
	b := w.browser()
	for _, c := range []struct {
		what    string
		headers []string
		status  int
	}{
		{"this machine", nil, 200},
		{"a link on this machine", []string{"Sec-Fetch-Site", "none"}, 200},
		{"through a proxy", []string{"X-Forwarded-For", "192.0.2.1"}, 403},
		{"through another proxy", []string{"Via", "1.1 cache"}, 403},
		{"another host", []string{"Host", "evil.example"}, 403},
		{"another site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"an unknown token", []string{"Authorization", "Bearer holdfast_x"}, 303},
	} {
		for _, p := range w.console.Pages() {
			if path, parameter := strings.CutSuffix(p.Path, "{$}"); parameter || !strings.Contains(path, "{") {
				if r := b.get(path, c.headers...); r.status != c.status {
					w.Errorf("%s: %s: %d %s", c.what, path, r.status, r.summary())
				}
			}
		}
		status := c.status
		if status == 200 {
			status = 400 // the form lacks fields
		} else if status == 303 {
			status = 401 // a form leads nowhere
		}
		if r := b.post("/do/retryTask", url.Values{}, c.headers...); r.status != status {
			w.Errorf("%s: a form: %d %s", c.what, r.status, r.summary())
		}
		if c.status == 200 {
			continue // a stream does not end
		}
		if r := b.get("/", append([]string{"Accept", "text/event-stream"}, c.headers...)...); r.status != status {
			w.Errorf("%s: a stream: %d %s", c.what, r.status, r.summary())
		}
	}
}

func TestSignIn(t *testing.T) {
	everywhere(t, func(w *world) {
		secret := w.token("ann", store.Viewer)
		b := w.browser()
		r := b.get("/tasks?q=state%3Adead&all=1")
		login := r.header.Get("Location")
		if r.status != http.StatusSeeOther || login != "/login?to=%2Ftasks%3Fq%3Dstate%253Adead%26all%3D1" {
			w.Fatalf("without a session: %d to %q", r.status, login)
		}
		page := b.get(login)
		if to := page.forms[0].fields.Get("to"); page.status != 200 || to != "/tasks?q=state%3Adead&all=1" {
			w.Fatalf("the login page: %d, to %q", page.status, to)
		}
		submit := func(token string, headers ...string) answer {
			form := page.forms[0].fill()
			form.Set("token", token)
			return b.post(login, form, headers...)
		}
		for _, wrong := range []string{"", "x", secret + "x"} {
			if r := submit(wrong); r.status != http.StatusUnauthorized || !strings.Contains(r.summary(), "unknown") || r.header.Get("Set-Cookie") != "" {
				w.Errorf("the token %q: %d %s %v", wrong, r.status, r.summary(), r.header)
			}
		}
		if r := submit(secret, "Sec-Fetch-Site", "cross-site"); r.header.Get("Set-Cookie") != "" || !strings.Contains(r.summary(), "another site") {
			w.Errorf("a form of another site: %d %s", r.status, r.summary())
		}
		r = submit(" " + secret + "\n")
		if r.status != http.StatusSeeOther || r.header.Get("Location") != "/tasks?q=state%3Adead&all=1" {
			w.Fatalf("sign in: %d to %q", r.status, r.header.Get("Location"))
		}
		cookies := (&http.Response{Header: r.header}).Cookies()
		if len(cookies) != 1 || cookies[0].Name != access.SessionCookie || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode ||
			cookies[0].Path != "/" || strings.Contains(cookies[0].Value, secret) {
			w.Errorf("the cookie of the session: %v", cookies)
		}
		r = b.get("/")
		if r.status != 200 || !strings.Contains(r.text, "ann · viewer") {
			w.Errorf("with the session: %d %s", r.status, r.text)
		}

		// Another process with the same store accepts the session, and other sites cannot use it.
		other := *w
		other.serve()
		visitor := &browser{&other, b.client}
		if r := visitor.get("/tasks"); r.status != 200 {
			w.Errorf("another console: %d %s", r.status, r.summary())
		}
		if r := b.post("/logout", url.Values{}, "Sec-Fetch-Site", "cross-site"); r.status != http.StatusForbidden || r.header.Get("Set-Cookie") != "" {
			w.Errorf("a sign out by another site: %d", r.status)
		}

		// Signing out ends the session of this browser.
		if !slices.ContainsFunc(r.forms, func(f form) bool { return f.action == "/logout" && f.method == "post" }) {
			w.Errorf("no form to sign out: %s", r.text)
		}
		if r := b.post("/logout", url.Values{}); r.status != http.StatusSeeOther || r.header.Get("Location") != "/login" {
			w.Errorf("sign out: %d to %q", r.status, r.header.Get("Location"))
		}
		if r := b.get("/"); r.status != http.StatusSeeOther {
			w.Errorf("after the sign out: %d", r.status)
		}

		// A session ends with its token, at every console.
		submit(secret)
		if r := visitor.get("/"); r.status != 200 {
			w.Fatalf("signed in again: %d", r.status)
		}
		w.must(w.Store.RevokeToken(w.Context(), tester, "ann"))
		for what, b := range map[string]*browser{"the console": b, "the other console": visitor} {
			w.Eventually("the session has ended at "+what, func() bool { return b.get("/").status == http.StatusSeeOther })
		}
		if r := submit(secret); r.status != http.StatusUnauthorized || !strings.Contains(r.summary(), "revoked") {
			w.Errorf("a revoked token: %d %s", r.status, r.summary())
		}
		if r := b.get("/", "Cookie", access.SessionCookie+"=forged"); r.status != http.StatusSeeOther {
			w.Errorf("a forged session: %d", r.status)
		}
	})
}

// TestNoRedirectLeadsElsewhere checks where a browser goes after it has signed in, and after an action.
func TestNoRedirectLeadsElsewhere(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "/holdfast"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			w := onFile(t, prefix)
			secret := w.token("ann", store.Admin)
			b := w.browser()
			leadsTo := func(to string) []string {
				signedIn := b.post("/login", url.Values{"token": {secret}, "to": {to}})
				changed := b.post("/do/closeGate", url.Values{"key": {"k"}, "to": {to}})
				return []string{signedIn.header.Get("Location"), changed.header.Get("Location")}
			}
			for _, to := range []string{"/", "/tasks", "/tasks?q=state%3Adead&x=%2F%2Fevil", "/gates?x=a+b"} {
				if got := leadsTo(prefix + to); got[0] != prefix+to || got[1] != prefix+to {
					w.Errorf("%s leads to %q", prefix+to, got)
				}
			}
			for _, to := range []string{
				"", "//evil", "https://evil", "http:evil", "https:" + prefix + "/tasks", "evil", "javascript:alert(1)", "//evil" + prefix + "/tasks", "///evil",
				"//user@evil", `/\evil`, `\\evil`, `/\/evil`, "/%2Fevil", "%2F%2Fevil", "/%5Cevil", "/\t/evil", "/\n//evil", "/./\\evil", "/..//evil", "?q=1", "#x",
				prefix + "//evil", prefix + `/\evil`, prefix + "/..//evil", prefix + "/../other", prefix + "/%2e%2e/other", prefix + "/x/../../other", prefix + "x/page", "/other",
			} {
				for _, got := range leadsTo(to) {
					u, err := url.Parse(got)
					if err != nil || u.Host != "" || u.Scheme != "" || strings.HasPrefix(got, "//") || strings.ContainsAny(got, "\\\t\n") ||
						!strings.HasPrefix(path.Clean(u.Path)+"/", prefix+"/") {
						w.Errorf("%q leads to %q", to, got)
					}
				}
			}
		})
	}
}
