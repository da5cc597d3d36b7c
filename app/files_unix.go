//go:build unix

package app

import "syscall"

// maxFiles returns how many files and connections this process may open. It returns 0 if the limit is unknown. The Go
// runtime has raised the soft limit to the hard limit.
func maxFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}
