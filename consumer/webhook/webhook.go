// Package webhook delivers tasks of type http: one attempt is one HTTP request.
//
// # The request
//
// The payload describes the request; see [Payload]. Every request has the headers of Standard Webhooks:
//
//   - webhook-id is the idempotency key of the task. All attempts of a task have the same key, and no two tasks of any
//     store have the same key. So a receiver can drop requests that it has already processed.
//   - webhook-timestamp is the time of the request.
//   - webhook-signature is present if the payload has a secret_ref. It contains one signature per key of that secret,
//     over the id, the timestamp and the body. A secret signs only requests to its own hosts.
//
// The header holdfast-attempt contains the number of the attempt. It grows with each attempt.
//
// With Options.Propagate, the request also has the headers that continue the trace of the attempt. If the payload sets a
// header traceparent or tracestate, the request has those of the payload only.
//
// Delivery is at least once: a receiver may get a request again although it responded. The id and the body are then the
// same.
//
// # The response
//
//   - A 2xx status is success as soon as the response headers have arrived.
//   - The statuses of Options.RetryStatuses and all transport errors are failures. They count as failed attempts, and
//     the policy of the task type decides about the retry. A Retry-After header overrides the delay of the policy. With
//     status 429, it makes the failure a deferral, which does not count as a failed attempt.
//   - The statuses 429 and 503 are marked with holdfast.Refused, 502 and 504 with holdfast.TargetFault, every other
//     status 5xx with holdfast.MessageFault, a transport error or a timeout with holdfast.NoAnswer, and every other
//     status but 2xx with holdfast.Answered.
//   - If the worker process has no file descriptors, buffers, local ports, network or resolver, the task is deferred
//     and nothing is counted (local.go).
//   - Every other status makes the task dead at once. This includes redirects, which are never followed.
//
// # What it never does
//
// The handler never connects to an address outside the public internet, unless Options.AllowCIDRs contains it. It
// checks the dialed address after name resolution, so no name or spelling can bypass the check. It does not use proxies
// from the environment, cookies or compressed responses. A response of any length or duration uses no more memory than
// Options.MaxResponse and a few buffers, and no more time than the timeout of the request plus one second.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfastq/holdfast"
)

// Type is the task type that the handler executes.
const Type = holdfast.TypeHTTP

// AttemptHeader is the request header with the number of the attempt, starting at 1.
const AttemptHeader = "holdfast-attempt"

// Options configures a Handler. The zero value is ready to use.
type Options struct {
	// AllowCIDRs are networks that requests may reach although they are private, loopback, link-local or otherwise
	// special.
	AllowCIDRs []netip.Prefix
	// Timeout bounds one request, from dialing to the last byte read. A payload may set a shorter timeout. The default
	// is 30 s.
	Timeout time.Duration
	// MaxRetryAfter is the longest delay that Retry-After can set. The default is 1 h.
	MaxRetryAfter time.Duration
	// MaxResponse is the number of bytes to keep of the body of a failed response, from 0 to 65536. 0 means 4096.
	MaxResponse int
	// RetryStatuses are the statuses to retry: a status such as "429", or a class such as "5xx". nil means 408, 425,
	// 429 and 5xx.
	RetryStatuses []string
	// Secrets are the secrets that sign requests, by the names in payloads.
	Secrets map[string]Secret
	// Propagate sets the headers traceparent and tracestate that continue the trace of ctx, the context of the attempt.
	// nil means that no trace is continued.
	Propagate func(ctx context.Context, header http.Header)
	// Version is the version in the User-Agent header, holdfast/<version>. The default is dev.
	Version string
}

// Secret signs the requests to its hosts.
type Secret struct {
	// Keys are signing keys: whsec_ followed by the base64 encoding of 24 to 64 bytes. Each key adds a signature. A
	// process that only validates payloads needs no keys.
	Keys []string
	// Hosts are the hosts to which the secret may sign requests, at least one. "api.example.com" matches any port,
	// "api.example.com:8443" one port, and "*.example.com" every name that ends in .example.com. The list prevents a
	// program that may enqueue tasks from obtaining signed requests to arbitrary hosts.
	Hosts []string
}

