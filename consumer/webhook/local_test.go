package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
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
	taken := func(ip string) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 9},
			Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}
	}
	for _, c := range []struct {
		err  error
		down bool // no resolver answers
		own  bool
	}{
		{err: dial(syscall.EMFILE), own: true},
		{err: dial(syscall.ENFILE), own: true},
		{err: fmt.Errorf("wrapped: %w", dial(syscall.ENOBUFS)), own: true},
		{err: taken("127.0.0.1"), own: true},
		{err: taken("fe80::1"), own: !routed()}, // without a zone no address is fit
		{err: dial(syscall.ECONNREFUSED)},
		{err: dial(syscall.ECONNRESET)},
		{err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}},
		{err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}, down: true, own: true},
		{err: &net.DNSError{Err: "no such host", IsNotFound: true}, down: true},
		{err: &timeoutError{time.Second}, down: true},
	} {
		h.resolver.asked, h.resolver.answered = time.Now(), !c.down
		if own := h.atFault(c.err); own != c.own {
			t.Errorf("%v, resolver down %t: the worker's fault %t, want %t", c.err, c.down, own, c.own)
		}
	}
	class, result := classifyError(fmt.Errorf("%w: %w", errWorker, dial(syscall.EMFILE)))
	if class != classWorker || !holdfast.IsWorkerFault(result) || !errors.Is(result, syscall.EMFILE) {
		t.Errorf("%s, %v", class, result)
	}
}

// The resolver works if a name server answers the control question, also with an error or as the second one that is asked.
func TestAResolverThatAnswersIsNotDown(t *testing.T) {
	t.Parallel()
	for _, code := range []byte{0, 2, 3, 5} { // no error, SERVFAIL, NXDOMAIN, REFUSED
		r := resolver{dial: to(t, nameServer(t, code, nil))}
		if !r.answers() {
			t.Errorf("the answer has the code %d, and the resolver counts as down", code)
		}
	}
	silent := nameServer(t, 0, func(string) bool { return true })
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for what, address := range map[string]string{"refuses": gone.LocalAddr().String(), "is silent": silent} {
		r := resolver{dial: to(t, address)}
		if r.answers() {
			t.Errorf("the name server %s, and the resolver counts as working", what)
		}
	}
	var asked atomic.Int64
	works := nameServer(t, 0, nil)
	r := resolver{dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		server := works
		if asked.Add(1) == 1 {
			server = silent
		}
		return new(net.Dialer).DialContext(ctx, network, server)
	}}
	if !r.answers() && asked.Load() > 1 { // which resolv.conf can forbid
		t.Error("the second name server answers, and the resolver counts as down")
	}
}

// Failures at one time share one control question.
func TestTheControlQuestionIsShared(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	works := nameServer(t, 0, nil)
	r := resolver{dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		asked.Add(1)
		return new(net.Dialer).DialContext(ctx, network, works)
	}}
	began := time.Now()
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if !r.answers() {
				t.Error("the resolver counts as down")
			}
		})
	}
	callers.Wait()
	if n := asked.Load(); n != 1 && time.Since(began) < controlShared {
		t.Errorf("the name server was asked %d times", n)
	}
}

// A name whose own servers are silent is the task's failure, because the name server of this worker answers other
// questions. If it answers nothing, the worker is at fault.
func TestASilentNameIsTheTasksFailure(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		silent func(name string) bool
		own    bool
	}{
		{"one name gets no answer", func(name string) bool { return strings.Contains(name, "dead") }, false},
		{"nothing gets an answer", func(string) bool { return true }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, err := New(Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			h.resolver.dial = to(t, nameServer(t, 0, test.silent))
			dialer := h.guard.dialer()
			dialer.Timeout = time.Second
			dialer.Resolver = &net.Resolver{PreferGo: true, Dial: h.resolver.dial}
			h.transport = newTransport(dialer)
			err = h.Handle(t.Context(), holdfast.Task{ID: 1, Attempt: 1, Key: "key",
				Payload: []byte(`{"url": "http://target.dead.example./"}`)})
			if err == nil || holdfast.IsWorkerFault(err) != test.own {
				t.Errorf("the worker's fault %t, want %t: %v", holdfast.IsWorkerFault(err), test.own, err)
			}
			if err != nil && !strings.Contains(err.Error(), "lookup target.dead.example.") {
				t.Errorf("the name is not the cause: %v", err)
			}
		})
	}
}

// to returns a dial function that leads to one name server. Its connections end with the test: the standard library would
// wait longer for an answer.
func to(t *testing.T, server string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, server)
		if err == nil {
			context.AfterFunc(t.Context(), func() { _ = conn.Close() })
		}
		return conn, err
	}
}

// nameServer answers every question with a code and no record, except the questions about a name that is silent.
func nameServer(t *testing.T, code byte, silent func(name string) bool) (address string) {
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
			if silent != nil && silent(string(message[12:n])) { // the question comes after the header
				continue
			}
			message[2] |= 0x80 // an answer
			message[3] = message[3]&0xf0 | code
			_, _ = conn.WriteTo(message[:n], from)
		}
	}()
	return conn.LocalAddr().String()
}
