package console

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/holdfastq/holdfast/internal/access"
)

// signIn is the view of the page that asks for a token.
type signIn struct {
	To     string // the page that the caller wanted
	Failed string // why the token was refused
}

func (c *Console) showLogin(w http.ResponseWriter, r *http.Request) {
	c.render(w, r, http.StatusOK, "login", frame{Title: "Sign in", View: signIn{To: c.local(r.URL.Query().Get("to"))}})
}

// maxForm is the maximum size of a form without a payload in bytes.
const maxForm = 4 << 20

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	if !c.readForm(w, r, maxForm) {
		return
	}
	to := c.local(r.FormValue("to"))
	cookie, _, err := c.guard.SignIn(r, c.root(), strings.TrimSpace(r.PostFormValue("token")))
	if denied, ok := errors.AsType[*access.Error](err); ok {
		c.render(w, r, http.StatusUnauthorized, "login", frame{Title: "Sign in", View: signIn{to, denied.Detail}})
		return
	}
	if err != nil {
		c.fail(w, r, 0, err)
		return
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: access.SessionCookie, Path: c.root(), MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, c.o.Prefix+"/login", http.StatusSeeOther)
}

// root is the path of the cookies.
func (c *Console) root() string { return c.o.Prefix + "/" }

// local returns a path of the console. For anything else it returns the overview, so that no link leads elsewhere.
func (c *Console) local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, c.o.Prefix+"/") || strings.HasPrefix(u.Path, "//") ||
		!strings.HasPrefix(path.Clean(u.Path)+"/", c.o.Prefix+"/") {
		return c.o.Prefix + "/"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}

// notice says what a change has done, on the page after it.
type notice struct {
	Text   string
	Link   string // to the outcome; "" if there is none
	Undo   string // the operation of the HTTP API that takes the change back; "" if there is none
	ID     string // of the task, for Undo
	Failed bool
}

// noticeCookie carries the notice from the answer to a form to the next page.
const noticeCookie = "holdfast_notice"

func (c *Console) setNotice(w http.ResponseWriter, n notice) {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // it has only texts
	}
	http.SetCookie(w, &http.Cookie{
		Name: noticeCookie, Value: base64.RawURLEncoding.EncodeToString(text), Path: c.root(), MaxAge: 60, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// takeNotice returns the notice of a request, and removes it.
func takeNotice(w http.ResponseWriter, r *http.Request, prefix string) (n notice) {
	cookie, err := r.Cookie(noticeCookie)
	if err != nil {
		return n
	}
	http.SetCookie(w, &http.Cookie{Name: noticeCookie, Path: prefix + "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	if text, err := base64.RawURLEncoding.DecodeString(cookie.Value); err != nil || json.Unmarshal(text, &n) != nil {
		return notice{}
	}
	return n
}
