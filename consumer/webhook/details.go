package webhook

import (
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// Details describe a failed request. They are stored with the attempt.
type Details struct {
	URL       string            `json:"url"`              // without its query, which may contain a token
	Status    int               `json:"status,omitempty"` // 0 if no response arrived
	Headers   map[string]string `json:"headers,omitempty"`
	Body      string            `json:"body,omitempty"` // the beginning of the body, as valid UTF-8 without NUL
	Truncated bool              `json:"truncated,omitempty"`
	Duration  int64             `json:"duration_ms"`
}

// keptHeaders are the response headers in Details.
var keptHeaders = []string{"Content-Type", "Content-Length", "Date", "Location", "Retry-After", "Server", "Via", "X-Request-Id"}

const (
	maxRedactedURL = 500 // bytes of a URL
	maxHeaderValue = 200 // bytes of a header's value
)

func detailsOf(p *request, a answer, took time.Duration) Details {
	d := Details{URL: redactedURL(p.url), Status: a.status, Body: storableText(string(a.body), len(a.body)), Truncated: a.truncated, Duration: took.Milliseconds()}
	for _, name := range keptHeaders {
		value := a.header.Get(name)
		if value == "" {
			continue
		}
		if name == "Location" {
			value = redactedLocation(value)
		}
		if d.Headers == nil {
			d.Headers = make(map[string]string)
		}
		d.Headers[name] = storableText(value, maxHeaderValue)
	}
	return d
}

// redactedURL returns the URL without the parts that may be secret: user, query and fragment.
func redactedURL(u *url.URL) string {
	redacted := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return storableText(redacted.String(), maxRedactedURL)
}

func redactedLocation(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return ""
	}
	return redactedURL(u)
}

// storableText returns text as valid UTF-8 without NUL. It first cuts text to at most limit bytes; the replacement of
// invalid bytes can make the result longer.
func storableText(text string, limit int) string {
	if len(text) > limit {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = text[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
