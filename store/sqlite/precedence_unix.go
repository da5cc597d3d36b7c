//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks a file, unless another process has locked it. It reports whether this process has the lock.
func lockFile(file *os.File) bool { return flockFile(file, syscall.LOCK_EX|syscall.LOCK_NB) == nil }

// unlockFile ends the lock of this process.
func unlockFile(file *os.File) { _ = flockFile(file, syscall.LOCK_UN) }

// lockedElsewhere reports whether another process has locked the file. A shared lock for a short time shows that.
func lockedElsewhere(file *os.File) bool {
	err := flockFile(file, syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		unlockFile(file)
	}
	return errors.Is(err, syscall.EWOULDBLOCK)
}

// flockFile calls the function of the system. It returns an error after the file was closed.
func flockFile(file *os.File, how int) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) { result = syscall.Flock(int(fd), how) })
	return errors.Join(err, result)
}
