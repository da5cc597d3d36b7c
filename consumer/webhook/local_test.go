package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

// Errors of the worker's own are its fault, however deep they are; those of a target are not.
func TestWhoseFault(t *testing.T) {
	t.Parallel()
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	dial := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", errno)}
	}
	for _, c := range []struct {
		err  error
		down bool // no resolver answers
		own  bool
	}{
		{err: dial(syscall.EMFILE), own: true},
		{err: dial(syscall.ENFILE), own: true},
		{err: fmt.Errorf("wrapped: %w", dial(syscall.ENOBUFS)), own: true},
		{err: dial(syscall.ECONNREFUSED)},
		{err: dial(syscall.ECONNRESET)},
		{err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}},
		{err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}, down: true, own: true},
		{err: &net.DNSError{Err: "no such host", IsNotFound: true}, down: true},
		{err: &timeoutError{time.Second}, down: true},
	} {
		h.resolver.down.Store(c.down)
		if own := h.atFault(c.err); own != c.own {
			t.Errorf("%v, resolver down %t: the worker's fault %t, want %t", c.err, c.down, own, c.own)
		}
	}
	class, result := classifyError(fmt.Errorf("%w: %w", errWorker, dial(syscall.EMFILE)))
	if class != classWorker || !holdfast.IsWorkerFault(result) || !errors.Is(result, syscall.EMFILE) {
		t.Errorf("%s, %v", class, result)
	}
}

// The resolver is down if no name server answers, and not if one answers that it failed or does not know the name.
func TestAResolverThatAnswersIsNotDown(t *testing.T) {
	t.Parallel()
	lookUp := func(r *resolver, server string) error {
		resolver := r.resolver()
		resolver.PreferGo = true
		dial := resolver.Dial
		resolver.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "udp", server) }
		_, err := resolver.LookupHost(t.Context(), "target.example.")
		return err
	}
	r := new(resolver)
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lookUp(r, gone.LocalAddr().String()); err == nil || !r.down.Load() {
		t.Errorf("nobody answered: %v, down %t", err, r.down.Load())
	}
	for _, code := range []byte{2, 3} { // SERVFAIL, NXDOMAIN
		server := nameServer(t, code)
		if err := lookUp(r, server); err == nil || r.down.Load() {
			t.Errorf("the answer has the code %d: %v, down %t", code, err, r.down.Load())
		}
		r.down.Store(true)
	}
}

// nameServer answers every question with a code.
func nameServer(t *testing.T, code byte) (address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		message := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(message)
			if err != nil {
				return
			}
			message[2] |= 0x80 // an answer
			message[3] = message[3]&0xf0 | code
			_, _ = conn.WriteTo(message[:n], from)
		}
	}()
	return conn.LocalAddr().String()
}
