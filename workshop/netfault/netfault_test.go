package netfault_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastq/holdfast/workshop/netfault"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quietTime is how long a test waits for bytes that must not arrive.
const quietTime = 100 * time.Millisecond

// echo starts a server that returns all bytes to their sender, and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return listener.Addr().String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T) (*netfault.Proxy, net.Conn) {
	t.Helper()
	proxy, err := netfault.New(echo(t))
	must(t, err)
	t.Cleanup(func() { must(t, proxy.Close()) })
	return proxy, dial(t, proxy)
}

func dial(t *testing.T, proxy *netfault.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	must(t, err)
}

func expect(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Now().Add(slow.Patience())))
	got := make([]byte, len(text))
	_, err := io.ReadFull(conn, got)
	must(t, err)
	if string(got) != text {
		t.Fatalf("got %q, want %q", got, text)
	}
}

func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Now().Add(quietTime)))
	if n, err := conn.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v, want none", n, err)
	}
}

func wasReset(t *testing.T, conn net.Conn) {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Now().Add(slow.Patience())))
	if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %v, want a reset", err)
	}
}

// refused fails unless a new connection is reset, during the handshake or later.
func refused(t *testing.T, proxy *netfault.Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr())
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	must(t, err)
	defer conn.Close()
	wasReset(t, conn)
}

func TestForwards(t *testing.T) {
	t.Parallel()
	_, conn := open(t)
	send(t, conn, "hello")
	expect(t, conn, "hello")
	must(t, conn.(*net.TCPConn).CloseWrite())
	must(t, conn.SetReadDeadline(time.Now().Add(slow.Patience())))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("got %v, want io.EOF", err)
	}
}

func TestCutHoldsEverythingBack(t *testing.T) {
	t.Parallel()
	proxy, conn := open(t)
	proxy.Cut()
	proxy.Cut()
	send(t, conn, "hel")
	late := dial(t, proxy) // is accepted, but receives nothing
	send(t, late, "late")
	silent(t, conn)
	silent(t, late)
	proxy.Heal()
	send(t, conn, "lo")
	expect(t, conn, "hello")
	expect(t, late, "late")
}

func TestCutBlocksWritesWhenBuffersAreFull(t *testing.T) {
	t.Parallel()
	proxy, conn := open(t)
	proxy.Cut()
	must(t, conn.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
	if _, err := conn.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v, want a timeout", err)
	}
}

func TestCutRepliesLetsRequestsPass(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	proxy, err := netfault.New(listener.Addr().String())
	must(t, err)
	defer proxy.Close()
	client := dial(t, proxy)
	server, err := listener.Accept()
	must(t, err)
	defer server.Close()
	proxy.CutReplies()
	send(t, client, "question")
	expect(t, server, "question")
	send(t, server, "answer")
	silent(t, client)
	proxy.Heal()
	expect(t, client, "answer")
}

func TestCutAbruptResets(t *testing.T) {
	t.Parallel()
	proxy, conn := open(t)
	send(t, conn, "a")
	expect(t, conn, "a")
	proxy.CutAbrupt()
	wasReset(t, conn)
	second := dial(t, proxy)
	send(t, second, "b")
	expect(t, second, "b")
}

func TestRefuseResetsNewConnections(t *testing.T) {
	t.Parallel()
	proxy, conn := open(t)
	send(t, conn, "a")
	expect(t, conn, "a")
	proxy.Refuse()
	wasReset(t, conn)
	refused(t, proxy)
	proxy.Heal()
	second := dial(t, proxy)
	send(t, second, "b")
	expect(t, second, "b")
	for deadline := time.Now().Add(slow.Patience()); proxy.Connections() != 1; { // the proxy removes reset connections a little later
		if time.Now().After(deadline) {
			t.Fatalf("%d connections, want 1", proxy.Connections())
		}
		time.Sleep(time.Millisecond)
	}
}

func TestCloseDuringACut(t *testing.T) {
	t.Parallel()
	proxy, err := netfault.New(echo(t))
	must(t, err)
	conn := dial(t, proxy)
	send(t, conn, "a")
	expect(t, conn, "a")
	proxy.Cut()
	send(t, conn, "b")
	must(t, proxy.Close())
	wasReset(t, conn)
}

func TestAServerThatIsDown(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	proxy, err := netfault.New(address)
	must(t, err)
	defer proxy.Close()
	refused(t, proxy)
}
