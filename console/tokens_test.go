package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/store"
)

// newToken returns the form of the page of tokens that creates one.
func (b *browser) newToken() url.Values {
	b.Helper()
	form := b.get("/tokens").tokenForm()
	if form == nil {
		b.Fatal("the page of tokens has no form for a token")
	}
	return form
}

// tokenForm returns the form of a page that creates a token, or nil.
func (r answer) tokenForm() url.Values {
	for _, f := range r.forms {
		if strings.HasSuffix(f.action, "/tokens") && f.method == "post" {
			return f.fields
		}
	}
	return nil
}

// secrets returns the secrets of tokens on a page.
func (r answer) secrets() (found []string) {
	for _, e := range r.find("code", "secret") {
		found = append(found, e.text)
	}
	return found
}

// TestCreateToken creates a token. Its secret is in the answer to the form, once, and nowhere else.
func TestCreateToken(t *testing.T) {
	everywhere(t, func(w *world) {
		admin := w.as(store.Admin)
		form := admin.newToken()
		if form.Get("name") != "" {
			w.Errorf("the form of a new token has values: %v", form)
		}
		form.Set("name", "ann")
		form.Set("role", "operator")
		form.Set("expires", "720h")
		form.Set("reason", "because")
		r := admin.post("/tokens", form)
		secrets := r.secrets()
		if r.status != http.StatusOK || len(secrets) != 1 || !strings.HasPrefix(secrets[0], "holdfast_") {
			w.Fatalf("the answer: %d %s, secrets %q", r.status, r.summary(), secrets)
		}
		secret := secrets[0]
		if n := strings.Count(r.text, secret); n != 1 {
			w.Errorf("the page has the secret %d times", n)
		}
		if r.header.Get("Cache-Control") != "no-store" || r.header.Get("Location") != "" || len(r.header.Values("Set-Cookie")) != 0 || len(r.find("button", "")) == 0 {
			w.Errorf("the headers of the answer: %v", r.header)
		}
		if strings.Contains(r.text, "first token") {
			w.Error("the page says that the token is the first one")
		}

		n, newest := w.entries()
		log, err := w.Store.AuditLog(w.Context(), store.AuditFilter{Limit: n})
		w.must(err)
		text, err := json.Marshal(log)
		w.must(err)
		if newest.Action != store.ActionCreate || newest.Subject != "token ann" || newest.Surface != store.Console || newest.Name != "admin" || newest.Reason != "because" {
			w.Errorf("the audit entry: %+v", newest)
		}
		places := map[string]string{"the audit log": string(text), "the log": w.log.String()}
		for _, path := range []string{"/tokens", "/audit", "/settings", "/"} {
			places[path] = admin.get(path).text
		}
		for place, text := range places {
			if strings.Contains(text, secret) || strings.Contains(text, strings.TrimPrefix(secret, "holdfast_")) {
				w.Errorf("%s has the secret", place)
			}
		}
		if page := places["/tokens"]; !strings.Contains(page, `id="t-ann"`) || !strings.Contains(page, "never") {
			w.Errorf("the list of tokens: %s", page)
		}

		ann := w.browser()
		if r := ann.post("/login", url.Values{"token": {secret}}); r.status != http.StatusSeeOther {
			w.Fatalf("sign in with the secret: %d %s", r.status, r.summary())
		}
		if r := ann.get("/"); !strings.Contains(r.text, "ann · operator") {
			w.Errorf("the role of the token: %s", r.text)
		}
		tokens, err := w.Store.Tokens(w.Context())
		w.must(err)
		for _, token := range tokens {
			if left := token.ExpiresAt.Sub(token.CreatedAt).Hours(); token.Name == "ann" && left != 720 {
				w.Errorf("the token expires after %v hours", left)
			}
		}
	})
}

