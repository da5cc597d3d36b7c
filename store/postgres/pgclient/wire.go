package pgclient

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dialer opens the network connections of one database connection: its own connection, and those for the cancel
// requests of lib/pq.
type dialer struct {
	mu     sync.Mutex
	newest *wire
	done   bool // the database connection is open, so later network connections are for cancel requests
}

func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: raw}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		w.cut(cancelLimit)
		return w, nil
	}
	d.newest = w
	return w, nil
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

func (d *dialer) last() *wire {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.newest
}

// connected returns the connection that was dialed last, which is in use.
func (d *dialer) connected() *wire {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = true
	return d.newest
}

func (d *dialer) cut() {
	if w := d.last(); w != nil {
		w.cut(0)
	}
}

// wire is a network connection with a time limit for reads and writes. Another goroutine can cut it permanently.
type wire struct {
	net.Conn
	silence atomic.Int64 // maximum time of one Read or Write, in nanoseconds; 0 means no limit
	written atomic.Int64 // number of written bytes
	kept    atomic.Bool  // Close does nothing: the owner closes the network connection itself

	mu    sync.Mutex
	isCut bool
}

// cut makes all reads and writes fail after grace.
func (w *wire) cut(grace time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	_ = w.Conn.SetDeadline(time.Now().Add(grace))
}

func (w *wire) wasCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isCut
}

func (w *wire) Read(b []byte) (int, error) {
	if silence := w.silence.Load(); silence > 0 {
		_ = w.SetReadDeadline(time.Now().Add(time.Duration(silence)))
	}
	return w.Conn.Read(b)
}

func (w *wire) Write(b []byte) (int, error) {
	if silence := w.silence.Load(); silence > 0 {
		_ = w.SetWriteDeadline(time.Now().Add(time.Duration(silence)))
	}
	n, err := w.Conn.Write(b)
	w.written.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (w *wire) Close() error {
	if w.kept.Load() {
		return nil
	}
	return w.Conn.Close()
}

func (w *wire) SetDeadline(t time.Time) error      { return w.limit(w.Conn.SetDeadline, t) }
func (w *wire) SetReadDeadline(t time.Time) error  { return w.limit(w.Conn.SetReadDeadline, t) }
func (w *wire) SetWriteDeadline(t time.Time) error { return w.limit(w.Conn.SetWriteDeadline, t) }

// limit sets a deadline. After a cut it does nothing, so the deadline of the cut remains.
func (w *wire) limit(set func(time.Time) error, t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return nil
	}
	return set(t)
}
