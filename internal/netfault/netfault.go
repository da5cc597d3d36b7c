// Package netfault is a TCP proxy that breaks the network between a client and a
// server on demand. It is for tests only.
package netfault

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Proxy forwards TCP connections to one address. Its methods may be called from any
// goroutine; each fault also applies to connections that are made later, until Heal.
type Proxy struct {
	target   string
	listener net.Listener
	work     sync.WaitGroup

	mu      sync.Mutex
	pairs   map[*pair]bool
	refuse  bool
	forward [2]chan struct{} // by direction: closed while bytes may pass
	closed  bool
}

// direction is the way bytes take.
type direction int

const (
	requests direction = iota // from the client to the server
	replies                   // from the server to the client
)

// pair is one proxied connection.
type pair struct {
	client, server net.Conn
	gone           chan struct{}
	once           sync.Once
	halved         chan struct{} // closed when the server's side was closed and the client's stays open
	halve          sync.Once
}

// New returns a proxy to target (host:port) that listens on a port of the loopback
// interface of its own. End it with Close.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netfault: %w", err)
	}
	p := &Proxy{target: target, listener: listener, pairs: map[*pair]bool{}}
	p.forward = [2]chan struct{}{passing(), passing()}
	p.work.Go(p.accept)
	return p, nil
}

func passing() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Addr is where clients connect to, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut lets nothing pass in either direction and tells nobody, like a cable that was
// pulled: connections stay open, writes vanish into buffers and block when
// these are full. New connections are accepted and stay silent. As with a real cable, what
// was sent meanwhile is delivered after Heal to whoever still listens.
func (p *Proxy) Cut() {
	p.stop(requests)
	p.stop(replies)
}

// CutReplies is a Cut of one direction: the server gets everything and the client
// hears nothing of it.
func (p *Proxy) CutReplies() { p.stop(replies) }

// CutAbrupt resets all present connections. New ones work.
func (p *Proxy) CutAbrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.reset()
	}
}

// CloseServers closes the servers' side of the present connections and tells their clients nothing: the clients' side stays
// open, and what they send vanishes. Heal resets those sides. Ports selects connections by the port that the server sees; without
// ports it is all of them. CloseServers returns how many connections it closed.
func (p *Proxy) CloseServers(ports ...int) (closed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		local, ok := pair.server.LocalAddr().(*net.TCPAddr)
		if len(ports) == 0 || ok && slices.Contains(ports, local.Port) {
			closed++
			pair.halve.Do(func() { close(pair.halved) })
			pair.server.Close()
		}
	}
	return closed
}

// Refuse is a CutAbrupt that also resets every new connection, until Heal: the server is down.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.CutAbrupt()
}

// Heal ends all faults.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
	for pair := range p.pairs {
		if pair.half() {
			pair.reset()
		}
	}
	for d, gate := range p.forward {
		select {
		case <-gate:
		default:
			close(p.forward[d])
		}
	}
}

// Connections is how many connections there are now.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

// Close resets all connections and returns when every goroutine of the proxy has ended.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.CutAbrupt()
	p.work.Wait()
	return err
}

func (p *Proxy) stop(d direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.forward[d]:
		p.forward[d] = make(chan struct{})
	default:
	}
}

func (p *Proxy) gate(d direction) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forward[d]
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.work.Go(func() { p.serve(client) })
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		reset(client)
		return
	}
	pair := &pair{client: client, server: server, gone: make(chan struct{}), halved: make(chan struct{})}
	p.mu.Lock()
	if p.refuse || p.closed {
		pair.reset()
	}
	p.pairs[pair] = true
	p.mu.Unlock()
	defer func() {
		pair.reset()
		p.mu.Lock()
		delete(p.pairs, pair)
		p.mu.Unlock()
	}()
	var both sync.WaitGroup
	both.Go(func() { p.copy(pair, requests, client, server) })
	both.Go(func() { p.copy(pair, replies, server, client) })
	both.Wait()
}

// copy moves bytes until either side has ended; the end of a stream passes the gate like its bytes.
func (p *Proxy) copy(pair *pair, d direction, from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, readErr := from.Read(buffer)
		select {
		case <-p.gate(d):
		case <-pair.gone:
			return
		}
		if pair.half() {
			if d == requests && readErr == nil {
				continue // to nowhere
			}
			if d == replies {
				<-pair.gone
			}
			pair.reset()
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil && !pair.half() {
				pair.reset()
				return
			}
		}
		if readErr != nil {
			if tcp, ok := to.(*net.TCPConn); ok {
				_ = tcp.CloseWrite() // fails only if it is closed already
			}
			return
		}
	}
}

func (pr *pair) half() bool {
	select {
	case <-pr.halved:
		return true
	default:
		return false
	}
}

func (pr *pair) reset() {
	pr.once.Do(func() {
		close(pr.gone)
		reset(pr.client)
		reset(pr.server)
	})
}

// reset closes with a RST instead of a FIN.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only if it is closed already
	}
	conn.Close()
}