// TestProblemsOfNewTokens checks that the form keeps what was typed, and has the error at its field.
func TestProblemsOfNewTokens(t *testing.T) {
	w := onFile(t, "/holdfast")
	admin := w.as(store.Admin)
	long := strings.Repeat("x", 1001)
	for _, c := range []struct {
		name, role, expires, reason string
		status                      int
		field, text                 string
	}{
		{"admin", "viewer", "", "", 409, "name", "admin"},
		{"a b", "viewer", "", "", 422, "name", "letters"},
		{"", "viewer", "", "", 422, "name", "name"},
		{hostileName("name"), "viewer", "24h", "x", 422, "name", "letters"},
		{"ann", "king", "", "", 422, "role", "role"},
		{"ann", "", "", "", 422, "role", "role"},
		{"ann", "viewer", "soon", "", 422, "expires", "soon"},
		{"ann", "viewer", "-1h", "", 422, "expires", "-1h"},
		{"ann", "viewer", hostileName("expires"), "", 422, "expires", ""},
		{"ann", "viewer", "", long, 422, "reason", "1001"},
	} {
		before, _ := w.entries()
		r := admin.post("/tokens", url.Values{"name": {c.name}, "role": {c.role}, "expires": {c.expires}, "reason": {c.reason}})
		var invalid []string
		for _, e := range r.elements {
			if e.attrs["aria-invalid"] != "" {
				invalid = append(invalid, e.attrs["name"])
			}
		}
		if kept := r.tokenForm(); kept.Get("name") != c.name || kept.Get("reason") != c.reason {
			w.Errorf("%.200s: the form has %.200s", fmt.Sprint(c), fmt.Sprint(kept))
		}
		failed := r.find("span", "failed")
		if r.status != c.status || len(r.secrets()) != 0 || len(failed) != 1 || !strings.Contains(failed[0].text, c.text) || strings.Join(invalid, " ") != c.field {
			w.Errorf("%.200s: %d, errors %v at %q: %s", fmt.Sprint(c), r.status, failed, invalid, r.summary())
		}
		if after, _ := w.entries(); after != before {
			w.Errorf("%.200s: %d new entries in the audit log", fmt.Sprint(c), after-before)
		}
		w.checkText("a new token", r.text)
	}
}

// TestOnlyAdminsCreateTokens sends forged forms.
func TestOnlyAdminsCreateTokens(t *testing.T) {
	w := onFile(t, "")
	admin, operator, viewer, stranger := w.as(store.Admin), w.as(store.Operator), w.as(store.Viewer), w.browser()
	for _, c := range []struct {
		what    string
		by      *browser
		status  int
		headers []string
	}{
		{"viewer", viewer, 403, nil}, {"operator", operator, 403, nil}, {"stranger", stranger, 401, nil},
		{"admin from another site", admin, 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"admin from another host", admin, 403, []string{"Sec-Fetch-Site", "", "Origin", "https://evil.example"}},
	} {
		for path, form := range map[string]url.Values{
			"/tokens":          {"name": {"evil"}, "role": {"admin"}},
			"/settings/change": {"key": {"types.mail.retry.base"}, "value": {"5s"}},
		} {
			if r := c.by.post(path, form, c.headers...); r.status != c.status || len(r.secrets()) != 0 {
				w.Errorf("%s by a %s: %d %s", path, c.what, r.status, r.summary())
			}
		}
	}
	for _, path := range []string{"/tokens", "/settings/change"} {
		if r := operator.get(path); r.status != http.StatusForbidden {
			w.Errorf("an operator sees %s: %d", path, r.status)
		}
	}
	tokens, err := w.Store.Tokens(w.Context())
	w.must(err)
	stored, err := w.Store.StoredSettings(w.Context(), -1)
	w.must(err)
	if len(tokens) != 3 || len(stored.Values) != 0 {
		w.Errorf("the tokens %+v, the settings %v", tokens, stored)
	}
}

// TestFirstToken creates the first token. The page says that every person needs a token from then on.
func TestFirstToken(t *testing.T) {
	w := onFile(t, "/holdfast")
	b := w.browser()
	page := b.get("/tokens")
	if !strings.Contains(page.text, `<option value="admin" selected>`) {
		w.Errorf("the form does not propose an admin: %s", page.text)
	}
	r := b.post("/tokens", url.Values{"name": {"ann"}, "role": {"admin"}})
	if len(r.secrets()) != 1 || !strings.Contains(r.text, "first token") {
		w.Fatalf("the first token: %d %s", r.status, r.text)
	}
	w.Eventually("the console asks for a token", func() bool { return b.get("/tokens").status == http.StatusSeeOther })
	if r := b.post("/login", url.Values{"token": r.secrets()}); r.status != http.StatusSeeOther {
		w.Errorf("sign in: %d", r.status)
	}
	if page := b.get("/tokens"); !strings.Contains(page.text, "of your session") || !strings.Contains(page.text, "Your session ends with it") {
		w.Errorf("the own token: %s", page.text)
	}
	revoke, found := b.get("/tokens").formFor("revokeToken")
	if !found {
		w.Fatal("no form for a revocation")
	}
	if r := b.post(strings.TrimPrefix(revoke.action, "/holdfast"), revoke.fill()); r.status != http.StatusSeeOther {
		w.Errorf("revoke: %d %s", r.status, r.summary())
	}
	if _, newest := w.entries(); newest.Action != store.ActionRevoke || newest.Reason != "because" || newest.Name != "ann" {
		w.Errorf("the audit entry of the revocation: %+v", newest)
	}
	w.Eventually("the session has ended", func() bool { return b.get("/tokens").status == http.StatusSeeOther })
}
