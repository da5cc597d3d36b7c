//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package sqlite

import "os"

// On this system a lock on the write-ahead log would keep SQLite from reading it. So no process takes precedence.
func lockFile(*os.File) bool        { return false }
func unlockFile(*os.File)           {}
func lockedElsewhere(*os.File) bool { return false }
