package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastq/holdfast"
)

// Classes of failures, besides "http_" and a status. They are kept with each attempt.
const (
	classTimeout     = "timeout"     // no answer in time, at any stage
	classRefused     = "refused"     // nobody listens there
	classReset       = "reset"       // the connection was cut
	classClosed      = "closed"      // the connection ended before the answer did
	classUnreachable = "unreachable" // no route
	classWorker      = "worker"      // this worker has no descriptors, no buffers, no network or no resolver
	classDNS         = "dns"         // the name cannot be resolved
	classTLS         = "tls"         // no common protocol, or a certificate that is not valid
	classForbidden   = "forbidden_address"
	classRedirect    = "redirect"
	classSecret      = "unknown_secret"
	classSecretHost  = "forbidden_secret" // the secret may not sign requests to that host
	classInvalid     = "invalid"
	classTransport   = "transport" // anything else on the way, such as an answer that is not HTTP
)

// rules say what an answer means.
type rules struct {
	retry [600]bool // by status
	cap   time.Duration
}

func newRules(o Options) (rules, error) {
	r := rules{cap: o.MaxRetryAfter}
	switch {
	case r.cap < 0:
		return rules{}, fmt.Errorf("%w: webhook: the longest Retry-After %s is negative", holdfast.ErrInvalid, r.cap)
	case r.cap == 0:
		r.cap = time.Hour
	}
	statuses := o.RetryStatuses
	if statuses == nil {
		statuses = []string{"408", "425", "429", "5xx"}
	}
	for _, text := range statuses {
		low, high := text, text
		if class, ok := strings.CutSuffix(text, "xx"); ok {
			low, high = class+"00", class+"99"
		}
		first, err := strconv.Atoi(low)
		last, _ := strconv.Atoi(high)
		if err != nil || len(text) != 3 || first < 100 || last > 599 {
			return rules{}, fmt.Errorf("%w: webhook: %.20q is not a status like 429 or 5xx", holdfast.ErrInvalid, text)
		}
		for status := first; status <= last; status++ {
			r.retry[status] = true
		}
	}
	return r, nil
}

func success(status int) bool { return status >= 200 && status <= 299 }

// classify says what an exchange means: nil for success, or a class and an error the
// judge understands. err is what kept the answer from coming, and decides if it is
// not nil.
func (r *rules) classify(status int, header http.Header, err error, now time.Time) (class string, result error) {
	if err != nil {
		return classifyError(err)
	}
	class = fmt.Sprintf("http_%d", status)
	result = errors.New(strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status)))
	wait, asked := retryAfter(header.Get("Retry-After"), now, r.cap)
	switch {
	case success(status):
		return "", nil
	case status < 200 || status > 599: // no final answer by any standard
		return class, result
	case r.retry[status] && asked && status == http.StatusTooManyRequests:
		return class, holdfast.Defer(wait, result)
	case r.retry[status] && asked:
		return class, holdfast.RetryAfter(wait, result)
	case r.retry[status]:
		return class, result
	case status < 400:
		return classRedirect, holdfast.Permanent(fmt.Errorf("%w: redirects are not followed", result))
	}
	return class, holdfast.Permanent(result)
}

// classifyError says what it means that no answer came. Only what the next attempt
// would meet again for certain is permanent.
func classifyError(err error) (class string, result error) {
	switch {
	case errors.Is(err, errWorker):
		return classWorker, holdfast.WorkerFault(workerWait(), err)
	case forbidden(err):
		return classForbidden, holdfast.Permanent(fmt.Errorf("the address is %w: %w", errForbidden, err))
	case errors.Is(err, holdfast.ErrInvalid):
		return classInvalid, holdfast.Permanent(err)
	case is[*net.DNSError](err):
		return classDNS, err
	case errors.Is(err, context.DeadlineExceeded), timedOut(err):
		return classTimeout, err
	case errors.Is(err, syscall.ECONNREFUSED):
		return classRefused, err
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return classReset, err
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return classUnreachable, err
	case badTLS(err):
		return classTLS, err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return classClosed, err
	}
	return classTransport, err
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func badTLS(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || is[*tls.CertificateVerificationError](err) || is[tls.RecordHeaderError](err) ||
		is[tls.AlertError](err) || is[x509.HostnameError](err) || is[x509.UnknownAuthorityError](err) ||
		is[x509.CertificateInvalidError](err) || strings.HasPrefix(err.Error(), "remote error: tls:") || strings.HasPrefix(err.Error(), "tls: ")
}

// retryAfter reads the header of that name: seconds or a date. What is no positive
// time does not count: an answer may not start the next attempt at once, past the
// policy's delay. The result is at least a second and at most limit.
func retryAfter(text string, now time.Time, limit time.Duration) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, false
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil || seconds > int64(limit/time.Second): // too long for a number, too
			return limit, true
		case seconds == 0:
			return 0, false
		}
		return min(time.Duration(seconds)*time.Second, limit), true
	}
	at, err := http.ParseTime(text)
	if err != nil || !at.After(now) {
		return 0, false
	}
	return min(max(at.Sub(now), time.Second), limit), true
}
