package sqlite

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeBytes returns how many bytes this user can still write to the disk of a folder.
func freeBytes(folder string) (free uint64, known bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return 0, false
	}
	return stat.Bavail * uint64(stat.Bsize), true
}

// networkFileSystem returns the name of the network file system of a folder, or "" if it is on another file system.
func networkFileSystem(folder string) string {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return "" // opening the file reports the problem
	}
	return networkKind(int64(stat.Type))
}

// otherNames returns the reason why a file may have a second path, or "" if it has only one path. With two paths, two
// processes could each have a separate write-ahead log and a separate lock.
func otherNames(path string, info os.FileInfo) string {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return hardLinked
	}
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS, &stat)
	if err == nil && stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return "the file is a mount point (mount its folder instead)"
	}
	return ""
}

// holdersOf returns the processes that have a file open, as far as this user may see them, or "".
func holdersOf(path string) string {
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return ""
	}
	var holders []string
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != path {
			continue
		}
		process := filepath.Dir(filepath.Dir(link))
		name, err := os.ReadFile(filepath.Join(process, "comm"))
		if id := filepath.Base(process); err == nil && id != strconv.Itoa(os.Getpid()) {
			holder := strings.TrimSpace(string(name)) + " (" + id + ")"
			if !slices.Contains(holders, holder) {
				holders = append(holders, holder)
			}
		}
	}
	return strings.Join(holders, ", ")
}
