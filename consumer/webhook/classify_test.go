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
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"code.dny.dev/ssrf"

	"github.com/holdfastq/holdfast"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func defaultRules(t testing.TB) rules {
	t.Helper()
	r, err := newRules(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// verdict returns the event and the wait that [holdfast.Settle] decides on for an error.
func verdict(t testing.TB, err error) (holdfast.Event, time.Duration) {
	t.Helper()
	task := holdfast.Task{ID: 7, State: holdfast.Running, Attempt: 1, CreatedAt: now}
	policy := holdfast.DefaultPolicy()
	policy.Strategy, policy.Base, policy.Jitter = holdfast.Fixed, 77*time.Second, 0
	move, settleErr := holdfast.Settle(task, holdfast.Returned(err), now, policy)
	if settleErr != nil {
		t.Fatal(settleErr)
	}
	return move.Event, move.Wait
}

func TestEveryStatus(t *testing.T) {
	t.Parallel()
	r := defaultRules(t)
	const policy = 77 * time.Second
	for status := 0; status <= 999; status++ {
		for _, asked := range []bool{false, true} {
			header := http.Header{}
			if asked {
				header.Set("Retry-After", "120")
			}
			wantEvent, wantWait, wantClass := holdfast.EventGiveUp, time.Duration(0), fmt.Sprintf("http_%d", status)
			retryable := status == 408 || status == 425 || status == 429 || status >= 500 && status <= 599
			switch {
			case status >= 200 && status <= 299:
				wantEvent, wantClass = holdfast.EventComplete, ""
			case status < 200, status > 599, retryable && !asked:
				wantEvent, wantWait = holdfast.EventRetry, policy
			case status == 429:
				wantEvent, wantWait = holdfast.EventDefer, 120*time.Second
			case retryable:
				wantEvent, wantWait = holdfast.EventRetry, 120*time.Second
			case status >= 300 && status <= 399:
				wantClass = "redirect"
			}
			class, err := r.classify(status, header, nil, now)
			event, wait := verdict(t, err)
			if event != wantEvent || wait != wantWait || class != wantClass {
				t.Errorf("%d, Retry-After %v: got %s after %s, class %q; want %s after %s, class %q",
					status, asked, event, wait, class, wantEvent, wantWait, wantClass)
			}
		}
	}
}

// An answer accuses the target, or only the message, or proves that the target works.
func TestWhatAnAnswerAccuses(t *testing.T) {
	t.Parallel()
	r := defaultRules(t)
	for status := 200; status <= 599; status++ {
		_, err := r.classify(status, http.Header{}, nil, now)
		want := holdfast.TargetMark{Answered: true}
		switch {
		case status == 429 || status == 503:
			want.Fault, want.Refused = true, true
		case status == 502 || status == 504:
			want.Fault = true
		case status >= 500:
			want.Fault, want.Message = true, true
		}
		if got := holdfast.TargetMarkOf(err); got != want {
			t.Errorf("the mark of %d is %+v, want %+v", status, got, want)
		}
	}
	if _, err := r.classify(0, nil, syscall.ECONNREFUSED, now); holdfast.TargetMarkOf(err) != (holdfast.TargetMark{Fault: true}) {
		t.Errorf("the mark of a refused connection is %+v", holdfast.TargetMarkOf(err))
	}
}

func TestRetryStatusesCanBeChosen(t *testing.T) {
	t.Parallel()
	r, err := newRules(Options{RetryStatuses: []string{"404", "3xx"}})
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]holdfast.Event{
		200: holdfast.EventComplete, 302: holdfast.EventRetry, 404: holdfast.EventRetry, 403: holdfast.EventGiveUp,
		429: holdfast.EventGiveUp, 503: holdfast.EventGiveUp,
	} {
		_, err := r.classify(status, http.Header{"Retry-After": nil}, nil, now)
		if event, _ := verdict(t, err); event != want {
			t.Errorf("%d: got %s, want %s", status, event, want)
		}
	}
	if r, err := newRules(Options{RetryStatuses: []string{}}); err != nil || r.retry[503] {
		t.Errorf("with an empty list, 503 is retried: %v", err)
	}
}

func TestEveryError(t *testing.T) {
	t.Parallel()
	r := defaultRules(t)
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, test := range []struct {
		err       error
		class     string
		permanent bool
	}{
		{&timeoutError{time.Second}, "timeout", false},
		{context.DeadlineExceeded, "timeout", false},
		{dial(os.ErrDeadlineExceeded), "timeout", false},
		{dial(&os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}), "refused", false},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, "reset", false},
		{fmt.Errorf("write: %w", syscall.EPIPE), "reset", false},
		{dial(syscall.EHOSTUNREACH), "unreachable", false},
		{dial(syscall.ENETUNREACH), "unreachable", false},
		{dial(&net.DNSError{Err: "no such host", IsNotFound: true}), "dns", false},
		{dial(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), "dns", false},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "tls", false},
		{x509.HostnameError{Certificate: &x509.Certificate{}}, "tls", false},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "tls", false},
		{http.ErrSchemeMismatch, "tls", false},
		{errors.New("remote error: tls: handshake failure"), "tls", false},
		{io.EOF, "closed", false},
		{io.ErrUnexpectedEOF, "closed", false},
		{net.ErrClosed, "closed", false},
		{errors.New("malformed HTTP response"), "transport", false},
		{dial(fmt.Errorf("x: %w", ssrf.ErrProhibitedIP)), "forbidden_address", true},
		{dial(ssrf.ErrProhibitedNetwork), "forbidden_address", true},
		{fmt.Errorf("%w: what", holdfast.ErrInvalid), "invalid", true},
	} {
		// An error overrides the status and the headers.
		class, err := r.classify(429, http.Header{"Retry-After": {"5"}}, test.err, now)
		event, _ := verdict(t, err)
		if class != test.class || (event == holdfast.EventGiveUp) != test.permanent || !errors.Is(err, test.err) {
			t.Errorf("%v: got class %s and %s, want %s, permanent %v", test.err, class, event, test.class, test.permanent)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const limit = time.Hour
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for text, want := range map[string]time.Duration{ // 0 means that the value is ignored
		"": 0, " ": 0, "0": 0, "000": 0, "1": time.Second, " 30 ": 30 * time.Second, "0090": 90 * time.Second,
		"3600": limit, "3601": limit, "99999999999": limit, "99999999999999999999999999": limit,
		"-1": 0, "+5": 0, "1.5": 0, "5s": 0, "soon": 0, "١": 0, "1e3": 0, "0x10": 0,
		date(time.Minute): time.Minute, date(0): 0, date(-time.Minute): 0, date(time.Second): time.Second, date(48 * time.Hour): limit,
		"Wednesday, 01-Jul-26 12:02:00 GMT": 2 * time.Minute, "Wed Jul  1 12:02:00 2026": 2 * time.Minute,
		"2026-07-01T12:02:00Z": 0,
	} {
		got, ok := retryAfter(text, now, limit)
		if got != want || ok != (want > 0) {
			t.Errorf("%q: got %s, %v, want %s", text, got, ok, want)
		}
	}
	if got, _ := retryAfter(date(time.Second), now.Add(900*time.Millisecond), limit); got != time.Second {
		t.Errorf("got %s for less than one second", got)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, text := range []string{"", "0", "17", "-1", "99999999999999999999", "Wed, 01 Jul 2026 12:00:30 GMT", "Wed Jul  1 12:02:00 2026"} {
		f.Add(text, int64(time.Hour))
	}
	f.Fuzz(func(t *testing.T, text string, cap int64) {
		limit := time.Second + time.Duration(max(cap, -cap, 0))%(1000*time.Hour)
		wait, ok := retryAfter(text, now, limit)
		if ok && (wait < time.Second || wait > limit) || !ok && wait != 0 {
			t.Fatalf("%q: got %s, %v with the limit %s", text, wait, ok, limit)
		}
		if again, same := retryAfter(" "+strings.TrimSpace(text)+"\t", now, limit); again != wait || same != ok {
			t.Fatalf("%q: got %s, and %s with other surrounding spaces", text, wait, again)
		}
		n, err := strconv.Atoi(text)
		if signed := strings.HasPrefix(text, "+"); err == nil && ok != (n > 0 && !signed) {
			t.Fatalf("%q is accepted: %v", text, ok)
		}
		if want := min(time.Duration(min(n, 1<<30))*time.Second, limit); ok && err == nil && wait != want {
			t.Fatalf("%q: got %s, want %s", text, wait, want)
		}
		if at, err := http.ParseTime(strings.TrimSpace(text)); err == nil && ok != at.After(now) {
			t.Fatalf("%q is accepted: %v", text, ok)
		}
		// The result is a retry or a deferral with a bounded wait.
		r := defaultRules(t)
		for _, status := range []int{429, 503} {
			_, result := r.classify(status, http.Header{"Retry-After": {text}}, nil, now)
			event, asked := verdict(t, result)
			if deferred := event == holdfast.EventDefer; deferred && status != 429 || !deferred && event != holdfast.EventRetry || asked < time.Second || asked > time.Hour {
				t.Fatalf("%d with %q: %s after %s", status, text, event, asked)
			}
		}
	})
}
