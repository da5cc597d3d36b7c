package console_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
)

// maxAssets is the maximum size of the compressed files that a browser loads, in bytes.
const maxAssets = 100 << 10

func TestAssets(t *testing.T) {
	w := onFile(t, "/holdfast")
	b := w.browser()
	kinds := map[string]string{"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
	total := 0
	for _, url := range w.console.Assets() {
		path := strings.TrimPrefix(url, w.prefix)
		name, tag, _ := strings.Cut(path, "?")
		r := b.get(path)
		if r.status != http.StatusOK || r.header.Get("Content-Type") != kinds[name[strings.LastIndexByte(name, '.')+1:]] || r.header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
			w.Errorf("%s: %d %v", path, r.status, r.header)
		}
		for _, other := range []string{name, name + "?x", name + "?" + tag + "x"} {
			if r := b.get(other); r.status != http.StatusOK || r.header.Get("Cache-Control") != "no-store" {
				w.Errorf("%s: %d %v", other, r.status, r.header)
			}
		}
		for _, part := range []string{"http://", "https://", "//cdn", "eval(", "innerHTML", "@import", "url("} {
			if strings.Contains(strings.ReplaceAll(r.text, "http://www.w3.org/2000/svg", ""), part) {
				w.Errorf("%s has %q", name, part)
			}
		}
		var packed bytes.Buffer
		to, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		w.must(err)
		_, err = to.Write([]byte(r.text))
		w.must(err)
		w.must(to.Close())
		w.Logf("%s: %d bytes, %d compressed", name, len(r.text), packed.Len())
		total += packed.Len()
	}
	if w.Logf("%d bytes in all, compressed", total); total > maxAssets || total == 0 {
		w.Errorf("the files have %d bytes, compressed; at most %d are allowed", total, maxAssets)
	}
	for _, name := range []string{"nosuch.js", "..%2fconsole.go", "%2e%2e/console.go", "..%2ftemplates%2flayout.html"} {
		if r := b.get("/assets/" + name); r.status != http.StatusNotFound {
			w.Errorf("%s: %d", name, r.status)
		}
	}
}
