package sqlite

import "golang.org/x/sys/unix"

// freeBytes is what this user may still write to the disk of a folder.
func freeBytes(folder string) (free uint64, known bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return 0, false
	}
	return stat.Bavail * uint64(stat.Bsize), true
}
