//go:build unix && !linux

package sqlite

import (
	"os"
	"syscall"
)

// otherNames returns the reason why a file may have a second path, or "" if it has only one path. With two paths, two
// processes could each have a separate write-ahead log and a separate lock.
func otherNames(_ string, info os.FileInfo) string {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return hardLinked
	}
	return ""
}
