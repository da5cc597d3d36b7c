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

// An error of the worker's own resources is the worker's fault, also if the error is wrapped. An error of a target is
// not.
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
	portsInUse := func(ip string) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 9},
			Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}
	}
	for _, c := range []struct {
		err         error
		down        bool // no name server answers
		workerFault bool
	}{
		{err: dial(syscall.EMFILE), workerFault: true},
		{err: dial(syscall.ENFILE), workerFault: true},
		{err: fmt.Errorf("wrapped: %w", dial(syscall.ENOBUFS)), workerFault: true},
		{err: portsInUse("127.0.0.1"), workerFault: true},
		{err: portsInUse("fe80::1"), workerFault: !hasRoute()}, // without a zone, no source address fits
		{err: dial(syscall.ECONNREFUSED)},
		{err: dial(syscall.ECONNRESET)},
		{err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}},
		{err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}, down: true, workerFault: true},
		{err: &net.DNSError{Err: "no such host", IsNotFound: true}, down: true},
		{err: &timeoutError{time.Second}, down: true},
	} {
		h.resolver.queriedAt, h.resolver.answered = time.Now(), !c.down
		if workerFault := h.isWorkerFault(c.err); workerFault != c.workerFault {
			t.Errorf("%v, resolver down %t: worker fault %t, want %t", c.err, c.down, workerFault, c.workerFault)
		}
	}
	class, result := classifyError(fmt.Errorf("%w: %w", errWorkerFault, dial(syscall.EMFILE)))
	if class != classWorker || !holdfast.IsWorkerFault(result) || !errors.Is(result, syscall.EMFILE) {
		t.Errorf("%s, %v", class, result)
	}
}

// The resolver works if a name server answers the probe query, even with an error. The answer may come from the second
// server.
func TestAResolverThatAnswersIsNotDown(t *testing.T) {
	t.Parallel()
	for _, code := range []byte{0, 2, 3, 5} { // no error, SERVFAIL, NXDOMAIN, REFUSED
		r := resolver{dial: dialTo(t, nameServer(t, code, nil))}
		if !r.answers() {
			t.Errorf("the resolver counts as down after an answer with code %d", code)
		}
	}
	silent := nameServer(t, 0, func(string) bool { return true })
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for state, address := range map[string]string{"refuses": closed.LocalAddr().String(), "is silent": silent} {
		r := resolver{dial: dialTo(t, address)}
		if r.answers() {
			t.Errorf("the resolver counts as working, but the name server %s", state)
		}
	}
	var queries atomic.Int64
	working := nameServer(t, 0, nil)
	r := resolver{dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		server := working
		if queries.Add(1) == 1 {
			server = silent
		}
		return new(net.Dialer).DialContext(ctx, network, server)
	}}
	if !r.answers() && queries.Load() > 1 { // resolv.conf can prevent the second query
		t.Error("the resolver counts as down, but the second name server answers")
	}
}

// Simultaneous failures share one probe query.
func TestTheProbeQueryIsShared(t *testing.T) {
	t.Parallel()
	var queries atomic.Int64
	working := nameServer(t, 0, nil)
	r := resolver{dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		queries.Add(1)
		return new(net.Dialer).DialContext(ctx, network, working)
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
	if n := queries.Load(); n != 1 && time.Since(began) < probeValidity {
		t.Errorf("the name server received %d queries", n)
	}
}

// If the servers of one name are silent, that is a failure of the task, because the name server of this host answers
// other queries. If the name server answers nothing, the worker is at fault.
func TestASilentNameIsTheTasksFailure(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		silent      func(name string) bool
		workerFault bool
	}{
		{"one silent name", func(name string) bool { return strings.Contains(name, "dead") }, false},
		{"silent name server", func(string) bool { return true }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, err := New(Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			h.resolver.dial = dialTo(t, nameServer(t, 0, test.silent))
			dialer := h.guard.dialer()
			dialer.Timeout = time.Second
			dialer.Resolver = &net.Resolver{PreferGo: true, Dial: h.resolver.dial}
			h.transport = newTransport(dialer)
			err = h.Handle(t.Context(), holdfast.Task{ID: 1, Attempt: 1, ImportedKey: "key",
				Payload: []byte(`{"url": "http://target.dead.example/"}`)})
			if err == nil || holdfast.IsWorkerFault(err) != test.workerFault {
				t.Errorf("worker fault %t, want %t: %v", holdfast.IsWorkerFault(err), test.workerFault, err)
			}
			if err != nil && !strings.Contains(err.Error(), "lookup target.dead.example") {
				t.Errorf("the error does not contain the name: %v", err)
			}
		})
	}
}

// dialTo returns a dial function that connects to one name server. Its connections end with the test, because the
// standard library would wait longer for an answer.
func dialTo(t *testing.T, server string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, server)
		if err == nil {
			context.AfterFunc(t.Context(), func() { _ = conn.Close() })
		}
		return conn, err
	}
}

// nameServer answers every query with the given code and no records, except for silent names, which get no answer.
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
			if silent != nil && silent(string(message[12:n])) { // the question follows the header
				continue
			}
			message[2] |= 0x80 // an answer
			message[3] = message[3]&0xf0 | code
			_, _ = conn.WriteTo(message[:n], from)
		}
	}()
	return conn.LocalAddr().String()
}
