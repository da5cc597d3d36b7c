package webhook

import (
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// Details are the facts about a failed request that are kept with the attempt.
type Details struct {
	URL       string            `json:"url"`              // without its query, which may hold a token
	Status    int               `json:"status,omitempty"` // 0 if no answer came
	Headers   map[string]string `json:"headers,omitempty"`
	Body      string            `json:"body,omitempty"` // its beginning, as valid UTF-8 without NUL
	Truncated bool              `json:"truncated,omitempty"`
	Duration  int64             `json:"duration_ms"`
}

// kept are the response headers that help to find out what happened.
var kept = []string{"Content-Type", "Content-Length", "Date", "Location", "Retry-After", "Server", "Via", "X-Request-Id"}

const (
	maxShown  = 500 // bytes of a URL
	maxHeader = 200 // bytes of a header's value
)

func detailsOf(p *request, a answer, took time.Duration) Details {
	d := Details{URL: shownURL(p.url), Status: a.status, Body: plain(string(a.body), len(a.body)), Truncated: a.truncated, Duration: took.Milliseconds()}
	for _, name := range kept {
		value := a.header.Get(name)
		if value == "" {
			continue
		}
		if name == "Location" {
			value = shownLocation(value)
		}
		if d.Headers == nil {
			d.Headers = make(map[string]string)
		}
		d.Headers[name] = plain(value, maxHeader)
	}
	return d
}

// shownURL is the URL without what may be secret: user, query and fragment.
func shownURL(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return plain(shown.String(), maxShown)
}

func shownLocation(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return ""
	}
	return shownURL(u)
}

// plain makes text storable: valid UTF-8 without NUL, at most limit bytes before
// broken characters were replaced.
func plain(text string, limit int) string {
	if len(text) > limit {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = text[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
