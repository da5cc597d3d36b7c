package console_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/console"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/backendtest"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// world is a console over a backend that no other test uses.
type world struct {
	*backendtest.World
	api     *api.API
	console *console.Console
	prefix  string
	url     string // of the server, without the prefix
	log     *logText
	slots   int // of the API; 0 means its default
}

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// reset removes the text.
func (l *logText) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// everywhere runs a test on servers and on a file.
func everywhere(t *testing.T, run func(w *world)) {
	backendtest.Everywhere(t, func(t *testing.T, settings []string) { run(newWorld(t, settings, "")) })
}

// onAFileFirst runs a test of what does not depend on the store on a file, and with the slow tests on servers too.
func onAFileFirst(t *testing.T, run func(w *world)) {
	t.Parallel()
	t.Run("servers", func(t *testing.T) {
		slow.Skip(t)
		t.Parallel()
		run(newWorld(t, backendtest.ServerSettings(t), ""))
	})
	t.Run("embedded", func(t *testing.T) { run(onFile(t, "")) })
}

// onFile returns a world on a file, below a prefix.
func onFile(t *testing.T, prefix string) *world {
	t.Parallel()
	return newWorld(t, backendtest.FileSettings(t), prefix)
}

func newWorld(t *testing.T, settings []string, prefix string) *world {
	t.Helper()
	w := &world{World: backendtest.Open(t, settings), prefix: prefix, log: new(logText)}
	w.serve()
	return w
}

// serve starts a server with a console over the backend. At the end of the test, the log must have no error.
func (w *world) serve() {
	w.Helper()
	log := logrus.New()
	log.SetOutput(w.log)
	log.SetLevel(logrus.TraceLevel)
	hint := func(h holdfast.Hint) string { return string(h.Kind) }
	a := api.New(api.Options{Backend: w.Backend, Version: "test", Log: log, Hint: hint, Concurrency: w.slots})
	c := console.New(console.Options{Backend: w.Backend, API: a, Prefix: w.prefix, Version: "test", Log: log, Hint: hint})
	mux := http.NewServeMux()
	mux.Handle(w.prefix+"/", c)
	server := httptest.NewServer(mux)
	if err := a.Bind(w.Context(), server.Listener.Addr()); err != nil {
		w.Fatal(err)
	}
	w.api, w.console, w.url = a, c, server.URL
	w.Cleanup(func() {
		c.Stop()
		server.Close()
		if err := a.Close(); err != nil {
			w.Error(err)
		}
		if text := w.log.String(); strings.Contains(text, "panic") {
			w.Errorf("the log of the console: %s", text)
		}
	})
}

var tester = store.Actor{Name: "tester", Surface: store.Library}

// token creates a token and returns its secret.
func (w *world) token(name string, role store.TokenRole) string {
	w.Helper()
	secret, err := w.CreateToken(w.Context(), tester, name, role, 0)
	if err != nil {
		w.Fatal(err)
	}
	return secret
}

// browser is a browser of a person. It keeps cookies, does not follow redirects, and checks every answer.
type browser struct {
	*world
	client *http.Client
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.Fatal(err)
	}
	return &browser{w, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// as returns a browser with a session of a new token. The token has the name of the role.
func (w *world) as(role store.TokenRole) *browser {
	w.Helper()
	b := w.browser()
	if r := b.post("/login", url.Values{"token": {w.token(string(role), role)}}); r.status != http.StatusSeeOther {
		w.Fatalf("sign in: %d %s", r.status, r.text)
	}
	return b
}

// answer is the answer to a request of a browser.
type answer struct {
	status int
	header http.Header
	text   string
	document
}

// summary returns the heading and the messages of a page.
func (r answer) summary() string {
	var texts []string
	for _, e := range r.elements {
		if e.name == "h1" || e.attrs["class"] == "bad" || e.attrs["class"] == "hint" {
			texts = append(texts, strings.TrimSpace(e.text))
		}
	}
	return strings.Join(texts, ": ")
}

func (b *browser) get(path string, headers ...string) answer {
	b.Helper()
	return b.send(http.MethodGet, path, nil, headers...)
}

// post sends a form, as a browser does for a page of the console.
func (b *browser) post(path string, form url.Values, headers ...string) answer {
	b.Helper()
	return b.send(http.MethodPost, path, form, append([]string{"Sec-Fetch-Site", "same-origin"}, headers...)...)
}

// send sends a request to a path below the prefix. The headers are pairs of a name and a value.
func (b *browser) send(method, path string, form url.Values, headers ...string) answer {
	b.Helper()
	request := b.request(b.Context(), method, path, form, headers...)
	got, err := b.client.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		b.Fatal(err)
	}
	r := answer{status: got.StatusCode, header: got.Header, text: string(body)}
	b.checkHeaders(method+" "+path, r.header)
	if kind := r.header.Get("Content-Type"); strings.HasPrefix(kind, "text/html") && r.header.Get("Location") == "" {
		if r.document, err = parse(r.text); err != nil {
			b.Fatalf("%s %s: %v in %s", method, path, err, r.text)
		}
		b.checkDocument(method+" "+path, r.document)
	}
	return r
}

