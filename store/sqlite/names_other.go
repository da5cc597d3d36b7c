//go:build !unix

package sqlite

import "os"

// otherNames returns "", because this system does not report other names of a file.
func otherNames(string, os.FileInfo) string { return "" }
