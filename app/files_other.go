//go:build !unix

package app

// maxFiles returns how many files and connections this process may have open; 0 if that is not known.
func maxFiles() uint64 { return 0 }
