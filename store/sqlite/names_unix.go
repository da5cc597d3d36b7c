//go:build unix && !linux

package sqlite

import (
	"os"
	"syscall"
)

// otherNames says why a file may be known under a second path, so that two processes would each keep a
// write-ahead log and a lock of their own beside it; "" if it is not.
func otherNames(_ string, info os.FileInfo) string {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return hardLinked
	}
	return ""
}
