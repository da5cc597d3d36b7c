package rabbitmq

import (
	"net"
	"sync"
	"time"
)

// guardedConn gives every write a deadline. amqp091-go writes without one, while it
// holds the lock of the whole connection: a peer that vanished, or that
// stopped reading because of an alarm, would hang all its callers for ever.
type guardedConn struct {
	net.Conn
	limit time.Duration

	mu     sync.Mutex
	wanted time.Time // deadline asked for by the connection's user; zero for none
}

func (c *guardedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	deadline := time.Now().Add(c.limit)
	if !c.wanted.IsZero() && c.wanted.Before(deadline) {
		deadline = c.wanted
	}
	err := c.Conn.SetWriteDeadline(deadline)
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline implements [net.Conn].
func (c *guardedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements [net.Conn].
func (c *guardedConn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}
