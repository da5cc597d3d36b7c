//go:build !unix

package postgres

import "net"

// hungUp is not known here: the first statement after a restart of the server then fails.
func hungUp(net.Conn) bool { return false }
