package webhook

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// respondWith replaces all connections of the handler by in-memory connections to a target. The target reads a request,
// writes bytes and closes the connection. read returns how many of these bytes the handler has read.
func respondWith(t testing.TB, h *Handler, bytes []byte) (read func() int) {
	t.Helper()
	var mu sync.Mutex
	var targets sync.WaitGroup
	bytesRead := 0
	h.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		targets.Go(func() {
			defer server.Close()
			in := bufio.NewReader(server)
			request, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, request.Body); err != nil {
				return
			}
			n, _ := server.Write(bytes)
			mu.Lock()
			bytesRead += n
			mu.Unlock()
		})
		return client, nil
	}
	return func() int {
		h.Close()
		targets.Wait()
		mu.Lock()
		defer mu.Unlock()
		return bytesRead
	}
}

var knownClass = regexp.MustCompile(`^(http_[1-9][0-9]{2}|timeout|closed|reset|transport|redirect)$`)

// checkOutcome checks the error and the details of an attempt, for any response.
func checkOutcome(t *testing.T, h *Handler, err error) {
	t.Helper()
	if err == nil {
		return
	}
	report, d := details(t, err)
	event, wait := verdict(t, err)
	switch event {
	case holdfast.EventRetry, holdfast.EventDefer:
		if wait < time.Second || wait > time.Hour {
			t.Fatalf("retried after %s: %v", wait, err)
		}
	case holdfast.EventGiveUp:
		if d.Status < 300 || d.Status > 499 {
			t.Fatalf("dead after status %d: %v", d.Status, err)
		}
	default:
		t.Fatalf("%s: %v", event, err)
	}
	if !knownClass.MatchString(report.Class) {
		t.Fatalf("unknown class %q: %v", report.Class, err)
	}
	kept := len(d.Body)
	for name, value := range d.Headers {
		kept += len(name) + len(value)
	}
	const replaced = len("\uFFFD") // for each invalid byte
	if limit := replaced * (h.maxBody + 8*maxRedactedURL); kept > limit || len(report.Error) > holdfast.MaxErrorLength {
		t.Fatalf("details of %d bytes, error of %d bytes", kept, len(report.Error))
	}
	for _, text := range []string{report.Error, string(report.Details), d.Body} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Fatalf("not storable: %q", text)
		}
	}
}

// FuzzResponse checks that an attempt ends with a known outcome and with details of limited length, for any response
// bytes.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 503 X\r\nRetry-After: 7\r\n\r\n\xff\x00", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 X\r\nRetry-After: -1\r\n\r\n",
		"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nabcde\r\n0\r\nX: y\r\n\r\n", "HTTP/1.1 302 X\r\nLocation: http://u:p@[::1]/?q#f\r\n\r\n", "\x16\x03\x01",
	} {
		f.Add([]byte(seed))
	}
	limit := slow.Times(5 * time.Second)
	h := testHandler(f, Options{MaxResponse: 64, Timeout: limit})
	f.Fuzz(func(t *testing.T, data []byte) {
		read := respondWith(t, h, data)
		began := time.Now()
		err := h.Handle(t.Context(), task(`{"url":"http://target.example/x","body":{"a":1}}`))
		took := time.Since(began)
		if n := read(); n > headerBytes+h.maxBody+drainBytes+(64<<10) {
			t.Fatalf("the handler read %d bytes", n)
		}
		if took > limit*4/5 { // nothing waits: the target closes the connection
			t.Fatalf("took %s", took)
		}
		checkOutcome(t, h, err)
		if err == nil && !bytes.Contains(data, []byte("HTTP/1.")) {
			t.Fatalf("%q: success, want an error", data)
		}
	})
}

// Each part of a response is much larger than a fuzzer would try.
func TestAnswersThatAreTooLarge(t *testing.T) {
	t.Parallel()
	h := testHandler(t, Options{MaxResponse: 64})
	const large = 1 << 20
	for name, answer := range map[string]string{
		"status line":         "HTTP/1.1 200 " + strings.Repeat("x", large),
		"name of a header":    "HTTP/1.1 500 X\r\n" + strings.Repeat("x", large) + ": y\r\n\r\n",
		"value of a header":   "HTTP/1.1 500 X\r\nX: " + strings.Repeat("x", large) + "\r\n\r\n",
		"many headers":        "HTTP/1.1 500 X\r\n" + strings.Repeat("X: y\r\n", large/6) + "\r\n",
		"informational flood": strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", large/40) + "HTTP/1.1 500 X\r\n\r\n",
		"garbage":             strings.Repeat("\x00\xff", large/2),
		"chunk extension":     "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("x", large),
		"tiny chunks":         "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\nx\r\n", large/6),
		"trailers":            "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\n" + strings.Repeat("X: y\r\n", large/6),
		"body":                fmt.Sprintf("HTTP/1.1 500 X\r\nContent-Length: %d\r\n\r\n%s", large, strings.Repeat("x", large)),
		"body without length": "HTTP/1.0 500 X\r\n\r\n" + strings.Repeat("\x00", large),
	} {
		read := respondWith(t, h, []byte(answer))
		err := h.Handle(t.Context(), task(`{"url":"http://target.example/x"}`))
		if n := read(); n > large*3/4 {
			t.Errorf("%s: the handler read %d of %d bytes", name, n, len(answer))
		}
		if err == nil {
			t.Errorf("%s: success", name)
			continue
		}
		checkOutcome(t, h, err)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