// Fixed limits.
const (
	drainBytes    = 64 << 10         // bytes read beyond the kept part of a body, so that the connection can be reused
	bodyTime      = time.Second      // for reading the body, after the headers arrived
	dialTime      = 10 * time.Second // for the TCP connection, and again for the TLS handshake
	headerBytes   = 64 << 10         // for all response headers together
	idlePerTarget = 16
	idleTotal     = 256
	idleTime      = 60 * time.Second
)

// Handler executes tasks of type http. It is safe for concurrent use.
type Handler struct {
	guard     *guard
	resolver  *resolver
	transport *http.Transport
	rules     rules
	secrets   map[string]*secret
	timeout   time.Duration
	maxBody   int
	agent     string
	propagate func(ctx context.Context, header http.Header) // nil without tracing
}

// New returns a handler. It returns holdfast.ErrInvalid if an option is out of range. The caller must close the
// handler.
func New(o Options) (*Handler, error) {
	rules, err := newRules(o)
	if err != nil {
		return nil, err
	}
	secrets, err := newSecrets(o.Secrets)
	if err != nil {
		return nil, err
	}
	guard, err := newGuard(o.AllowCIDRs)
	if err != nil {
		return nil, err
	}
	switch {
	case o.Timeout < 0:
		return nil, fmt.Errorf("%w: webhook: Timeout %s is negative", holdfast.ErrInvalid, o.Timeout)
	case o.MaxResponse < 0 || o.MaxResponse > 64<<10:
		return nil, fmt.Errorf("%w: webhook: MaxResponse %d is not between 0 and 65536", holdfast.ErrInvalid, o.MaxResponse)
	}
	return &Handler{
		guard: guard, resolver: new(resolver), transport: newTransport(guard.dialer()), rules: rules, secrets: secrets,
		timeout: cmp.Or(o.Timeout, 30*time.Second), maxBody: cmp.Or(o.MaxResponse, 4096),
		agent: "holdfast/" + cmp.Or(o.Version, "dev"), propagate: o.Propagate,
	}, nil
}

// newTransport returns a transport that dials only with the dialer of the guard. The transport supports HTTP/1.1 only.
// Its Proxy is nil, so it uses no proxy.
func newTransport(dialer *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    dialTime,
		DisableCompression:     true,
		MaxIdleConns:           idleTotal,
		MaxIdleConnsPerHost:    idlePerTarget,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: headerBytes,
	}
}

// Close closes idle connections. It does not interrupt requests in progress.
func (h *Handler) Close() { h.transport.CloseIdleConnections() }

// Validate returns holdfast.ErrInvalid, with a one-line message, if every attempt with the payload would fail. It does
// not resolve names, so an attempt may still fail because of a forbidden address. It checks secret_ref only if this
// handler has secrets, with or without keys.
func (h *Handler) Validate(payload []byte) error {
	p, err := parse(payload)
	if err != nil {
		return err
	}
	if p.SecretRef != "" && len(h.secrets) > 0 {
		secret, known := h.secrets[p.SecretRef]
		if !known {
			return fmt.Errorf("%w: there is no webhook secret named %.100q", holdfast.ErrInvalid, p.SecretRef)
		}
		if err := secret.checkTarget(p.url); err != nil {
			return err
		}
	}
	if p.timeout > h.timeout {
		return fmt.Errorf("%w: the timeout %s exceeds the limit of %s", holdfast.ErrInvalid, p.timeout, h.timeout)
	}
	return h.checkHost(p)
}

// checkHost returns an error if no request may go to the host.
func (h *Handler) checkHost(p *request) error {
	if err := h.guard.checkHost(p.url.Hostname()); err != nil {
		return err
	}
	return p.checkSpelling()
}

