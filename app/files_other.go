//go:build !unix

package app

// maxFiles returns how many files and connections this process may open. It returns 0 if the limit is unknown.
func maxFiles() uint64 { return 0 }
