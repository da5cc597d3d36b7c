package sqlite

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeBytes is what this user may still write to the disk of a folder.
func freeBytes(folder string) (free uint64, known bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return 0, false
	}
	return stat.Bavail * uint64(stat.Bsize), true
}

// networkFileSystem names the file system that holds a folder if it is one on which a database is not safe.
func networkFileSystem(folder string) string {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return "" // whoever opens the file there finds out
	}
	return networkKind(int64(stat.Type))
}

// otherNames says why a file may be known under a second path, so that two processes would each keep a
// write-ahead log and a lock of their own beside it; "" if it is not.
func otherNames(path string, info os.FileInfo) string {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return hardLinked
	}
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS, &stat)
	if err == nil && stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return "it is mounted by itself (mount its folder instead)"
	}
	return ""
}
