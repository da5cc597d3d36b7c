//go:build !unix

package pgclient

import "net"

// hungUp cannot be determined on this system. The first statement after a restart of the server fails.
func hungUp(net.Conn) bool { return false }
