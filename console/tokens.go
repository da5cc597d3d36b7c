package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// tokens is the view of the tokens, with the form that creates one.
type tokens struct {
	Now    time.Time
	Tokens []tokenRow // the active ones first
	Open   bool       // there was never a token, so every person on this machine is an admin
	Form   tokenForm
	// Created is the new token. Only the answer to its form has it.
	Created surface.CreatedToken
	First   bool // Created is the first token
}

// tokenRow is a token in the list.
type tokenRow struct {
	store.Token
	Own bool // the session of the caller is of this token
}

// tokenForm has the texts of the form, and what is wrong with them.
type tokenForm struct {
	Name, Role, Expires, Reason string
	Failed                      string
	At                          string // the name of the field that is wrong; "" if the error belongs to none
	Hint                        string
}

// Roles returns the roles that a token may have.
func (tokens) Roles() []store.TokenRole { return store.TokenRoles() }

// lifetime is how long a token is valid, as the form offers it.
type lifetime struct{ Value, Text string }

// Lifetimes returns the lifetimes that the form offers, and the one that was sent.
func (f tokenForm) Lifetimes() []lifetime {
	offered := []lifetime{{"", "never"}, {"24h", "in a day"}, {"168h", "in a week"}, {"720h", "in 30 days"}, {"2160h", "in 90 days"}, {"8760h", "in a year"}}
	if !slices.ContainsFunc(offered, func(l lifetime) bool { return l.Value == f.Expires }) {
		offered = append(offered, lifetime{f.Expires, f.Expires})
	}
	return offered
}

func (c *Console) tokens(ctx context.Context, r *request) (any, error) {
	v, err := c.listTokens(ctx, r)
	if v.Form.Role = string(store.Viewer); v.Open {
		v.Form.Role = string(store.Admin) // if the first token had a lower role, the console could not create another token
	}
	return v, err
}

// listTokens returns the view with an empty form.
func (c *Console) listTokens(ctx context.Context, r *request) (v tokens, err error) {
	if v.Now, err = c.b.Store.Now(ctx); err != nil {
		return v, err
	}
	found, err := c.b.Store.Tokens(ctx)
	for _, t := range found {
		v.Tokens = append(v.Tokens, tokenRow{t, t.ID == r.Caller.Token})
	}
	slices.SortStableFunc(v.Tokens, func(a, b tokenRow) int { return ended(a) - ended(b) })
	v.Open = err == nil && len(found) == 0 && r.Caller.Scope == "local"
	return v, err
}

// ended returns 1 for a token that cannot be used any more, and 0 for others.
func ended(t tokenRow) int {
	if t.State == store.TokenActive {
		return 0
	}
	return 1
}

// createToken answers the form that creates a token. The answer itself is the page with the secret: a redirect would have
// to carry the secret in a URL or a cookie.
func (c *Console) createToken(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	req, form := c.request(r.WithContext(ctx)), r.PostForm
	before, err := c.listTokens(ctx, req)
	if err != nil {
		c.fail(w, r, 0, err)
		return
	}
	status, answer, err := c.call(req.Request, "createToken", action{body: newToken}, form)
	if err != nil {
		c.fail(w, r, 0, err)
		return
	}
	v := before
	if status < http.StatusMultipleChoices {
		// The token exists now, so an error must not hide its secret.
		if after, err := c.listTokens(ctx, req); err == nil {
			v = after
		}
		if err := json.Unmarshal(answer, &v.Created); err != nil {
			c.fail(w, r, http.StatusInternalServerError, errors.New("the answer of the API cannot be read; revoke the token, and create another one"))
			return
		}
		v.First, v.Open, v.Form.Role = before.Open, false, string(store.Viewer)
	} else {
		failed := problemIn(status, answer)
		v.Form = tokenForm{
			Name: form.Get("name"), Role: form.Get("role"), Expires: form.Get("expires"), Reason: form.Get("reason"),
			Failed: cause(failed), At: tokenField(failed), Hint: failed.Hint,
		}
	}
	c.render(w, r, status, "tokens", frame{Title: "Tokens", Nav: "tokens", request: req, View: v})
}

// cause returns the detail of a problem without the operation that has failed. The form says what that is.
func cause(failed problem) string {
	if _, text, found := strings.Cut(failed.Detail, holdfast.ErrConflict.Error()+": "); found {
		return text
	}
	return failed.Detail
}

// newToken is the body of a new token.
func newToken(form url.Values) (any, error) {
	return textFields("name", "role", "expires", "reason")(form)
}

// tokenField returns the field of the form that a problem is about. The problem has only a text.
func tokenField(failed problem) string {
	if failed.Status == http.StatusConflict {
		return "name"
	}
	for _, known := range []struct{ word, field string }{{"reason", "reason"}, {"expire", "expires"}, {"role", "role"}, {"name", "name"}} {
		if strings.Contains(failed.Detail, known.word) {
			return known.field
		}
	}
	return ""
}
