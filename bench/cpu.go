package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// servers are the programs whose processor time counts, in addition to the measuring process.
var servers = []string{"postgres", "beam.smp", "redis-server"}

// tick is the unit of the times in /proc, USER_HZ.
const tick = 10 * time.Millisecond

// processorTime returns the processor time of this process, of the worker process and of all servers on the machine. It
// includes their children that have ended.
func processorTime(worker int) (total time.Duration, err error) {
	used, err := processorTimes(os.Getpid(), worker)
	for _, time := range used {
		total += time
	}
	return total, err
}

// ownTime is the key of the time of the given processes in the result of processorTimes.
const ownTime = "process"

// processorTimes returns the processor time of every server on the machine by its name, and of the given processes
// together. It includes their children that have ended.
func processorTimes(pids ...int) (map[string]time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	used := make(map[string]time.Duration)
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if open < 0 || end < open {
			return nil, fmt.Errorf("unexpected content of %s: %q", path, stat)
		}
		name := string(stat[open+1 : end])
		if pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))); slices.Contains(pids, pid) {
			name = ownTime
		} else if !slices.Contains(servers, name) {
			continue
		}
		fields := strings.Fields(string(stat[end+1:]))
		for _, field := range fields[11:15] { // utime, stime, cutime, cstime
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("unexpected content of %s: %q", path, stat)
			}
			used[name] += time.Duration(n) * tick
		}
	}
	return used, nil
}

// Names of the memory sizes of a process in /proc.
const (
	resident = "VmRSS"
	peak     = "VmHWM" // the largest resident size so far
)

// memoryMiB returns a memory size of a process in MiB: resident or peak.
func memoryMiB(pid int, name string) (float64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	status, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name+":" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in %s", name, path)
}
