package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// Payload is the JSON payload of a task of type http. Only url is required. Unknown fields are errors.
type Payload struct {
	// URL is an http or https URL without user and password. Put credentials into a header. The host must have the
	// spelling of holdfast.ParseTarget. Characters that a URL cannot contain are escaped as browsers escape them.
	URL string `json:"url"`
	// Method is GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS. Empty means POST.
	Method string `json:"method,omitempty"`
	// Headers are sent unchanged. Validate refuses headers that the connection or the signature needs.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is any JSON value. A string is sent as text. Any other value is sent as compact JSON, with its numbers and
	// strings unchanged. null sends no body.
	Body json.RawMessage `json:"body,omitempty"`
	// BodyBase64 is a body of arbitrary bytes. It excludes Body.
	BodyBase64 string `json:"body_base64,omitempty"`
	// Timeout is a positive duration such as "10s", at most the timeout of the handler.
	Timeout string `json:"timeout,omitempty"`
	// SecretRef names the secret that signs the request.
	SecretRef string `json:"secret_ref,omitempty"`
}

// Limits of a payload.
const (
	maxHeaders     = 100
	maxHeaderBytes = 32 << 10 // of all names and values together
)

// request is a validated payload.
type request struct {
	Payload
	url     *url.URL
	target  string // the target, as the stores compute it
	body    []byte
	content string // Content-Type, unless Headers has one
	timeout time.Duration
}

// parse parses and validates a payload. Its errors wrap holdfast.ErrInvalid.
func parse(payload []byte) (*request, error) {
	p := &request{}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p.Payload); err != nil {
		return nil, fmt.Errorf("%w: invalid payload for type http: %s", holdfast.ErrInvalid, strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: invalid payload for type http: more than one JSON value", holdfast.ErrInvalid)
	}
	p.target = holdfast.TargetOf(Type, payload)
	for _, check := range []func() error{p.checkURL, p.checkMethod, p.checkHeaders, p.checkBody, p.checkTimeout} {
		if err := check(); err != nil {
			return nil, fmt.Errorf("%w: %w", holdfast.ErrInvalid, err)
		}
	}
	return p, nil
}

