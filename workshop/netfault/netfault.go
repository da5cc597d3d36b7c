// Package netfault provides a TCP proxy that breaks the network between a client and a server on demand. It is for
// tests only.
package netfault

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Proxy forwards TCP connections to one address. Its methods are safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex
	pairs  map[*pair]bool
	refuse bool
	gates  [2]chan struct{} // one for each direction; closed while bytes may pass
	closed bool
}

// direction is the direction in which bytes travel.
type direction int

const (
	requests direction = iota // bytes from the client to the server
	replies                   // bytes from the server to the client
)

// pair is one proxied connection.
type pair struct {
	client, server net.Conn
	ended          chan struct{} // closed by reset
	end            sync.Once
	halfClosed     chan struct{} // closed when CloseServers has closed the server side
	halfClose      sync.Once
}

// New returns a proxy to target, a host:port. The proxy listens on a free port of 127.0.0.1. The caller must call
// Close.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netfault: %w", err)
	}
	p := &Proxy{target: target, listener: listener, pairs: map[*pair]bool{}}
	p.gates = [2]chan struct{}{passing(), passing()}
	p.work.Go(p.accept)
	return p, nil
}

// passing returns a gate that lets bytes pass.
func passing() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Addr returns the address to which clients connect, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut stops all bytes in both directions until Heal, like an unplugged cable. Connections stay open. Writes go to
// buffers and block when the buffers are full. The proxy accepts new connections, but passes no bytes on them. After
// Heal it delivers the buffered bytes on connections that are still open.
func (p *Proxy) Cut() {
	p.stop(requests)
	p.stop(replies)
}

// CutReplies stops all bytes from the server to its clients until Heal, also on new connections. Bytes from the clients
// still pass.
func (p *Proxy) CutReplies() { p.stop(replies) }

// CutAbrupt resets all open connections. New connections work.
func (p *Proxy) CutAbrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.reset()
	}
}

// CloseServers closes the server side of open connections. The client side stays open, and the proxy discards what the
// client sends. Heal resets the client side. If there are ports, CloseServers closes only the connections whose client
// port, as the server sees it, is one of them. CloseServers returns the number of closed connections.
func (p *Proxy) CloseServers(ports ...int) (closed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		local, ok := pair.server.LocalAddr().(*net.TCPAddr)
		if len(ports) == 0 || ok && slices.Contains(ports, local.Port) {
			closed++
			pair.halfClose.Do(func() { close(pair.halfClosed) })
			pair.server.Close()
		}
	}
	return closed
}

// Refuse resets all open connections, and every new connection until Heal, as if the server were down.
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
		if pair.isHalfClosed() {
			pair.reset()
		}
	}
	for d, gate := range p.gates {
		select {
		case <-gate:
		default:
			close(p.gates[d])
		}
	}
}

// Connections returns the number of open connections.
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

// stop stops the bytes in one direction.
func (p *Proxy) stop(d direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gates[d]:
		p.gates[d] = make(chan struct{})
	default:
	}
}

func (p *Proxy) gate(d direction) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gates[d]
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
	pair := &pair{client: client, server: server, ended: make(chan struct{}), halfClosed: make(chan struct{})}
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

// copy copies bytes until either side has ended. The end of a stream waits at the gate like its bytes.
func (p *Proxy) copy(pair *pair, d direction, from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, readErr := from.Read(buffer)
		select {
		case <-p.gate(d):
		case <-pair.ended:
			return
		}
		if pair.isHalfClosed() {
			if d == requests && readErr == nil {
				continue // discard the bytes
			}
			if d == replies {
				<-pair.ended
			}
			pair.reset()
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil && !pair.isHalfClosed() {
				pair.reset()
				return
			}
		}
		if readErr != nil {
			if tcp, ok := to.(*net.TCPConn); ok {
				_ = tcp.CloseWrite() // fails only if the connection is closed
			}
			return
		}
	}
}

func (pr *pair) isHalfClosed() bool {
	select {
	case <-pr.halfClosed:
		return true
	default:
		return false
	}
}

func (pr *pair) reset() {
	pr.end.Do(func() {
		close(pr.ended)
		reset(pr.client)
		reset(pr.server)
	})
}

// reset closes a connection with RST instead of FIN.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only if the connection is closed
	}
	conn.Close()
}
