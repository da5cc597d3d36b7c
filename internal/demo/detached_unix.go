//go:build unix

package demo

import "syscall"

// detached keeps a process apart from this terminal, whose Ctrl-C is not meant for it.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