func (p *request) checkURL() error {
	if p.URL == "" {
		return errors.New("invalid payload for type http: field url is missing")
	}
	if len(p.URL) > holdfast.MaxURLLength {
		return fmt.Errorf("the url has %d bytes, the limit is %d", len(p.URL), holdfast.MaxURLLength)
	}
	if strings.Trim(p.URL, " ") != p.URL {
		return errors.New("the url begins or ends with a space; remove it, or write %20")
	}
	u, err := url.Parse(escapeURL(p.URL))
	var syntax *url.Error
	if errors.As(err, &syntax) { // the text of err would contain the whole URL
		return fmt.Errorf("cannot parse the url: %w", syntax.Err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("the url must begin with http:// or https://, not %.20q", u.Scheme)
	case u.Hostname() == "":
		return errors.New("the url has no host")
	case len(u.Hostname()) > holdfast.MaxHostLength:
		return fmt.Errorf("the host of the url has %d bytes, the limit is %d", len(u.Hostname()), holdfast.MaxHostLength)
	case u.User != nil:
		return errors.New("the url contains a user or password; use the Authorization header instead")
	case !validPort(u.Port()):
		return fmt.Errorf("the port %.20q of the url is not between 1 and 65535", u.Port())
	}
	if p.target == "" {
		return errors.New("the host of the url contains a zone or an escape")
	}
	p.url = u
	return nil
}

// escapeURL returns a URL without its fragment, which is not sent. It escapes path and query as browsers do: by the
// path percent-encode set and the special-query percent-encode set of the WHATWG URL Standard. Escapes in the text do
// not change.
func escapeURL(text string) string {
	text, _, _ = strings.Cut(text, "#")
	origin, rest := text, ""
	if start := strings.Index(text, "://"); start >= 0 {
		if end := strings.IndexAny(text[start+3:], "/?"); end >= 0 {
			origin, rest = text[:start+3+end], text[start+3+end:]
		}
	}
	path, query, hasQuery := strings.Cut(rest, "?")
	// Browsers read a backslash in a path as a slash. They send | unchanged. Package url would escape it, and would
	// then decode and escape the whole path.
	origin += escape(strings.ReplaceAll(path, `\`, "/"), "\"<>^`{}|")
	if hasQuery {
		origin += "?" + escape(query, `"<>'`)
	}
	return origin
}

// escape escapes spaces, the bytes of characters outside ASCII, and the characters in special. It keeps control
// characters, which package url refuses.
func escape(text, special string) string {
	var escaped strings.Builder
	for _, c := range []byte(text) {
		if c == ' ' || c >= 0x80 || strings.IndexByte(special, c) >= 0 {
			fmt.Fprintf(&escaped, "%%%02X", c)
		} else {
			escaped.WriteByte(c)
		}
	}
	return escaped.String()
}

// checkSpelling returns an error if the host has another spelling than the one in pauses and limits. Stores compare
// targets as text, so a pause would not affect another spelling.
func (p *request) checkSpelling() error {
	normal, ok := holdfast.ParseTarget(p.URL)
	if ok && normal == p.target {
		return nil
	}
	if !ok {
		normal, ok = holdfast.ParseTarget(p.url.Scheme + "://" + asciiHost(p.url))
	}
	u, err := url.Parse(normal)
	if !ok || err != nil {
		return fmt.Errorf("%w: the host %.100q is neither a name nor an address in standard form", holdfast.ErrInvalid, p.url.Hostname())
	}
	return fmt.Errorf("%w: write the host of the url as %s, not as %.100q; pauses and limits of a target apply to one spelling only",
		holdfast.ErrInvalid, strings.TrimSuffix(u.Host, ":"+u.Port()), p.url.Hostname())
}

// errNotDialed ends the dial of asciiHost.
var errNotDialed = errors.New("not dialed")

// asciiHost returns the host and the port that a request for the URL dials, such as xn--bcher-kva.example:80. It makes
// no request. Package net/http implements the rules for such names, but exports no other way to apply them.
func asciiHost(u *url.URL) (address string) {
	transport := &http.Transport{DialContext: func(_ context.Context, _, dialed string) (net.Conn, error) {
		address = dialed
		return nil, errNotDialed
	}}
	resp, err := transport.RoundTrip(&http.Request{URL: &url.URL{Scheme: "http", Host: u.Host}, Header: http.Header{}})
	if err == nil {
		_ = resp.Body.Close()
	}
	return address
}

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

func (p *request) checkMethod() error {
	p.Method = strings.ToUpper(p.Method)
	switch p.Method {
	case "":
		p.Method = http.MethodPost
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		return fmt.Errorf("the method %.20q is not GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS", p.Method)
	}
	return nil
}

// reserved are the headers that a payload may not set, in canonical form.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Keep-Alive": true, "Upgrade": true,
	"Trailer": true, "Te": true, "Expect": true, "Proxy-Connection": true, "Proxy-Authorization": true, "Holdfast-Attempt": true,
	"Webhook-Id": true, "Webhook-Timestamp": true, "Webhook-Signature": true,
}

func (p *request) checkHeaders() error {
	if len(p.Headers) > maxHeaders {
		return fmt.Errorf("%d headers exceed the limit of %d", len(p.Headers), maxHeaders)
	}
	size := 0
	seen := make(map[string]bool, len(p.Headers))
	for name, value := range p.Headers {
		size += len(name) + len(value)
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !token(name):
			return fmt.Errorf("%.100q is not a valid header name", name)
		case reserved[canonical]:
			return fmt.Errorf("the header %s cannot be set", canonical)
		case seen[canonical]:
			return fmt.Errorf("the header %s is set twice", canonical)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return fmt.Errorf("the value of the header %s contains a control character", canonical)
		}
		seen[canonical] = true
	}
	if size > maxHeaderBytes {
		return fmt.Errorf("the headers have %d bytes, the limit is %d", size, maxHeaderBytes)
	}
	return nil
}

// token reports whether name is a token as RFC 9110 defines it.
func token(name string) bool {
	for _, c := range []byte(name) {
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != ""
}

func (p *request) checkBody() error {
	given := len(p.Body) > 0 && string(p.Body) != "null"
	switch {
	case given && p.BodyBase64 != "":
		return errors.New("give body or body_base64, not both")
	case p.BodyBase64 != "":
		body, err := base64.StdEncoding.DecodeString(p.BodyBase64)
		if err != nil {
			return fmt.Errorf("cannot decode body_base64: %w", err)
		}
		p.body, p.content = body, "application/octet-stream"
	case given && p.Body[0] == '"':
		var text string
		if err := json.Unmarshal(p.Body, &text); err != nil {
			return fmt.Errorf("cannot parse body: %w", err)
		}
		p.body, p.content = []byte(text), "text/plain; charset=utf-8"
	case given:
		var compact bytes.Buffer
		if err := json.Compact(&compact, p.Body); err != nil {
			return fmt.Errorf("cannot parse body: %w", err)
		}
		p.body, p.content = compact.Bytes(), "application/json"
	}
	return nil
}

func (p *request) checkTimeout() error {
	if p.Timeout == "" {
		return nil
	}
	d, err := time.ParseDuration(p.Timeout)
	if err != nil || d <= 0 {
		return fmt.Errorf("the timeout %.40q is not a positive duration like 10s", p.Timeout)
	}
	p.timeout = d
	return nil
}

// build returns the request without the headers that are common to all requests.
func (p *request) build(ctx context.Context) (*http.Request, error) {
	var body io.Reader
	if p.body != nil {
		body = bytes.NewReader(p.body)
	}
	req, err := http.NewRequestWithContext(ctx, p.Method, p.url.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", holdfast.ErrInvalid, err)
	}
	if p.content != "" {
		req.Header.Set("Content-Type", p.content)
	}
	for name, value := range p.Headers {
		req.Header.Set(name, value)
	}
	// If the target closed a kept connection in the meantime, the task has not failed. With this header, the transport
	// retries on a new connection. The transport does not send the header if it is empty.
	if req.Header.Get("X-Idempotency-Key") == "" {
		req.Header["X-Idempotency-Key"] = []string{}
	}
	return req, nil
}
