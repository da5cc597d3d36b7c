// Package rig runs the holdfast program as processes that a test can signal, kill and observe, and counts observations.
// Tests of several packages share it.
package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a process of holdfast serve. Its methods are safe for concurrent use, except Endpoints and Ready.
type Process struct {
	cmd     *exec.Cmd
	ended   chan struct{}
	address chan string

	mu   sync.Mutex
	base string // URL of its HTTP endpoints; empty until they are known
	logs []string
}

var servedAt = regexp.MustCompile(`serving health.*address="?([0-9.:]+)`)

// Serve starts holdfast serve with further flags and returns at once. The process gets exactly the given environment
// and listens on a free port of 127.0.0.1. The caller ends it, for example with Kill.
func Serve(program string, environment []string, flags ...string) (*Process, error) {
	p := &Process{ended: make(chan struct{}), address: make(chan string, 1)}
	p.cmd = exec.Command(program, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	p.cmd.Env = environment
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.mu.Lock()
			p.logs = append(p.logs, lines.Text())
			p.mu.Unlock()
			if found := servedAt.FindStringSubmatch(lines.Text()); found != nil {
				p.address <- found[1]
			}
		}
		_ = p.cmd.Wait() // ExitCode returns the result
		close(p.ended)
	}()
	return p, nil
}

// Endpoints waits until the process serves its HTTP endpoints and returns their base URL. If the process has ended,
// Endpoints returns an error with the last lines of its log.
func (p *Process) Endpoints(ctx context.Context) (string, error) {
	p.mu.Lock()
	base := p.base
	p.mu.Unlock()
	if base != "" {
		return base, nil
	}
	select {
	case address := <-p.address:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.base = "http://" + address
		return p.base, nil
	case <-p.ended:
		return "", errors.New("holdfast serve ended at once:\n" + strings.Join(p.Log(20), "\n"))
	case <-ctx.Done():
		return "", fmt.Errorf("holdfast serve does not serve its endpoints: %w", context.Cause(ctx))
	}
}

// Ready waits until the readiness endpoint answers 200. It returns an error if the process ends or ctx is done first.
func (p *Process) Ready(ctx context.Context) error {
	base, err := p.Endpoints(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		last := CheckReady(ctx, base)
		if last == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return errors.New("holdfast serve ended before it was ready:\n" + strings.Join(p.Log(20), "\n"))
		case <-ctx.Done():
			return fmt.Errorf("holdfast serve is not ready: %w", last)
		}
	}
}

// CheckReady returns nil if the readiness endpoint of the process with the base URL answers 200.
func CheckReady(ctx context.Context, base string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/healthz/ready", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal. If the process has ended, Signal does nothing.
func (p *Process) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// ExitCode returns the exit code. It may be called only after the process has ended.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Kill kills the process with SIGKILL, even if the process is stopped, and returns when the process has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGCONT)
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Log returns at most the last n lines of the log.
func (p *Process) Log(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.logs[max(0, len(p.logs)-n):])
}

// Logged reports whether any line of the log contains text.
func (p *Process) Logged(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.logs, func(line string) bool { return strings.Contains(line, text) })
}
