//go:build !linux

package sqlite

// freeBytes would be what this user may still write to the disk of a folder. Here nothing tells.
func freeBytes(string) (free uint64, known bool) { return 0, false }

// networkFileSystem would name the file system that holds a folder if it is one on which a database is not
// safe. Here nothing tells.
func networkFileSystem(string) string { return networkKind(0) }