// Handle makes one request. It implements the handler interface of package consumer. The package documentation lists
// the results. Every failure has a class and [Details], unless ctx has ended for a reason other than a timeout.
func (h *Handler) Handle(ctx context.Context, task holdfast.Task) error {
	p, err := parse(task.Payload)
	if err != nil {
		return holdfast.Permanent(err)
	}
	target := p.Method + " " + redactedURL(p.url)
	var keys []*standardwebhooks.Webhook
	if p.SecretRef != "" {
		secret := h.secrets[p.SecretRef]
		if secret == nil || len(secret.keys) == 0 { // not permanent, because the worker may get the key later
			return holdfast.Detailed(fmt.Errorf("%s: this worker has no key for the webhook secret %.100q", target, p.SecretRef), classSecret,
				Details{URL: redactedURL(p.url)})
		}
		if err := secret.checkTarget(p.url); err != nil {
			return holdfast.Detailed(holdfast.Permanent(fmt.Errorf("%s: %w", target, err)), classSecretHost, Details{URL: redactedURL(p.url)})
		}
		keys = secret.keys
	}
	if err := h.checkHost(p); err != nil {
		return holdfast.Detailed(holdfast.Permanent(fmt.Errorf("%s: %w", target, err)), classForbidden, Details{URL: redactedURL(p.url)})
	}

	timeout := h.timeout
	if p.timeout > 0 {
		timeout = min(timeout, p.timeout)
	}
	began := time.Now()
	answer, err := h.exchange(ctx, task, p, keys, timeout)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%s: %w", target, context.Cause(ctx))
		if errors.Is(err, holdfast.ErrTimeout) {
			return holdfast.Detailed(holdfast.NoAnswer(err), classTimeout, detailsOf(p, answer, time.Since(began)))
		}
		return err
	}
	if err != nil && h.isWorkerFault(err) {
		h.transport.CloseIdleConnections() // frees their file descriptors
		err = fmt.Errorf("%w: %w", errWorkerFault, err)
	}
	class, result := h.rules.classify(answer.status, answer.header, err, time.Now())
	if result == nil {
		return nil
	}
	return holdfast.Detailed(fmt.Errorf("%s: %w", target, result), class, detailsOf(p, answer, time.Since(began)))
}

// answer is a response. Its status is 0 if no response arrived.
type answer struct {
	status    int
	header    http.Header
	body      []byte // the beginning of the body, for failures only
	truncated bool
}

// exchange makes the request and reads a bounded part of the response.
func (h *Handler) exchange(ctx context.Context, task holdfast.Task, p *request, keys []*standardwebhooks.Webhook, timeout time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, &timeoutError{timeout})
	defer cancel()
	req, err := p.build(ctx)
	if err != nil {
		return answer{}, err
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", h.agent)
	}
	if h.propagate != nil && req.Header.Get("traceparent") == "" && req.Header.Get("tracestate") == "" {
		h.propagate(ctx, req.Header)
	}
	if err := sign(req.Header, task, p.body, keys, time.Now()); err != nil {
		return answer{}, err
	}
	// RoundTrip, unlike Client.Do, follows no redirects, sends no cookies, and returns errors without the URL.
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return answer{}, err
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 1 || resp.StatusCode < 100 { // the transport checks only that the status has three digits
		return answer{}, fmt.Errorf("malformed HTTP response: %s with the status %03d", resp.Proto, resp.StatusCode)
	}
	stop := time.AfterFunc(bodyTime, cancel) // the status is known, so the body is less important
	defer stop.Stop()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if !success(a.status) {
		a.body, err = io.ReadAll(io.LimitReader(resp.Body, int64(h.maxBody)+1))
		a.truncated = err != nil || len(a.body) > h.maxBody
		a.body = a.body[:min(len(a.body), h.maxBody)]
	}
	_, _ = io.CopyN(io.Discard, resp.Body, drainBytes)
	return a, nil
}

// timeoutError is the cause of a request context that ended because of the timeout.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("no response within %s", e.after) }

// Unwrap makes errors.Is(e, context.DeadlineExceeded) true.
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }
