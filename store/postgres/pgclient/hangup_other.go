//go:build !unix

package pgclient

import "net"

// hungUp always returns false, because this system does not report the end of a connection. So the first statement
// after a restart of the server fails.
func hungUp(net.Conn) bool { return false }
