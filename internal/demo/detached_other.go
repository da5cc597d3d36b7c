//go:build !unix

package demo

import "syscall"

func detached() *syscall.SysProcAttr { return nil }
