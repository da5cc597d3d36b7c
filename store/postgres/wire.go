package postgres

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dialer opens the network connections of one database connection: its own, and those over which
// lib/pq asks to cancel.
type dialer struct {
	mu     sync.Mutex
	newest *wire
	done   bool // the connection is there: whatever is dialled now is to cancel
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

// connected returns the connection that was dialled last, which is the one that is used.
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

// wire is a network connection that can be cut from another goroutine for good, and does not wait
// for an answer for ever.
type wire struct {
	net.Conn
	silence atomic.Int64 // longest wait of one Read; 0 means no limit of its own
	written atomic.Int64 // bytes
	kept    atomic.Bool  // somebody else closes the connection: Close does not

	mu     sync.Mutex
	isOver bool
}

// cut makes all reads and writes fail from grace on.
func (w *wire) cut(grace time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isOver = true
	_ = w.Conn.SetDeadline(time.Now().Add(grace))
}

func (w *wire) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isOver
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

// limit sets a deadline, except after a cut, whose deadline is the last.
func (w *wire) limit(set func(time.Time) error, t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isOver {
		return nil
	}
	return set(t)
}
