package webhook

import (
	"cmp"
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

// Classes of failures, besides "http_" followed by a status. The class is stored with each attempt.
const (
	classTimeout     = "timeout"     // no response in time, at any stage
	classRefused     = "refused"     // the connection was refused
	classReset       = "reset"       // the connection was reset
	classClosed      = "closed"      // the connection was closed before the response was complete
	classUnreachable = "unreachable" // no route to the target
	classWorker      = "worker"      // the worker process lacks descriptors, buffers, ports, a network or a resolver
	classDNS         = "dns"         // the name cannot be resolved
	classTLS         = "tls"         // no common protocol, or an invalid certificate
	classForbidden   = "forbidden_address"
	classRedirect    = "redirect"
	classSecret      = "unknown_secret"
	classSecretHost  = "forbidden_secret" // the secret may not sign requests to that host
	classInvalid     = "invalid"
	classTransport   = "transport" // any other transport error, such as a response that is not HTTP
)

// rules decide the result of a response.
type rules struct {
	retry [600]bool // whether to retry, by status
	cap   time.Duration
}

func newRules(o Options) (rules, error) {
	r := rules{cap: cmp.Or(o.MaxRetryAfter, time.Hour)}
	if r.cap < 0 {
		return rules{}, fmt.Errorf("%w: webhook: MaxRetryAfter %s is negative", holdfast.ErrInvalid, r.cap)
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

// classify returns the class and the error for [holdfast.Settle], or nil for success. If err is not nil, no response
// arrived, and classify ignores status and header.
func (r *rules) classify(status int, header http.Header, err error, now time.Time) (class string, result error) {
	if err != nil {
		return classifyError(err)
	}
	class = fmt.Sprintf("http_%d", status)
	result = errors.New(strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status)))
	wait, hasWait := retryAfter(header.Get("Retry-After"), now, r.cap)
	switch {
	case success(status):
		return "", nil
	case status < 200 || status > 599: // not a valid final status
		return class, result
	case r.retry[status] && hasWait && status == http.StatusTooManyRequests:
		result = holdfast.Defer(wait, result)
	case r.retry[status] && hasWait:
		result = holdfast.RetryAfter(wait, result)
	case r.retry[status]:
	case status < 400:
		class, result = classRedirect, holdfast.Permanent(fmt.Errorf("%w: redirects are not followed", result))
	default:
		result = holdfast.Permanent(result)
	}
	return class, markOf(status, wait, result)
}

// markOf marks the error of a response with the state of the target that the status shows, independently of retries.
// wait is the pause that the target requests, or 0.
func markOf(status int, wait time.Duration, err error) error {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return holdfast.Refused(wait, err)
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return holdfast.TargetFault(err)
	case status >= 500:
		return holdfast.MessageFault(err)
	}
	return holdfast.Answered(err)
}

// classifyError returns the class and the error of an exchange without a response. An error is permanent only if the
// next attempt would certainly fail, too.
func classifyError(err error) (class string, result error) {
	switch {
	case errors.Is(err, errWorkerFault):
		return classWorker, holdfast.WorkerFault(workerWait(), err)
	case forbidden(err):
		return classForbidden, holdfast.Permanent(fmt.Errorf("the address is %w: %w", errForbidden, err))
	case errors.Is(err, holdfast.ErrInvalid):
		return classInvalid, holdfast.Permanent(err)
	}
	return transportClass(err), holdfast.NoAnswer(err)
}

// transportClass returns the class of an error for which the target is at fault.
func transportClass(err error) string {
	switch {
	case is[*net.DNSError](err):
		return classDNS
	case errors.Is(err, context.DeadlineExceeded), timedOut(err):
		return classTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return classRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return classReset
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return classUnreachable
	case isTLSError(err):
		return classTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return classClosed
	}
	return classTransport
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func isTLSError(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || is[*tls.CertificateVerificationError](err) || is[tls.RecordHeaderError](err) ||
		is[tls.AlertError](err) || is[x509.HostnameError](err) || is[x509.UnknownAuthorityError](err) ||
		is[x509.CertificateInvalidError](err) || strings.HasPrefix(err.Error(), "remote error: tls:") || strings.HasPrefix(err.Error(), "tls: ")
}

// retryAfter parses a Retry-After header: seconds or a date. It returns false for a value that is not positive, because
// the next attempt would otherwise start at once and bypass the delay of the policy. The result is at least one second
// and at most limit.
func retryAfter(text string, now time.Time, limit time.Duration) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, false
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil || seconds > int64(limit/time.Second): // err means that the number overflows
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
