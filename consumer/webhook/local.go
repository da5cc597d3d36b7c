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

// errWorkerFault marks an error for which this worker process is at fault: a request to any target would fail now. Such
// an error must not use up an attempt of a task.
var errWorkerFault = errors.New("this worker cannot make requests now")

// workerWait returns how long a task with such an error is deferred. The time is random, so that the tasks do not all
// return at once.
func workerWait() time.Duration { return 5*time.Second + rand.N(5*time.Second) }

// isWorkerFault reports whether the worker process is at fault for an error. For "no route", it is at fault only if it
// has no route to any network. For a failed name lookup, it is at fault only if no name server answers the probe query
// either.
func (h *Handler) isWorkerFault(err error) bool {
	switch name, isName := errors.AsType[*net.DNSError](err); {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS),
		errors.Is(err, syscall.ENETDOWN):
		return true
	case isName:
		return !name.IsNotFound && !h.resolver.answers()
	case errors.Is(err, syscall.EADDRNOTAVAIL) && hasSource(err):
		return true // no local port is available
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return !hasRoute()
	}
	return false
}

// hasSource reports whether this host has a source address for the address of a failed dial. For example, a host
// without IPv6 has none for an IPv6 target. hasSource sends no packets.
func hasSource(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	if !ok {
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

// hasRoute reports whether this host has a route to any public address. It sends no packets, because connecting a
// datagram socket only finds the route. The addresses are reserved for documentation.
func hasRoute() bool {
	for network, address := range map[string]string{"udp4": "192.0.2.1:9", "udp6": "[2001:db8::1]:9"} {
		if conn, err := net.Dial(network, address); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

const (
	// probeTimeout is how long each name server has to answer the probe query.
	probeTimeout = time.Second
	// maxNameServers is the maximum number of name servers that the standard library queries.
	maxNameServers = 3
	// probeValidity is how long the result of a probe query applies to later failures.
	probeValidity = 3 * time.Second
)

// resolver checks whether the name servers of this host answer. The zero value queries the system's name servers.
type resolver struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error) // dials a name server; nil means net.Dialer

	mu        sync.Mutex // held during the probe query, so that all callers share one
	queriedAt time.Time
	answered  bool
}

// answers reports whether a name server answers a probe query for the name servers of the root. An answer with an error
// counts, too. So if only the servers of one name are silent, the worker process is not at fault.
func (r *resolver) answers() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queriedAt.IsZero() || time.Since(r.queriedAt) >= probeValidity {
		r.answered = r.query()
		r.queriedAt = time.Now()
	}
	return r.answered
}

func (r *resolver) query() bool {
	dial := r.dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	var answered atomic.Bool
	probe := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		server := nameServerConn{Conn: conn, answered: &answered}
		if packets, ok := conn.(net.PacketConn); ok { // the standard library frames messages differently on packet connections
			return packetConn{server, packets}, nil
		}
		return server, nil
	}}
	ctx, cancel := context.WithTimeout(context.Background(), maxNameServers*probeTimeout)
	defer cancel()
	_, _ = probe.LookupNS(ctx, ".") // the result does not matter, only whether an answer arrived
	return answered.Load()
}

// nameServerConn is a connection to a name server. It records whether an answer arrived.
type nameServerConn struct {
	net.Conn
	answered *atomic.Bool
}

// SetDeadline implements [net.Conn]. It limits the deadline to probeTimeout, to leave time for the next name server.
func (q nameServerConn) SetDeadline(t time.Time) error {
	if limit := time.Now().Add(probeTimeout); t.IsZero() || t.After(limit) {
		t = limit
	}
	return q.Conn.SetDeadline(t)
}

// Read implements [net.Conn].
func (q nameServerConn) Read(b []byte) (int, error) {
	n, err := q.Conn.Read(b)
	if n > 0 {
		q.answered.Store(true)
	}
	return n, err
}

// packetConn is a nameServerConn that preserves message boundaries.
type packetConn struct {
	nameServerConn
	packets net.PacketConn
}

// ReadFrom implements [net.PacketConn].
func (d packetConn) ReadFrom(b []byte) (int, net.Addr, error) { return d.packets.ReadFrom(b) }

// WriteTo implements [net.PacketConn].
func (d packetConn) WriteTo(b []byte, to net.Addr) (int, error) { return d.packets.WriteTo(b, to) }
