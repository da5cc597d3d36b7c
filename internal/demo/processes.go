package demo

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// processes are the running processes of the demo.
type processes struct {
	o   Options
	all []*process
}

// process is one running process.
type process struct {
	spec
	cmd     *exec.Cmd
	address chan string // receives the address of its HTTP endpoints
	ended   chan struct{}
}

// log returns the path of the log of a process.
func (p *processes) log(s spec) string {
	return filepath.Join(p.o.Logs, strings.ReplaceAll(s.name, " ", "-")+".log")
}

// start starts one process.
func (p *processes) start(ctx context.Context, s spec) error {
	file, err := os.OpenFile(p.log(s), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	arguments, environment := p.o.command(s, "127.0.0.1:0")
	cmd := exec.CommandContext(ctx, p.o.Binary, arguments...)
	cmd.Env = environment
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	running := &process{spec: s, cmd: cmd, address: make(chan string, 1), ended: make(chan struct{})}
	p.all = append(p.all, running)
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			fmt.Fprintln(file, lines.Text())
			if found := servedAt.FindStringSubmatch(lines.Text()); found != nil {
				running.address <- found[1]
			}
		}
	})
	go func() { // ends with the process
		reading.Wait()
		_ = cmd.Wait() // the log contains the reason for its end
		_ = file.Close()
		close(running.ended)
	}()
	return nil
}

var servedAt = regexp.MustCompile(`serving health and metrics.*address="?([0-9.:]+)`)

// ready waits until every process is ready.
func (p *processes) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, m := range p.all {
		select {
		case address := <-m.address:
			if err := pollReady(ctx, "http://"+address+"/healthz/ready"); err != nil {
				return fmt.Errorf("%s did not become ready; its log is %s: %w", m.name, p.log(m.spec), err)
			}
		case <-m.ended:
			return fmt.Errorf("%s ended at once; its log is %s", m.name, p.log(m.spec))
		case <-ctx.Done():
			return fmt.Errorf("%s did not start; its log is %s: %w", m.name, p.log(m.spec), ctx.Err())
		}
	}
	return nil
}

// pollReady polls a readiness endpoint until it answers 200 or ctx is done.
func pollReady(ctx context.Context, url string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// kill kills a process with SIGKILL and waits for its end.
func (p *processes) kill(s spec) {
	for _, m := range p.all {
		if m.spec == s {
			_ = m.cmd.Process.Kill() // fails only if the process has ended
			<-m.ended
		}
	}
}

// stop drains every process and waits for its end. After 15 s it kills the process. A second call does nothing.
func (p *processes) stop() {
	for _, m := range p.all {
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, m := range p.all {
		select {
		case <-m.ended:
		case <-time.After(15 * time.Second):
			_ = m.cmd.Process.Kill()
			<-m.ended
		}
	}
	p.all = nil
}
