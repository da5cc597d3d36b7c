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
	// Starts count from the boot as a time namespace sees it. Kernels before 5.6 have none.
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

// own reports whether /proc shows the processes of this process's namespace, which a mount of another one does not.
func own() bool {
	name, err := os.Readlink("/proc/self")
	return err == nil && name == strconv.Itoa(os.Getpid())
}

func gone(pid int, started int64) bool {
	switch err := unix.Kill(pid, 0); {
	case errors.Is(err, unix.ESRCH):
		return true
	case err != nil, !own(): // not allowed, for one
		return false
	}
	now, err := read(pid)
	// A zombie is the last of a process whose parent has not asked how it ended. While other threads go on it is no proof.
	return err == nil && (now.started != started || now.state == "Z" && now.threads == 1)
}

// stat is what /proc says of a process.
type stat struct {
	state   string
	threads int64
	started int64
}

// read reads /proc/PID/stat.
func read(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parse(string(text))
}

// parse reads the fields behind the name, which is in parentheses and may contain anything. Of the fields, counted from 1, the
// state is the third, the number of threads is the 20th, and the start is the 22nd: see proc(5).
func parse(text string) (stat, error) {
	end := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	const first = 3
	if end < 0 || len(fields) <= 22-first {
		return stat{}, fmt.Errorf("read the state of a process: %d fields", len(fields))
	}
	threads, err := strconv.ParseInt(fields[20-first], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("read the state of a process: %w", err)
	}
	started, err := strconv.ParseInt(fields[22-first], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("read the state of a process: %w", err)
	}
	return stat{fields[0], threads, started}, nil
}
