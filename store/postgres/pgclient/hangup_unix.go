//go:build unix

package pgclient

import (
	"errors"
	"net"
	"syscall"
)

// hungUp reports, without waiting, whether the server has closed an idle connection or has sent data on it. A
// PostgreSQL server sends data on an idle connection only to announce that it closes the connection.
func hungUp(c net.Conn) bool {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return true
	}
	up := false
	var one [1]byte
	err = control.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		up = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
	})
	return err != nil || !up
}