func (b *browser) request(ctx context.Context, method, path string, form url.Values, headers ...string) *http.Request {
	b.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	request, err := http.NewRequestWithContext(ctx, method, b.url+b.prefix+path, body)
	if err != nil {
		b.Fatal(err)
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		if request.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	return request
}

// document is what tests read of a page.
type document struct {
	elements []element
	forms    []form
}

type element struct {
	name  string
	attrs map[string]string
	text  string // directly inside
}

// form is a form with the values that it has at first.
type form struct {
	action, method string
	fields         url.Values
	hidden         map[string]bool
	examples       map[string]string // the placeholders
}

// parse reads a page. The templates write HTML that is also well-formed by the rules of package xml in its lenient mode,
// which finds an element that is not closed.
func parse(text string) (d document, err error) {
	decoder := xml.NewDecoder(strings.NewReader(text))
	decoder.Strict, decoder.AutoClose, decoder.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var open []int // indexes of elements
	current := -1  // index of the form
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return d, nil
		}
		if err != nil {
			return d, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: strings.ToLower(token.Name.Local), attrs: make(map[string]string)}
			for _, a := range token.Attr {
				e.attrs[strings.ToLower(a.Name.Local)] = a.Value
			}
			open = append(open, len(d.elements))
			d.elements = append(d.elements, e)
			switch e.name {
			case "form":
				current = len(d.forms)
				d.forms = append(d.forms, form{e.attrs["action"], strings.ToLower(e.attrs["method"]), make(url.Values), make(map[string]bool), make(map[string]string)})
			case "input", "textarea", "select":
				if name := e.attrs["name"]; name != "" && current >= 0 {
					f := d.forms[current]
					f.fields.Add(name, e.attrs["value"])
					f.hidden[name] = e.attrs["type"] == "hidden"
					f.examples[name] = e.attrs["placeholder"]
				}
			}
		case xml.EndElement:
			open = open[:len(open)-1]
			if strings.EqualFold(token.Name.Local, "form") {
				current = -1
			}
		case xml.CharData:
			if len(open) > 0 {
				d.elements[open[len(open)-1]].text += string(token)
			}
		}
	}
}

// find returns the elements with a name and a class; an empty class matches all.
func (d document) find(name, class string) (found []element) {
	for _, e := range d.elements {
		if e.name == name && (class == "" || e.attrs["class"] == class) {
			found = append(found, e)
		}
	}
	return found
}

// formFor returns the first form that is sent to an action of the console.
func (d document) formFor(name string) (form, bool) {
	for _, f := range d.forms {
		if strings.HasSuffix(f.action, "/do/"+name) {
			return f, true
		}
	}
	return form{}, false
}

// checkHeaders checks the headers that every answer has.
func (w *world) checkHeaders(label string, header http.Header) {
	w.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy": console.Policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
		"Cross-Origin-Opener-Policy": "same-origin",
	} {
		if got := header.Values(name); len(got) != 1 || got[0] != want {
			w.Errorf("%s: %s is %q, not %q", label, name, got, want)
		}
	}
}

// checkDocument checks that a page has neither scripts nor styles of its own, and no URL outside of the prefix.
func (w *world) checkDocument(label string, d document) {
	w.Helper()
	for _, e := range d.elements {
		if (e.name == "script" || e.name == "style") && (strings.TrimSpace(e.text) != "" || e.attrs["src"] == "") {
			w.Errorf("%s: an inline %s", label, e.name)
		}
		for name, value := range e.attrs {
			switch {
			case name == "style" || strings.HasPrefix(name, "on") || name == "srcdoc":
				w.Errorf("%s: <%s %s=%q>", label, e.name, name, value)
			case name == "href" || name == "src" || name == "action" || name == "formaction" || name == "poster" || name == "data":
				if !strings.HasPrefix(value, "#") && (!strings.HasPrefix(value, w.prefix+"/") || strings.HasPrefix(value, "//")) {
					w.Errorf("%s: <%s %s=%q> leads out of the console", label, e.name, name, value)
				}
			}
		}
	}
}
