package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func look(pid int) Self {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Self{}
	}
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || !own() {
		return Self{}
	}
	// Start times depend on the time namespace. Kernels before 5.6 have none.
	times, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Self{}
	}
	now, err := read(pid)
	if err != nil {
		return Self{}
	}
	return Self{Boot: strings.TrimSpace(string(boot)), Namespace: strings.TrimSpace(pids + " " + times), Started: now.started}
}

// own reports whether /proc shows the namespace of this process. A mount of /proc may show another one.
func own() bool {
	name, err := os.Readlink("/proc/self")
	return err == nil && name == strconv.Itoa(os.Getpid())
}

func gone(pid int, started int64) bool {
	switch err := unix.Kill(pid, 0); {
	case errors.Is(err, unix.ESRCH):
		return true
	case err != nil, !own(): // for example, permission denied
		return false
	}
	now, err := read(pid)
	// A zombie is a process that has ended and whose parent has not read its exit status. It proves nothing while other
	// threads run.
	return err == nil && (now.started != started || now.state == "Z" && now.threads == 1)
}

type stat struct {
	state   string
	threads int64
	started int64
}

func read(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parse(string(text))
}

// parse returns the fields after the name, which is in parentheses and may contain any character. See proc(5): counted
// from 1, the state is field 3, the number of threads is field 20, and the start is field 22.
func parse(text string) (stat, error) {
	end := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	const first = 3
	if end < 0 || len(fields) <= 22-first {
		return stat{}, fmt.Errorf("parse the state of a process: got %d fields", len(fields))
	}
	threads, err := strconv.ParseInt(fields[20-first], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("parse the state of a process: %w", err)
	}
	started, err := strconv.ParseInt(fields[22-first], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("parse the state of a process: %w", err)
	}
	return stat{fields[0], threads, started}, nil
}
