// Package webhook delivers tasks of type http: one attempt is one HTTP request.
//
// # What is sent
//
// The payload names the request; see [Payload]. Every request carries the headers
// of Standard Webhooks: webhook-id is the task's idempotency key, the same at every
// attempt and of no other task of any store, so a receiver can drop what it has seen;
// webhook-timestamp; and, if the payload has a secret_ref, webhook-signature, with one
// signature for every key of that secret, over the id, the timestamp and the body. A
// secret signs requests to its own hosts only.
// holdfast-attempt is the number of the attempt, and grows.
//
// Delivery is at least once: a receiver may get the same webhook-id again although
// it answered, and the body and id are then the same.
//
// # What an answer means
//
// 2xx is success, as soon as its headers have arrived. The statuses of
// Options.RetryStatuses, and everything that went wrong on the way, are failures
// that are counted and retried by the policy of the type. Retry-After overrides the
// policy's delay; together with 429 it is a deferral that is not counted as a failure. If
// this worker has no file descriptors, buffers, local ports, network or resolver, the task is
// deferred and nothing is counted (local.go). Every
// other status makes the task dead at once, redirects included: they are never
// followed.
//
// # What is never done
//
// No address outside the public internet is called unless Options.AllowCIDRs names
// it. The check is made on the address that is dialled, after the name was resolved,
// and cannot be talked out of by a clever name or spelling. Proxies of the
// environment, cookies and compressed answers are not used. No answer, however long
// or slow, takes more memory than Options.MaxResponse and a few buffers, or more
// time than the request's timeout and a second.
package webhook

import (
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

// Type is the task type the handler is for.
const Type = "http"

// AttemptHeader is the request header with the number of the attempt, from 1.
const AttemptHeader = "holdfast-attempt"

// Options configures a Handler. The zero value is usable.
type Options struct {
	// AllowCIDRs are networks that may be called although they are private,
	// loopback, link-local or otherwise special.
	AllowCIDRs []netip.Prefix
	// Timeout of one request, from dialling to the last byte that is read. A
	// payload may ask for less. 0 means 30 s.
	Timeout time.Duration
	// MaxRetryAfter caps what Retry-After may ask for. 0 means 1 h.
	MaxRetryAfter time.Duration
	// MaxResponse is how many bytes of a failed response's body are kept; 0 means
	// 4096. It must not be negative or more than 65536.
	MaxResponse int
	// RetryStatuses are the statuses worth another attempt: "429", or "5xx" for a
	// whole class. nil means 408, 425, 429 and 5xx.
	RetryStatuses []string
	// Secrets sign requests; payloads refer to them by name.
	Secrets map[string]Secret
	// Version is the second part of User-Agent, holdfast/<version>. Empty means dev.
	Version string
}

// Secret signs the requests to some hosts.
type Secret struct {
	// Keys are each whsec_ and the base64 of 24 to 64 bytes. Each of them makes a signature. A process that only
	// validates payloads needs no keys.
	Keys []string
	// Hosts are those that the secret may sign requests to, at least one: "api.example.com" on any port,
	// "api.example.com:8443", or "*.example.com" for every name that ends in .example.com. Without them, any program
	// that may enqueue could have a request to any host signed.
	Hosts []string
}

// Bounds that are not options.
const (
	drainBytes    = 64 << 10         // of a body beyond what is kept, so that the connection can be used again
	bodyTime      = time.Second      // for that, and for the kept part, once the status is known
	dialTime      = 10 * time.Second // for TCP, and again for TLS
	headerBytes   = 64 << 10         // of all response headers together
	idlePerTarget = 16
	idleTotal     = 256
	idleTime      = 60 * time.Second
)

// Handler delivers tasks of type http. It is safe for concurrent use.
type Handler struct {
	guard     *guard
	resolver  *resolver
	transport *http.Transport
	rules     rules
	secrets   map[string]*secret
	timeout   time.Duration
	keep      int
	agent     string
}

// New returns a handler. The error wraps holdfast.ErrInvalid and says which option is
// out of its range. Close the handler when it is not needed any more.
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
		return nil, fmt.Errorf("%w: webhook: the timeout %s is negative", holdfast.ErrInvalid, o.Timeout)
	case o.MaxResponse < 0 || o.MaxResponse > 64<<10:
		return nil, fmt.Errorf("%w: webhook: %d bytes of a response cannot be kept; use 0 to 65536", holdfast.ErrInvalid, o.MaxResponse)
	}
	h := &Handler{
		guard: guard, rules: rules, secrets: secrets,
		timeout: o.Timeout, keep: o.MaxResponse, agent: "holdfast/" + o.Version,
	}
	if h.timeout == 0 {
		h.timeout = 30 * time.Second
	}
	if h.keep == 0 {
		h.keep = 4096
	}
	if o.Version == "" {
		h.agent += "dev"
	}
	h.resolver = new(resolver)
	h.transport = newTransport(guard.dialer())
	return h, nil
}

