// Package rig runs the holdfast program as processes that can be stopped, killed and started again. The end-to-end tests and
// the measurements of recovery are made with it.
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

// Process is one running holdfast serve.
type Process struct {
	cmd     *exec.Cmd
	ended   chan struct{}
	address chan string

	mu   sync.Mutex
	base string // the URL of its endpoints, once they are served
	logs []string
}

var servedAt = regexp.MustCompile(`serving health and metrics.*address="?([0-9.:]+)`)

// Serve starts a process of the program with these further flags and this environment, and does not wait for it.
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
		_ = p.cmd.Wait() // ExitCode tells
		close(p.ended)
	}()
	return p, nil
}

// Endpoints waits until the process serves its endpoints and returns their URL. The error has the end of its log if it has
// ended.
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
		return "", errors.New("serve ended at once:\n" + strings.Join(p.Log(20), "\n"))
	case <-ctx.Done():
		return "", fmt.Errorf("serve does not serve its endpoints: %w", context.Cause(ctx))
	}
}

// Ready polls the readiness endpoint until it says yes.
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
			return errors.New("serve ended before it was ready:\n" + strings.Join(p.Log(20), "\n"))
		case <-ctx.Done():
			return fmt.Errorf("serve is not ready: %w", last)
		}
	}
}

// CheckReady returns nil if the readiness endpoint below base, a URL, answers 200.
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

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal. That the process has ended is no error.
func (p *Process) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// ExitCode is valid when the process has ended.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Kill ends the process with kill -9, also if it is stopped, and returns when it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGCONT)
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Log returns the last n lines of its log.
func (p *Process) Log(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.logs[max(0, len(p.logs)-n):])
}

// Logged reports whether a line of the log contains text.
func (p *Process) Logged(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.logs, func(line string) bool { return strings.Contains(line, text) })
}
