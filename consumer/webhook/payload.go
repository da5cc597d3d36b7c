package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// Payload is the JSON object a task of type http carries. Only url is required;
// unknown fields are refused.
type Payload struct {
	// URL is http or https, without user and password: put those into a header.
	URL string `json:"url"`
	// Method is GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS. Empty means POST.
	Method string `json:"method,omitempty"`
	// Headers are sent as they are, except those the connection or the signature
	// needs, which are refused.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is any JSON value. A string is sent as its text, anything else as compact
	// JSON with its numbers and strings as they were written. null sends no body.
	Body json.RawMessage `json:"body,omitempty"`
	// BodyBase64 is a body of any bytes, instead of Body.
	BodyBase64 string `json:"body_base64,omitempty"`
	// Timeout is a duration like "10s", more than zero and at most the handler's.
	Timeout string `json:"timeout,omitempty"`
	// SecretRef names the secret that signs the request.
	SecretRef string `json:"secret_ref,omitempty"`
}

// Bounds of a payload's parts.
const (
	maxURL         = 8 << 10 // bytes
	maxHeaders     = 100
	maxHeaderBytes = 32 << 10 // of all names and values together
)

// request is a payload that was checked.
type request struct {
	Payload
	url     *url.URL
	body    []byte
	content string // Content-Type, unless Headers has one
	timeout time.Duration
}

// parse reads and checks a payload. Its errors wrap holdfast.ErrInvalid.
func parse(payload []byte) (*request, error) {
	p := &request{}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p.Payload); err != nil {
		return nil, fmt.Errorf("%w: the payload is no http request: %s", holdfast.ErrInvalid, strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the payload is more than one JSON value", holdfast.ErrInvalid)
	}
	for _, check := range []func() error{p.checkURL, p.checkMethod, p.checkHeaders, p.checkBody, p.checkTimeout} {
		if err := check(); err != nil {
			return nil, fmt.Errorf("%w: %w", holdfast.ErrInvalid, err)
		}
	}
	return p, nil
}

func (p *request) checkURL() error {
	if p.URL == "" {
		return errors.New(`the payload needs a "url"`)
	}
	if len(p.URL) > maxURL {
		return fmt.Errorf("the url has %d bytes, the limit is %d", len(p.URL), maxURL)
	}
	u, err := url.Parse(p.URL)
	var syntax *url.Error
	if errors.As(err, &syntax) { // whose own text would repeat the whole URL
		return fmt.Errorf("the url cannot be read: %w", syntax.Err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("the url must begin with http:// or https://, not %.20q", u.Scheme)
	case u.Hostname() == "":
		return errors.New("the url names no host")
	case u.User != nil:
		return errors.New("the url holds a user or password; use the header Authorization")
	case !goodPort(u.Port()):
		return fmt.Errorf("the url's port %.20q is not between 1 and 65535", u.Port())
	case strings.Contains(u.Host, "%"):
		return errors.New("the url's host holds a zone or an escape")
	}
	p.url = u
	return nil
}

func goodPort(text string) bool {
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

// reserved are the headers a payload may not set, in canonical form.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Keep-Alive": true, "Upgrade": true,
	"Trailer": true, "Te": true, "Expect": true, "Proxy-Connection": true, "Proxy-Authorization": true, "Holdfast-Attempt": true,
	"Webhook-Id": true, "Webhook-Timestamp": true, "Webhook-Signature": true,
}

func (p *request) checkHeaders() error {
	if len(p.Headers) > maxHeaders {
		return fmt.Errorf("%d headers are more than the limit of %d", len(p.Headers), maxHeaders)
	}
	size := 0
	seen := make(map[string]bool, len(p.Headers))
	for name, value := range p.Headers {
		size += len(name) + len(value)
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !token(name):
			return fmt.Errorf("%.100q is not the name of a header", name)
		case reserved[canonical]:
			return fmt.Errorf("the header %s cannot be set", canonical)
		case seen[canonical]:
			return fmt.Errorf("the header %s is set twice", canonical)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return fmt.Errorf("the value of the header %s holds a control character", canonical)
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
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
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
			return fmt.Errorf("body_base64 cannot be read: %w", err)
		}
		p.body, p.content = body, "application/octet-stream"
	case given && p.Body[0] == '"':
		var text string
		if err := json.Unmarshal(p.Body, &text); err != nil {
			return fmt.Errorf("body cannot be read: %w", err)
		}
		p.body, p.content = []byte(text), "text/plain; charset=utf-8"
	case given:
		var compact bytes.Buffer
		if err := json.Compact(&compact, p.Body); err != nil {
			return fmt.Errorf("body cannot be read: %w", err)
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
		return fmt.Errorf("the timeout %.40q is not a duration like 10s, more than zero", p.Timeout)
	}
	p.timeout = d
	return nil
}

// build makes the request, without the headers every request has.
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
	// A kept connection the target closed meanwhile is no failure of the task. The
	// transport tries again on a new one if it sees this header, and does not send it
	// when it is empty.
	if req.Header.Get("X-Idempotency-Key") == "" {
		req.Header["X-Idempotency-Key"] = []string{}
	}
	return req, nil
}
