package rabbitmq

import (
	"net"
	"sync"
	"time"
)

// guardedConn gives every write a deadline. While amqp091-go writes, it holds the lock of the whole connection. So if a
// peer has vanished, or has stopped reading because of an alarm, a write without a deadline would block all callers
// forever.
type guardedConn struct {
	net.Conn
	limit time.Duration

	mu             sync.Mutex
	callerDeadline time.Time // deadline set by the driver; zero means none
}

func (c *guardedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	deadline := time.Now().Add(c.limit)
	if !c.callerDeadline.IsZero() && c.callerDeadline.Before(deadline) {
		deadline = c.callerDeadline
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
	c.callerDeadline = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements [net.Conn].
func (c *guardedConn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}
