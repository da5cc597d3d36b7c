package console_test

import (
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/store"
)

// urlsOf returns the URLs of each page of the table, with the paths of the pages that have parameters; if sampled, one of
// each page.
func (w *world) urlsOf(paths map[string][]string) map[string][]string {
	w.Helper()
	urls := make(map[string][]string)
	for _, p := range w.console.Pages() {
		switch {
		case p.Path == "/{$}":
			urls[p.Name] = []string{"/"}
		case p.Path == newOperation:
			urls[p.Name] = []string{p.Path, p.Path + "?action=retry&query=state:dead", p.Path + "?query=odd%20field:1"}
		case p.Path == changeSetting:
			at := p.Path + "?key=types.mail.retry.base"
			urls[p.Name] = []string{
				p.Path, at, at + "&value=7s", at + "&value=odd", at + "&unset=1", p.Path + "?key=nosuch&value=x", p.Path + "?key=defaults.timeout&unset=1",
				p.Path + "?" + url.Values{"key": {hostile("setting")}, "value": {hostile("value")}, "reason": {hostile("reason")}}.Encode(),
			}
		case !strings.Contains(p.Path, "{"):
			urls[p.Name] = []string{p.Path, p.Path + "?all=1&resolved=1", p.Path + "?q=state:dead", p.Path + "?q=odd%20field:1&since=odd&before=1"}
		default:
			pattern, rest, _ := strings.Cut(p.Path, "}")
			if len(paths[pattern+"}"]) == 0 {
				w.Errorf("the test stores nothing for the page %s", p.Path)
			}
			for _, path := range paths[pattern+"}"] {
				urls[p.Name] = append(urls[p.Name], path+rest)
			}
		}
		if sampled {
			urls[p.Name] = urls[p.Name][:1]
		}
	}
	return urls
}

// TestTemplatesParse parses every template. Without it, only a request of the page would find a mistake.
func TestTemplatesParse(t *testing.T) {
	w := onFile(t, "")
	names := append(w.console.ParseAll(), "layout", "parts")
	files, err := filepath.Glob("templates/*.html")
	if err != nil || len(files) == 0 {
		t.Fatal("no templates", err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".html"); !slices.Contains(names, name) {
			t.Errorf("%s is not the template of a page", file)
		}
	}
}

// TestTheFirstRequestParses checks that New parses no template, because the worker of the process starts after New.
func TestTheFirstRequestParses(t *testing.T) {
	w := onFile(t, "")
	parsed, b := w.console.CountParsed(), w.browser()
	for _, visit := range []struct {
		path string
		want int
	}{{"/queues", 1}, {"/queues", 1}, {"/workers", 2}, {"/queues", 2}} {
		if r := b.get(visit.path); r.status != http.StatusOK || parsed() != visit.want {
			t.Errorf("%s: %d, %d templates parsed, want %d", visit.path, r.status, parsed(), visit.want)
		}
	}
}

func TestEveryPageOfAnEmptyStore(t *testing.T) {
	everywhere(t, func(w *world) {
		b := w.browser()
		for _, p := range w.console.Pages() {
			path, status := strings.TrimSuffix(p.Path, "{$}"), http.StatusOK
			if strings.Contains(path, "{") {
				before, after, _ := strings.Cut(path, "{")
				_, after, _ = strings.Cut(after, "}")
				path, status = strings.NewReplacer("{id}", "77777", "{fingerprint}", "3f9ad02c41b7e685", "{name}", "nosuch").Replace(path), http.StatusNotFound
				for _, odd := range []string{"x", "-1", "99999999999999999999", "a%2Fb", "%00"} {
					if r := b.get(before + odd + after); r.status < 400 || r.status >= 500 {
						w.Errorf("%s with %s: %d %s", p.Path, odd, r.status, r.summary())
					}
				}
			}
			if r := b.get(path); r.status != status || len(r.find("h1", "")) != 1 {
				w.Errorf("%s: %d %s", path, r.status, r.summary())
			}
		}
	})
}