// newTransport returns a transport that dials through the guard's dialer and nowhere else. It
// speaks HTTP/1.1 only, and its zero Proxy means that none is used.
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

// Close closes the idle connections. Requests that are running go on.
func (h *Handler) Close() { h.transport.CloseIdleConnections() }

// Validate reports what would make every attempt with the payload fail, as a
// holdfast.ErrInvalid with a text of one line. Whether a name resolves to a permitted
// address is only known at the time of the request. A secret_ref is checked only if
// this handler has secrets, with or without their keys.
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
		if err := secret.mayGoTo(p.url); err != nil {
			return err
		}
	}
	if p.timeout > h.timeout {
		return fmt.Errorf("%w: the timeout %s is more than the limit of %s", holdfast.ErrInvalid, p.timeout, h.timeout)
	}
	return h.guard.checkHost(p.url.Hostname())
}

// Handle makes one request. It implements the consumer's Handler; the package's
// comment says what it returns. Every failure that is not the end of ctx carries a
// class and [Details] for the attempt's record.
func (h *Handler) Handle(ctx context.Context, task holdfast.Task) error {
	p, err := parse(task.Payload)
	if err != nil {
		return holdfast.Permanent(err)
	}
	target := p.Method + " " + shownURL(p.url)
	var keys []*standardwebhooks.Webhook
	if p.SecretRef != "" {
		secret := h.secrets[p.SecretRef]
		if secret == nil || len(secret.keys) == 0 { // not permanent: the key may be on its way to this worker
			return holdfast.Detailed(fmt.Errorf("%s: this worker has no key for the webhook secret %.100q", target, p.SecretRef), classSecret,
				Details{URL: shownURL(p.url)})
		}
		if err := secret.mayGoTo(p.url); err != nil {
			return holdfast.Detailed(holdfast.Permanent(fmt.Errorf("%s: %w", target, err)), classSecretHost, Details{URL: shownURL(p.url)})
		}
		keys = secret.keys
	}
	if err := h.guard.checkHost(p.url.Hostname()); err != nil {
		return holdfast.Detailed(holdfast.Permanent(fmt.Errorf("%s: %w", target, err)), classForbidden, Details{URL: shownURL(p.url)})
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
			return holdfast.Detailed(err, classTimeout, detailsOf(p, answer, time.Since(began)))
		}
		return err
	}
	if err != nil && h.atFault(err) {
		h.transport.CloseIdleConnections() // which frees their descriptors
		err = fmt.Errorf("%w: %w", errWorker, err)
	}
	class, result := h.rules.classify(answer.status, answer.header, err, time.Now())
	if result == nil {
		return nil
	}
	return holdfast.Detailed(fmt.Errorf("%s: %w", target, result), class, detailsOf(p, answer, time.Since(began)))
}

// answer is what came back. A status of 0 means nothing did.
type answer struct {
	status    int
	header    http.Header
	body      []byte // a bounded piece, of failures only
	truncated bool
}

// exchange makes the request and reads as much of the answer as is worth it.
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
	if err := sign(req.Header, task, p.body, keys, time.Now()); err != nil {
		return answer{}, err
	}
	// RoundTrip and not Client.Do: no redirect, no cookie, and errors without the URL.
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return answer{}, err
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 1 || resp.StatusCode < 100 { // the transport only looks for digits
		return answer{}, fmt.Errorf("malformed HTTP response: %s with the status %03d", resp.Proto, resp.StatusCode)
	}
	stop := time.AfterFunc(bodyTime, cancel) // the status is known, which is what matters
	defer stop.Stop()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if !success(a.status) {
		a.body, err = io.ReadAll(io.LimitReader(resp.Body, int64(h.keep)+1))
		a.truncated = err != nil || len(a.body) > h.keep
		a.body = a.body[:min(len(a.body), h.keep)]
	}
	_, _ = io.CopyN(io.Discard, resp.Body, drainBytes)
	return a, nil
}

// timeoutError is the cause a request's context ends with.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("no answer within %s", e.after) }

// Unwrap makes the error a context.DeadlineExceeded.
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }
