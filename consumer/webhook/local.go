package webhook

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// errWorker marks an error that a request to any target would have now, because this worker is at fault. Such an error
// must not use up an attempt of a task.
var errWorker = errors.New("this worker cannot make requests now")

// workerWait returns how long a task with such an error is deferred. The times differ, so that the tasks do not come
// back together.
func workerWait() time.Duration { return 5*time.Second + rand.N(5*time.Second) }

// atFault reports whether the worker is at fault for an error. For "no route" it is at fault only if it has no route to
// any network; otherwise only the target cannot be reached. For a failed look-up of a name it is at fault only if no
// name server answers another question either.
func (h *Handler) atFault(err error) bool {
	for _, own := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENETDOWN} {
		if errors.Is(err, own) {
			return true
		}
	}
	switch name, isName := errors.AsType[*net.DNSError](err); {
	case isName:
		return !name.IsNotFound && !h.resolver.answers()
	case errors.Is(err, syscall.EADDRNOTAVAIL) && hasSource(err):
		return true // no local port is available
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return !routed()
	}
	return false
}

// hasSource reports whether this host has an address from which it can reach the address of a failed dial. A host
// without IPv6 has none for an IPv6 target. It sends nothing.
func hasSource(err error) bool {
	dial, _ := errors.AsType[*net.OpError](err)
	if dial == nil {
		return false
	}
	to, ok := dial.Addr.(*net.TCPAddr)
	if !ok {
		return false
	}
	conn, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: to.IP, Port: to.Port, Zone: to.Zone})
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// routed reports whether this host has a route to any public address. It sends nothing, because to connect a datagram
// socket only looks up the route. The addresses are reserved for documentation.
func routed() bool {
	for network, address := range map[string]string{"udp4": "192.0.2.1:9", "udp6": "[2001:db8::1]:9"} {
		if conn, err := net.Dial(network, address); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

const (
	// controlTime is how long each name server has to answer the control question.
	controlTime = time.Second
	// controlServers bounds the number of name servers: the standard library asks at most three.
	controlServers = 3
	// controlShared is how long the result counts for other failures.
	controlShared = 3 * time.Second
)

// resolver checks whether the name servers of this worker answer. The zero value asks those of the system.
type resolver struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error) // to a name server; nil for the usual way

	mu       sync.Mutex // held while the control question is asked, so that all callers share one
	asked    time.Time
	answered bool
}

// answers reports whether a name server answers a control question: the name servers of the root. An answer that
// reports an error counts as an answer. So if the servers of one name are silent, the worker is not taken for one that
// cannot resolve names.
func (r *resolver) answers() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked.IsZero() || time.Since(r.asked) >= controlShared {
		r.answered = r.ask()
		r.asked = time.Now()
	}
	return r.answered
}

func (r *resolver) ask() bool {
	dial := r.dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	var answered atomic.Bool
	control := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, controlTime)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		asked := question{Conn: conn, answered: &answered}
		if packets, ok := conn.(net.PacketConn); ok { // the standard library frames messages differently on these
			return datagram{asked, packets}, nil
		}
		return asked, nil
	}}
	ctx, cancel := context.WithTimeout(context.Background(), controlServers*controlTime)
	defer cancel()
	_, _ = control.LookupNS(ctx, ".") // only whether an answer came counts
	return answered.Load()
}

// question is a connection to a name server. datagram is one that keeps the boundaries of messages.
type question struct {
	net.Conn
	answered *atomic.Bool
}

// SetDeadline implements net.Conn. It leaves time for the next name server.
func (q question) SetDeadline(t time.Time) error {
	if limit := time.Now().Add(controlTime); t.IsZero() || t.After(limit) {
		t = limit
	}
	return q.Conn.SetDeadline(t)
}

// Read implements net.Conn.
func (q question) Read(b []byte) (int, error) {
	n, err := q.Conn.Read(b)
	if n > 0 {
		q.answered.Store(true)
	}
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
