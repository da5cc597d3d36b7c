package sqlite

import "golang.org/x/sys/unix"

// networkFileSystem names the file system that holds a folder if it is one on which a database is not safe.
func networkFileSystem(folder string) string {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return "" // whoever opens the file there finds out
	}
	return networkKind(int64(stat.Type))
}
