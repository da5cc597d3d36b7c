package webhook

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// errWorker marks an error that every target would meet now, because this worker is at fault. Such an error must not use up
// what a task may fail.
var errWorker = errors.New("this worker cannot make requests now")

// workerWait is how long a task is deferred that met such an error: different times, so that the tasks do not come back together.
func workerWait() time.Duration { return 5*time.Second + rand.N(5*time.Second) }

// atFault reports whether an error is the worker's own. "No route" is that only if there is no way to any network: else the
// target is what cannot be reached. The failure of a name is that only if no resolver answers.
func (h *Handler) atFault(err error) bool {
	for _, own := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENETDOWN} {
		if errors.Is(err, own) {
			return true
		}
	}
	switch name, isName := errors.AsType[*net.DNSError](err); {
	case isName:
		return !name.IsNotFound && h.resolver.down.Load()
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return !routed()
	}
	return false
}

// routed reports whether this host has a route to any public address. Nothing is sent: connecting a datagram socket only looks
// for the route. The addresses are those reserved for documentation.
func routed() bool {
	for network, address := range map[string]string{"udp4": "192.0.2.1:9", "udp6": "[2001:db8::1]:9"} {
		if conn, err := net.Dial(network, address); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

// resolver looks names up as usual, and notes whether the last question to a name server was answered, whatever the answer.
type resolver struct{ down atomic.Bool }

func (r *resolver) resolver() *net.Resolver {
	return &net.Resolver{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			r.note(ctx, err)
			return nil, err
		}
		asked := question{Conn: conn, resolver: r, ctx: ctx}
		if packets, ok := conn.(net.PacketConn); ok { // which the standard library speaks differently
			return datagram{asked, packets}, nil
		}
		return asked, nil
	}}
}

func (r *resolver) note(ctx context.Context, err error) {
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) { // else nobody waited for the answer any more
		r.down.Store(err != nil)
	}
}

// question is a connection to a name server, and datagram one that keeps the bounds of messages.
type question struct {
	net.Conn
	resolver *resolver
	ctx      context.Context // of the one question
}

// Read implements net.Conn.
func (q question) Read(b []byte) (int, error) {
	n, err := q.Conn.Read(b)
	q.resolver.note(q.ctx, err)
	return n, err
}

type datagram struct {
	question
	packets net.PacketConn
}

// ReadFrom implements net.PacketConn.
func (d datagram) ReadFrom(b []byte) (int, net.Addr, error) { return d.packets.ReadFrom(b) }

// WriteTo implements net.PacketConn.
func (d datagram) WriteTo(b []byte, to net.Addr) (int, error) { return d.packets.WriteTo(b, to) }
