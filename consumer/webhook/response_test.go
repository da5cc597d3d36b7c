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
)

// said makes the handler's every connection one to a target that reads a request, says these bytes, whatever
// they are, and hangs up. read is how many of them were taken. The connections are in memory.
func said(t testing.TB, h *Handler, bytes []byte) (read func() int) {
	t.Helper()
	var mu sync.Mutex
	var targets sync.WaitGroup
	taken := 0
	h.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		targets.Go(func() {
			defer theirs.Close()
			in := bufio.NewReader(theirs)
			request, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, request.Body); err != nil {
				return
			}
			n, _ := theirs.Write(bytes)
			mu.Lock()
			taken += n
			mu.Unlock()
		})
		return ours, nil
	}
	return func() int {
		h.Close()
		targets.Wait()
		mu.Lock()
		defer mu.Unlock()
		return taken
	}
}

var knownClass = regexp.MustCompile(`^(http_[1-9][0-9]{2}|timeout|closed|reset|transport|redirect)$`)

// checkOutcome looks at what is kept of an attempt, whatever the target said.
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
			t.Fatalf("it is tried again after %s: %v", wait, err)
		}
	case holdfast.EventGiveUp:
		if d.Status < 300 || d.Status > 499 {
			t.Fatalf("dead at once after %d: %v", d.Status, err)
		}
	default:
		t.Fatalf("%s: %v", event, err)
	}
	if !knownClass.MatchString(report.Class) {
		t.Fatalf("the class is %q: %v", report.Class, err)
	}
	kept := len(d.Body)
	for name, value := range d.Headers {
		kept += len(name) + len(value)
	}
	const replaced = len("\uFFFD") // for each byte that is no text
	if limit := replaced * (h.keep + 8*maxShown); kept > limit || len(report.Error) > holdfast.MaxErrorLength {
		t.Fatalf("%d bytes of details and %d of text are kept", kept, len(report.Error))
	}
	for _, text := range []string{report.Error, string(report.Details), d.Body} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Fatalf("no text to store: %q", text)
		}
	}
}

// FuzzResponse lets the target say any bytes: the attempt ends, in one of the known ways, and what is kept of it
// is text of a bounded length.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 503 X\r\nRetry-After: 7\r\n\r\n\xff\x00", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 X\r\nRetry-After: -1\r\n\r\n",
		"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nabcde\r\n0\r\nX: y\r\n\r\n", "HTTP/1.1 302 X\r\nLocation: http://u:p@[::1]/?q#f\r\n\r\n", "\x16\x03\x01",
	} {
		f.Add([]byte(seed))
	}
	h := testHandler(f, Options{MaxResponse: 64, Timeout: 5 * time.Second})
	f.Fuzz(func(t *testing.T, data []byte) {
		read := said(t, h, data)
		began := time.Now()
		err := h.Handle(t.Context(), task(`{"url":"http://target.example/x","body":{"a":1}}`))
		took := time.Since(began)
		if n := read(); n > headerBytes+h.keep+drainBytes+(64<<10) {
			t.Fatalf("%d bytes were taken", n)
		}
		if took > 4*time.Second { // nothing here waits: the target hangs up
			t.Fatalf("it took %s", took)
		}
		checkOutcome(t, h, err)
		if err == nil && !bytes.Contains(data, []byte("HTTP/1.")) {
			t.Fatalf("%q is a success", data)
		}
	})
}

// Too much of everything an answer is made of, more than a fuzzer likes to try.
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
		"body of no length":   "HTTP/1.0 500 X\r\n\r\n" + strings.Repeat("\x00", large),
	} {
		read := said(t, h, []byte(answer))
		err := h.Handle(t.Context(), task(`{"url":"http://target.example/x"}`))
		if n := read(); n > large*3/4 {
			t.Errorf("%s: %d of %d bytes were taken", name, n, len(answer))
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
