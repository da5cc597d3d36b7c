//go:build unix

package demo

import "syscall"

// detached puts a process in its own session, so that Ctrl-C in this terminal does not reach it.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
