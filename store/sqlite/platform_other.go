//go:build !linux

package sqlite

// freeBytes returns false, because the free space is unknown on this system.
func freeBytes(string) (free uint64, known bool) { return 0, false }

// networkFileSystem returns "", because the file system is unknown on this system.
func networkFileSystem(string) string { return networkKind(0) }

func holdersOf(string) string { return "" }
