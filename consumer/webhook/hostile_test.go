package webhook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// headServer starts a server that reads the request head from each connection and then calls handle. It closes the
// connection when handle returns. ctx ends with the test.
func headServer(t *testing.T, handle func(ctx context.Context, conn *net.TCPConn, in *bufio.Reader)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				if readHead(in) == nil {
					handle(ctx, conn.(*net.TCPConn), in)
				}
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		listener.Close()
		all.Wait()
	})
	return "http://" + listener.Addr().String()
}

func readHead(in *bufio.Reader) error {
	for {
		line, err := in.ReadString('\n')
		if err != nil || strings.TrimSpace(line) == "" {
			return err
		}
	}
}

// writeSlowly writes text byte by byte, repeatedly, until the peer closes the connection or ctx is done.
func writeSlowly(ctx context.Context, conn net.Conn, text string, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i++ {
		if _, err := conn.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func wantFailure(t *testing.T, err error, event holdfast.Event, class string) Details {
	t.Helper()
	if err == nil {
		t.Fatalf("success, want %s", class)
	}
	report, d := details(t, err)
	if got, _ := verdict(t, err); got != event || report.Class != class {
		t.Errorf("got %s, %s: %v; want %s, %s", got, report.Class, err, event, class)
	}
	return d
}

func TestATargetThatNeverAnswers(t *testing.T) {
	t.Parallel()
	url := headServer(t, func(ctx context.Context, conn *net.TCPConn, in *bufio.Reader) { _, _ = io.Copy(io.Discard, in) })
	limit := slow.Times(50 * time.Millisecond).Round(time.Millisecond)
	h := testHandler(t, Options{AllowCIDRs: loopback, Timeout: limit})
	err := h.Handle(t.Context(), task(`{"url":"`+url+`"}`))
	wantFailure(t, err, holdfast.EventRetry, "timeout")
	if want := "no response within " + limit.String(); !strings.Contains(err.Error(), want) || errors.Is(err, holdfast.ErrTimeout) {
		t.Errorf("got %v, want %s", err, want)
	}
	patient := testHandler(t, Options{AllowCIDRs: loopback})
	wantFailure(t, patient.Handle(t.Context(), task(`{"url":"`+url+`","timeout":"40ms"}`)), holdfast.EventRetry, "timeout")
}

func TestATargetThatAnswersByteByByte(t *testing.T) {
	t.Parallel()
	head := headServer(t, func(ctx context.Context, conn *net.TCPConn, in *bufio.Reader) {
		writeSlowly(ctx, conn, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 10_000), 10*time.Millisecond)
	})
	h := testHandler(t, Options{AllowCIDRs: loopback, Timeout: 200 * time.Millisecond})
	wantFailure(t, h.Handle(t.Context(), task(`{"url":"`+head+`"}`)), holdfast.EventRetry, "timeout")
}

func TestABodyThatComesByteByByte(t *testing.T) {
	t.Parallel()
	h := testHandler(t, Options{AllowCIDRs: loopback, Timeout: slow.Times(30 * time.Second)})
	for _, status := range []int{200, 500} {
		url := headServer(t, func(ctx context.Context, conn *net.TCPConn, in *bufio.Reader) {
			fmt.Fprintf(conn, "HTTP/1.1 %d X\r\nContent-Length: 1000000\r\n\r\n", status)
			writeSlowly(ctx, conn, "x", 50*time.Millisecond)
		})
		began := time.Now()
		err := h.Handle(t.Context(), task(`{"url":"`+url+`"}`))
		if took := time.Since(began); took > h.timeout/3 {
			t.Errorf("%d took %s", status, took)
		}
		if status == 200 {
			if err != nil { // the status was success
				t.Error(err)
			}
			continue
		}
		if d := wantFailure(t, err, holdfast.EventRetry, "http_500"); !strings.HasPrefix(d.Body, "x") || !d.Truncated {
			t.Errorf("got %+v", d)
		}
	}
}

func TestABodyWithoutEnd(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 500} {
		var sent atomic.Int64
		url := headServer(t, func(ctx context.Context, conn *net.TCPConn, in *bufio.Reader) {
			_ = conn.SetWriteBuffer(64 << 10)
			fmt.Fprintf(conn, "HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n", status, 1<<30)
			chunk := make([]byte, 32<<10)
			for ctx.Err() == nil {
				n, err := conn.Write(chunk)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
		h := testHandler(t, Options{AllowCIDRs: loopback, MaxResponse: 100})
		err := h.Handle(t.Context(), task(`{"url":"`+url+`"}`))
		if status == 200 && err != nil {
			t.Error(err)
		}
		if status == 500 {
			if d := wantFailure(t, err, holdfast.EventRetry, "http_500"); len(d.Body) != 100*len("\uFFFD") || !d.Truncated {
				t.Errorf("%d bytes in the details", len(d.Body))
			}
		}
		if n := sent.Load(); n > 32<<20 { // limit for all buffers between server and handler
			t.Errorf("the handler read %d bytes", n)
		}
	}
}

func TestHeadersWithoutEnd(t *testing.T) {
	t.Parallel()
	url := headServer(t, func(ctx context.Context, conn *net.TCPConn, in *bufio.Reader) {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for i := 0; err == nil && ctx.Err() == nil; i++ {
			_, err = fmt.Fprintf(conn, "X-%d: %s\r\n", i, strings.Repeat("x", 1000))
		}
	})
	h := testHandler(t, Options{AllowCIDRs: loopback})
	wantFailure(t, h.Handle(t.Context(), task(`{"url":"`+url+`"}`)), holdfast.EventRetry, "transport")
}

func TestTargetsThatCloseEarly(t *testing.T) {
	t.Parallel()
	h := testHandler(t, Options{AllowCIDRs: loopback})
	for _, test := range []struct {
		class, text string
		reset       bool
	}{
		{"closed", "", false},
		{"closed", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", false},
		{"reset", "", true},
		{"transport", "SSH-2.0-OpenSSH_9.6\r\n\r\n", false},
		{"transport", "HTTP/1.1 abc OK\r\n\r\n", false},
		{"transport", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", false},
		{"http_502", "HTTP/1.1 502 X\r\nContent-Length: 100\r\n\r\ncut", false},
		{"http_101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", false},
		{"http_999", "HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", false},
	} {
		url := headServer(t, func(ctx context.Context, conn *net.TCPConn, in *bufio.Reader) {
			_, _ = io.WriteString(conn, test.text)
			if test.reset {
				_ = conn.SetLinger(0)
			}
		})
		d := wantFailure(t, h.Handle(t.Context(), task(`{"url":"`+url+`"}`)), holdfast.EventRetry, test.class)
		if test.class == "http_502" && (d.Body != "cut" || !d.Truncated) {
			t.Errorf("got %+v", d)
		}
	}
}

func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	h := testHandler(t, Options{AllowCIDRs: loopback})
	wantFailure(t, h.Handle(t.Context(), task(`{"url":"http://`+listener.Addr().String()+`"}`)), holdfast.EventRetry, "refused")
}

func TestTLSFailuresAreRetried(t *testing.T) {
	t.Parallel()
	unknown := httptest.NewUnstartedServer(http.NotFoundHandler())
	unknown.Config.ErrorLog = log.New(io.Discard, "", 0) // would log errors about this client
	unknown.StartTLS()
	defer unknown.Close()
	plaintext := serve(t, func(http.ResponseWriter, *http.Request) {})
	h := testHandler(t, Options{AllowCIDRs: loopback})
	wantFailure(t, h.Handle(t.Context(), task(`{"url":"`+unknown.URL+`"}`)), holdfast.EventRetry, "tls")
	wantFailure(t, h.Handle(t.Context(), task(`{"url":"`+strings.Replace(plaintext.URL, "http", "https", 1)+`"}`)), holdfast.EventRetry, "tls")
}

// TestAKeptConnectionMayBeClosedByTheTarget has a target that closes a connection when the handler reuses it. The task
// must not fail.
func TestAKeptConnectionMayBeClosedByTheTarget(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	url := headServer(t, func(ctx context.Context, conn *net.TCPConn, in *bufio.Reader) {
		connections.Add(1)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		_ = readHead(in) // the next request, which gets no response
	})
	h := testHandler(t, Options{AllowCIDRs: loopback})
	for range 3 {
		if err := h.Handle(t.Context(), task(`{"url":"`+url+`","body_base64":""}`)); err != nil {
			t.Fatal(err)
		}
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("%d connections, want 3: were none reused?", n)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("a body"))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	h := testHandler(t, Options{AllowCIDRs: loopback})
	for range 5 {
		if err := h.Handle(t.Context(), task(`{"url":"`+server.URL+`","body":{"a":1}}`)); err != nil {
			t.Fatal(err)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for 5 requests, want 1", n)
	}
	h.Close()
}

func TestACompressedAnswerIsNotInflated(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("the request has Accept-Encoding %s", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(500)
		_, _ = w.Write([]byte("not gzip at all"))
	})
	h := testHandler(t, Options{AllowCIDRs: loopback})
	if d := wantFailure(t, h.Handle(t.Context(), task(`{"url":"`+server.URL+`"}`)), holdfast.EventRetry, "http_500"); d.Body != "not gzip at all" {
		t.Errorf("got %+v", d)
	}
}
