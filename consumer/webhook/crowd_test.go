package webhook

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// connServer starts a server that passes each connection to handle before anything is read. It closes the connection
// when handle returns. ctx ends with the test.
func connServer(t *testing.T, handle func(ctx context.Context, conn *net.TCPConn)) string {
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
				handle(ctx, conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		listener.Close()
		all.Wait()
	})
	return listener.Addr().String()
}

// writeRepeatedly writes text repeatedly until the peer closes the connection or ctx is done.
func writeRepeatedly(ctx context.Context, conn net.Conn, text string) {
	data := []byte(text) // once, because TestHostileTargetsBesideGoodOnes counts what the process allocates
	for ctx.Err() == nil {
		if _, err := conn.Write(data); err != nil {
			return
		}
	}
}

// The target resets or closes the connection in each phase of a request.
func TestResetsInEveryPhase(t *testing.T) {
	t.Parallel()
	h := testHandler(t, Options{AllowCIDRs: loopback, Timeout: slow.Times(10 * time.Second)})
	cut := func(conn *net.TCPConn) { _ = conn.SetLinger(0) }
	for name, test := range map[string]struct {
		scheme, class string
		handle        func(context.Context, *net.TCPConn)
	}{
		"at once":              {"http", "reset|closed", func(_ context.Context, c *net.TCPConn) { cut(c) }},
		"before the handshake": {"https", "reset|closed", func(_ context.Context, c *net.TCPConn) { cut(c) }},
		"inside the handshake": {"https", "reset|closed|tls", func(_ context.Context, c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 100))
			_, _ = c.Write([]byte{0x16, 3, 3})
			cut(c)
		}},
		"garbage for a handshake": {"https", "reset|closed|tls", func(_ context.Context, c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte("\x16\x03\x03\xff\xff\x00"))
		}},
		"plain text for TLS": {"https", "tls", func(_ context.Context, c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
		}},
		"inside the headers":        {"http", "reset|closed|transport", answering("HTTP/1.1 200 OK\r\nContent-Le", cut)},
		"inside the status line":    {"http", "reset|closed|transport", answering("HTTP/1.", cut)},
		"inside the body":           {"http", "http_500", answering("HTTP/1.1 500 X\r\nContent-Length: 100\r\n\r\nabc", cut)},
		"inside a chunk":            {"http", "http_500", answering("HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", cut)},
		"after an unfinished chunk": {"http", "http_500", answering("HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", cut)},
	} {
		address := connServer(t, test.handle)
		err := h.Handle(t.Context(), task(`{"url":"`+test.scheme+`://`+address+`"}`))
		if err == nil {
			t.Errorf("%s: success, want an error", name)
			continue
		}
		class := holdfast.ReportOf(err).Class
		if event, _ := verdict(t, err); event != holdfast.EventRetry || !strings.Contains("|"+test.class+"|", "|"+class+"|") {
			t.Errorf("%s: %s, %s: %v; want %s", name, event, class, err, test.class)
		}
	}
}

// answering returns a function that reads a request head, writes text and calls end.
func answering(text string, end func(*net.TCPConn)) func(context.Context, *net.TCPConn) {
	return func(_ context.Context, conn *net.TCPConn) {
		if readHead(bufio.NewReader(conn)) == nil {
			_, _ = io.WriteString(conn, text)
			end(conn)
		}
	}
}

// hostile starts targets that never end their responses, each in a different way.
func hostile(t *testing.T) []string {
	t.Helper()
	target := func(first, repeated string, every time.Duration) string {
		return connServer(t, func(ctx context.Context, conn *net.TCPConn) {
			if readHead(bufio.NewReader(conn)) != nil {
				return
			}
			if _, err := io.WriteString(conn, first); err != nil {
				return
			}
			if every > 0 {
				writeSlowly(ctx, conn, repeated, every)
			} else {
				writeRepeatedly(ctx, conn, repeated)
			}
		})
	}
	large := strings.Repeat("x", 16<<10)
	redirectLoop := connServer(t, func(_ context.Context, conn *net.TCPConn) {
		if readHead(bufio.NewReader(conn)) == nil {
			fmt.Fprintf(conn, "HTTP/1.1 302 X\r\nLocation: http://%s/again\r\nContent-Length: 0\r\n\r\n", conn.LocalAddr())
		}
	})
	return []string{
		connServer(t, func(ctx context.Context, _ *net.TCPConn) { <-ctx.Done() }),                  // never reads, never writes
		target("", "HTTP/1.1 200 OK\r\nX: y", 200*time.Millisecond),                                // a slow response head
		target("HTTP/1.1 500 X\r\nContent-Length: 1073741824\r\n\r\n", large, 0),                   // 1 GiB of body
		target("HTTP/1.1 200 OK\r\n", "X: "+large+"\r\n", 0),                                       // endless headers
		target("HTTP/1.1 500 X\r\nContent-Encoding: gzip\r\n\r\n", large, 0),                       // an endless gzip body
		target("HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", 0),            // endless chunks
		target("HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "T: "+large+"\r\n", 0), // endless trailers
		target("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 0),                            // endless 1xx responses
		target("", "\x00\xff", 0), // not HTTP
		redirectLoop,
	}
}

// TestHostileTargetsBesideGoodOnes makes 200 deliveries to hostile targets and as many to good ones. Each delivery ends
// in time, no delivery uses more than its share of memory, and good targets do not wait for hostile ones. The test does
// not run beside others, because it counts what the process allocates.
func TestHostileTargetsBesideGoodOnes(t *testing.T) {
	const each, timeout = 200, time.Second
	good := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("thanks")) })
	targets := hostile(t)
	h := testHandler(t, Options{AllowCIDRs: loopback, Timeout: slow.Times(30 * time.Second)})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	var slowestGood, slowest, kept atomic.Int64
	began := time.Now()
	for i := range each {
		all.Go(func() {
			err := h.Handle(t.Context(), task(`{"url":"http://`+targets[i%len(targets)]+`/","timeout":"`+timeout.String()+`"}`))
			slowest.Store(max(slowest.Load(), int64(time.Since(began))))
			if err == nil {
				t.Errorf("target %d: success, want an error", i%len(targets))
			}
			report := holdfast.ReportOf(err)
			kept.Add(int64(len(report.Details) + len(report.Error)))
		})
		all.Go(func() {
			if err := h.Handle(t.Context(), task(`{"url":"`+good.URL+`"}`)); err != nil {
				t.Errorf("good target: %v", err)
			}
			slowestGood.Store(max(slowestGood.Load(), int64(time.Since(began))))
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	perTarget := int64(after.TotalAlloc-before.TotalAlloc) / each
	t.Logf("good targets took at most %s, hostile ones %s; %d kB allocated per pair, %d bytes of details per hostile response",
		time.Duration(slowestGood.Load()).Round(time.Millisecond), time.Duration(slowest.Load()).Round(time.Millisecond), perTarget>>10, kept.Load()/each)
	if perTarget > 1<<20 { // includes both ends of the connections
		t.Errorf("%d bytes allocated per target", perTarget)
	}
	if most := int64(64 << 10); kept.Load()/each > most {
		t.Errorf("%d bytes of details per response, want at most %d", kept.Load()/each, most)
	}
	// The limit is the timeout plus one second, times ten for a busy machine.
	if limit := slow.Times(10 * (timeout + bodyTime)); time.Duration(slowest.Load()) > limit || slowestGood.Load() > slowest.Load() && time.Duration(slowestGood.Load()) > limit {
		t.Errorf("hostile targets took %s, good ones %s", time.Duration(slowest.Load()), time.Duration(slowestGood.Load()))
	}
}
