//go:build !unix

package sqlite

import "os"

// otherNames would say why a file may be known under a second path. Here nothing tells.
func otherNames(string, os.FileInfo) string { return "" }
