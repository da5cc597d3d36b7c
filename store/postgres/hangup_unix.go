//go:build unix

package postgres

import (
	"errors"
	"net"
	"syscall"
)

// hungUp looks, without waiting, whether the other side has closed an idle connection or said
// something on it, which a PostgreSQL server does only to say that it ends it.
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
