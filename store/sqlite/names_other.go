//go:build !unix

package sqlite

import "os"

// otherNames returns "", because this system does not report other names of a file.
func otherNames(string, os.FileInfo) string { return "" }

// ownerOf returns false, because files on this system have no owner with a number.
func ownerOf(os.FileInfo) (user, group int, ok bool) { return 0, 0, false }
