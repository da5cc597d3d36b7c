package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"github.com/holdfastq/holdfast"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// serve starts a local target.
func serve(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server
}

// details returns the report and the details of a failure.
func details(t *testing.T, err error) (holdfast.Report, Details) {
	t.Helper()
	report := holdfast.ReportOf(err)
	var d Details
	if err := json.Unmarshal(report.Details, &d); err != nil {
		t.Fatalf("parse details %s of %+v: %v", report.Details, report, err)
	}
	return report, d
}

func TestADeliveryIsSigned(t *testing.T) {
	t.Parallel()
	type seen struct {
		header http.Header
		body   []byte
		method string
		uri    string
	}
	got := make(chan seen, 1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Header, body, r.Method, r.RequestURI}
	})
	h := testHandler(t, Options{AllowCIDRs: loopback, Secrets: map[string]Secret{"billing": {[]string{keyA, keyB}, []string{"127.0.0.1"}}}, Version: "1.2"})
	err := h.Handle(t.Context(), task(`{"url":"`+server.URL+`/in?a=b","headers":{"X-Own":"1"},"body":{"n": 1},"secret_ref":"billing"}`))
	if err != nil {
		t.Fatal(err)
	}
	r := <-got
	if r.method != "POST" || r.uri != "/in?a=b" || string(r.body) != `{"n":1}` {
		t.Errorf("got %s %s %s", r.method, r.uri, r.body)
	}
	for name, want := range map[string]string{
		"Webhook-Id": "task_42_key", "Holdfast-Attempt": "3", "User-Agent": "holdfast/1.2", "Content-Type": "application/json", "X-Own": "1",
		"Accept-Encoding": "", "Cookie": "", "X-Idempotency-Key": "",
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, key := range []string{keyA, keyB} {
		receiver, err := standardwebhooks.NewWebhook(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := receiver.Verify(r.body, r.header); err != nil {
			t.Errorf("verify with one of the keys: %v", err)
		}
	}
}

func TestADeliveryWithoutSecretIsNotSigned(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { got <- r.Header })
	h := testHandler(t, Options{AllowCIDRs: loopback})
	if err := h.Handle(t.Context(), task(`{"url":"`+server.URL+`","method":"GET"}`)); err != nil {
		t.Fatal(err)
	}
	header := <-got
	if header.Get("Webhook-Id") == "" || header.Get("Webhook-Timestamp") == "" || header.Values("Webhook-Signature") != nil ||
		header.Get("User-Agent") != "holdfast/dev" {
		t.Errorf("got %v", header)
	}
}

func TestDetailsOfAFailure(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "90")
		w.Header().Set("Set-Cookie", "session=hunter2")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("down\x00\xff" + strings.Repeat("é", 100)))
	})
	h := testHandler(t, Options{AllowCIDRs: loopback, MaxResponse: 11})
	err := h.Handle(t.Context(), task(`{"url":"`+server.URL+`/in?token=hunter2","headers":{"Authorization":"hunter2"}}`))
	report, d := details(t, err)
	if report.Class != "http_503" || report.Error != "POST "+server.URL+"/in: 503 Service Unavailable" {
		t.Errorf("got %+v", report)
	}
	if d.URL != server.URL+"/in" || d.Status != 503 || d.Body != "down\uFFFD\uFFFDéé\uFFFD" || !d.Truncated || d.Headers["Retry-After"] != "90" {
		t.Errorf("got %+v", d)
	}
	if strings.Contains(string(report.Details)+report.Error, "hunter2") {
		t.Errorf("the details contain a secret: %s", report.Details)
	}
	if event, wait := verdict(t, err); event != holdfast.EventRetry || wait != 90*time.Second {
		t.Errorf("got %s after %s", event, wait)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		http.Redirect(w, r, "http://u:hunter2@169.254.169.254/latest?token=hunter2", http.StatusTemporaryRedirect)
	})
	h := testHandler(t, Options{AllowCIDRs: loopback})
	err := h.Handle(t.Context(), task(`{"url":"`+server.URL+`"}`))
	report, d := details(t, err)
	if event, _ := verdict(t, err); event != holdfast.EventGiveUp || report.Class != "redirect" || calls.Load() != 1 {
		t.Errorf("got %s, %+v after %d calls", event, report, calls.Load())
	}
	if d.Headers["Location"] != "http://169.254.169.254/latest" {
		t.Errorf("got %v", d.Headers)
	}
}

func TestNoCookieAndNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if len(r.Cookies()) > 0 {
			t.Errorf("the handler sent a cookie: %v", r.Cookies())
		}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
	})
	h := testHandler(t, Options{AllowCIDRs: loopback})
	for range 2 {
		if err := h.Handle(t.Context(), task(`{"url":"`+server.URL+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if h.transport.Proxy != nil {
		t.Error("the transport has a proxy")
	}
}

func TestTheEndOfTheContextIsNotAFailure(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	h := testHandler(t, Options{AllowCIDRs: loopback})
	for _, cause := range []error{holdfast.ErrDraining, holdfast.ErrLeaseLost, holdfast.ErrCancelled, holdfast.ErrTimeout} {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Handle(ctx, task(`{"url":"`+server.URL+`"}`)) }()
		<-arrived
		cancel(fmt.Errorf("soon: %w", cause))
		err := <-ended
		if !errors.Is(err, cause) {
			t.Errorf("got %v, want %v", err, cause)
		}
		report := holdfast.ReportOf(err)
		if want := holdfast.ReportOf(cause).Class; report.Class != want {
			t.Errorf("%v has the class %s, want %s", err, report.Class, want)
		}
		if cause == holdfast.ErrTimeout && report.Details == nil {
			t.Error("a timeout has no details")
		}
	}
}

func TestAnUnreadBodyIsSuccess(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write([]byte("thanks"))
	})
	h := testHandler(t, Options{AllowCIDRs: loopback})
	err := h.Handle(ctx, task(`{"url":"`+server.URL+`"}`))
	cancel(holdfast.ErrDraining)
	if err != nil {
		t.Error(err)
	}
}

func TestAnUnknownSecretIsRetried(t *testing.T) {
	t.Parallel()
	h := testHandler(t, Options{Secrets: map[string]Secret{"a": {[]string{keyA}, []string{"example.com"}}}})
	err := h.Handle(t.Context(), task(`{"url":"http://example.com","secret_ref":"b"}`))
	report, _ := details(t, err)
	if event, _ := verdict(t, err); event != holdfast.EventRetry || report.Class != "unknown_secret" {
		t.Errorf("got %s, %+v", event, report)
	}
}

// A program that enqueues tasks must not get a signature for a host of its choice, neither by a URL nor by a redirect.
func TestASecretSignsForItsHostsOnly(t *testing.T) {
	t.Parallel()
	foreign := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("request to a foreign host: %v", r.Header) })
	var signed atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Webhook-Signature") != "" {
			signed.Add(1)
		}
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, foreign.URL, http.StatusTemporaryRedirect)
		}
	})
	host := strings.TrimPrefix(server.URL, "http://")
	h := testHandler(t, Options{AllowCIDRs: loopback, Secrets: map[string]Secret{"billing": {[]string{keyA}, []string{host}}}})
	if err := h.Handle(t.Context(), task(`{"url":"`+server.URL+`","secret_ref":"billing"}`)); err != nil || signed.Load() != 1 {
		t.Errorf("own host: %d signatures, %v", signed.Load(), err)
	}
	err := h.Handle(t.Context(), task(`{"url":"`+server.URL+`/redirect","secret_ref":"billing"}`))
	if event, _ := verdict(t, err); event != holdfast.EventGiveUp || holdfast.ReportOf(err).Class != "redirect" {
		t.Errorf("redirect: got %s: %v", event, err)
	}
	for _, url := range []string{foreign.URL, foreign.URL + "/?" + host, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)} {
		err := h.Handle(t.Context(), task(`{"url":"`+url+`","secret_ref":"billing"}`))
		report, d := details(t, err)
		if event, _ := verdict(t, err); event != holdfast.EventGiveUp || report.Class != "forbidden_secret" || d.URL == "" ||
			holdfast.HintOf(err) != (holdfast.Hint{Kind: holdfast.HintAllowHost, Arg: "billing"}) {
			t.Errorf("%s: got %s, %+v", url, event, report)
		}
	}
	if signed.Load() != 2 {
		t.Errorf("%d signatures, want 2", signed.Load())
	}
}

func TestABadPayloadIsDeadAtOnce(t *testing.T) {
	t.Parallel()
	h := testHandler(t, Options{})
	for _, payload := range []string{`{"url":"http://example.com","what":1}`, `null`, `{`} {
		err := h.Handle(t.Context(), task(payload))
		if event, _ := verdict(t, err); event != holdfast.EventGiveUp || holdfast.ReportOf(err).Class != "invalid" {
			t.Errorf("%s: got %s: %v", payload, event, err)
		}
	}
}

// Handler implements the handler interface of package consumer, which this package does not import.
var _ interface {
	Handle(ctx context.Context, task holdfast.Task) error
} = (*Handler)(nil)

func TestTheTraceIsPropagated(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	type key struct{}
	h := testHandler(t, Options{AllowCIDRs: loopback, Propagate: func(ctx context.Context, header http.Header) {
		header.Set("traceparent", ctx.Value(key{}).(string))
		header.Set("tracestate", "attempt=1")
	}})
	ctx := context.WithValue(t.Context(), key{}, "of the attempt")
	for headers, want := range map[string][2]string{
		`{}`:                        {"of the attempt", "attempt=1"},
		`{"Traceparent":"own"}`:     {"own", ""},
		`{"TRACESTATE":"own=1"}`:    {"", "own=1"},
		`{"traceparent":"","a":""}`: {"of the attempt", "attempt=1"},
	} {
		if err := h.Handle(ctx, task(`{"url":"`+server.URL+`","headers":`+headers+`}`)); err != nil {
			t.Fatal(err)
		}
		if header := <-got; header.Get("traceparent") != want[0] || header.Get("tracestate") != want[1] {
			t.Errorf("%s: the headers are %v", headers, header)
		}
	}
}