// TestEveryPage renders every page of a store with data of every kind. The data has scripts in every text that may have
// them, and each is a text on some page.
func TestEveryPage(t *testing.T) {
	everywhere(t, func(w *world) {
		urls := w.urlsOf(w.seed())
		b := w.as(store.Admin)
		w.token("revoked", store.Viewer)
		w.must(w.Store.RevokeToken(w.Context(), tester, "revoked"))
		var all strings.Builder
		for name, list := range urls {
			for _, at := range list {
				r := b.get(at)
				if r.status != http.StatusOK || len(r.find("h1", "")) != 1 {
					w.Errorf("%s: %s: %d %s", name, at, r.status, r.summary())
				}
				w.checkText(at, r.text)
				all.WriteString(r.text)
			}
		}
		for _, path := range []string{"/tasks?q=" + url.QueryEscape(hostile("q")), "/dead?q=" + url.QueryEscape(hostile("q")), "/audit?actor=" + url.QueryEscape(hostile("q")), "/login?to=" + url.QueryEscape(hostile("q")),
			"/tasks?before=" + url.QueryEscape(hostile("q")), "/" + url.QueryEscape(hostile("q")), "/tasks/" + url.QueryEscape(hostile("q")), "/workers?all=" + url.QueryEscape(hostile("q"))} {
			r := b.get(path)
			if r.status >= 500 {
				w.Errorf("%s: %d", path, r.status)
			}
			w.checkText(path, r.text)
		}
		for _, field := range hostileFields {
			if !sampled && !strings.Contains(all.String(), "alert("+field+")") {
				w.Errorf("no page has the hostile %s", field)
			}
		}
	})
}

// checkText checks that hostile texts are only texts.
func (w *world) checkText(label, text string) {
	w.Helper()
	if i := strings.Index(text, "<script>alert"); i >= 0 {
		w.Errorf("%s: a script: %s", label, text[max(0, i-200):min(len(text), i+100)])
	}
}

func TestHeadersOfEveryAnswer(t *testing.T) {
	w := onFile(t, "/holdfast")
	b := w.browser() // checks the headers
	for _, c := range []struct {
		method, path string
		status       int
		kind, cache  string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8", "no-store"},
		{"HEAD", "/tasks", 200, "text/html; charset=utf-8", "no-store"},
		{"GET", "/login", 200, "text/html; charset=utf-8", "no-store"},
		{"GET", "/nosuch", 404, "text/html; charset=utf-8", "no-store"},
		{"GET", "/assets/nosuch", 404, "text/html; charset=utf-8", "no-store"},
		{"GET", "/tasks/x", 422, "text/html; charset=utf-8", "no-store"},
		{"PUT", "/tasks", 405, "text/html; charset=utf-8", "no-store"},
		{"POST", "/do/nosuch", 404, "text/html; charset=utf-8", "no-store"},
		{"POST", "/do/retryTask", 400, "text/html; charset=utf-8", "no-store"},
		{"POST", "/logout", 303, "", "no-store"},
		{"GET", "/assets/console.css", 200, "text/css; charset=utf-8", "no-store"},
	} {
		r := b.send(c.method, c.path, nil, "Sec-Fetch-Site", "same-origin")
		if r.status != c.status || r.header.Get("Content-Type") != c.kind || r.header.Get("Cache-Control") != c.cache {
			w.Errorf("%s %s: %d %q %q %s", c.method, c.path, r.status, r.header.Get("Content-Type"), r.header.Get("Cache-Control"), r.summary())
		}
	}
}

// TestEveryLinkStaysBelowThePrefix follows every link of every page. checkDocument checks where it leads.
func TestEveryLinkStaysBelowThePrefix(t *testing.T) {
	w := onFile(t, "/holdfast")
	w.seed()
	admin := w.as(store.Admin)
	pages := w.crawl(admin)
	if r := admin.get("/assets/nosuch"); r.status != http.StatusNotFound {
		w.Errorf("an unknown asset: %d", r.status)
	}
	for _, p := range w.console.Pages() {
		prefix, _, _ := strings.Cut(p.Path, "{")
		if !sampled && !slices.ContainsFunc(pages, func(at string) bool { return strings.HasPrefix(at, prefix) }) {
			w.Errorf("no link leads to the page %s", p.Path)
		}
	}
	w.crawl(w.as(store.Viewer))
}

// crawl follows all links from the overview, or the first 40 of them if sampled, and returns their URLs below the prefix.
func (w *world) crawl(b *browser) (urls []string) {
	w.Helper()
	urls = []string{"/"}
	from := map[string]string{}
	for i := 0; i < len(urls) && !(sampled && i == 40); i++ {
		r := b.get(urls[i])
		if r.status != http.StatusOK {
			w.Errorf("the link %s of the page %s: %d", urls[i], from[urls[i]], r.status)
		}
		if bad := r.find("p", "bad"); strings.HasPrefix(urls[i], "/tasks?") && len(bad) > 0 {
			w.Errorf("the link %s of the page %s: %s", urls[i], from[urls[i]], bad[0].text)
		}
		for _, e := range r.elements {
			for _, name := range []string{"href", "src"} {
				link, found := strings.CutPrefix(e.attrs[name], w.prefix)
				if found && !strings.HasPrefix(e.attrs[name], "#") && !slices.Contains(urls, link) {
					urls, from[link] = append(urls, link), urls[i]
				}
			}
		}
	}
	return urls
}
