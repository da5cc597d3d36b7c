package demo

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

type processes struct {
	o   Options
	all []*process
}

type process struct {
	spec
	cmd   *exec.Cmd
	log   string // path of its log
	ended chan struct{}
}

// start starts one process. If it is detached, it outlives this one.
func (p *processes) start(ctx context.Context, s spec, detach bool) (*process, error) {
	running := &process{spec: s, log: filepath.Join(p.o.Logs, strings.ReplaceAll(s.name, " ", "-")+".log"), ended: make(chan struct{})}
	if detach {
		running.log = filepath.Join(p.o.Logs, "serve.log")
	}
	file, err := os.OpenFile(running.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	arguments, environment := p.o.command(s, "127.0.0.1:0")
	if detach {
		ctx = context.WithoutCancel(ctx)
	}
	running.cmd = exec.CommandContext(ctx, p.o.Binary, arguments...)
	running.cmd.Env, running.cmd.Stderr = environment, file
	if detach {
		running.cmd.SysProcAttr = detached()
	}
	if err := running.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	if !detach {
		p.all = append(p.all, running)
	}
	go func() {
		_ = running.cmd.Wait() // the log contains the reason for its end
		close(running.ended)
	}()
	return running, nil
}

var servedAt = regexp.MustCompile(`serving health and metrics.*address="?([0-9.:]+)`)

// ready waits until the process is ready. From then on the only process of a file owns it, and no other process can take
// it.
func (m *process) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	problem := "did not start"
	for {
		lines, err := os.ReadFile(m.log)
		if err != nil {
			return err
		}
		if found := servedAt.FindSubmatch(lines); found != nil {
			problem = "did not become ready"
			if isReady(ctx, "http://"+string(found[1])+"/healthz/ready") {
				return nil
			}
		}
		select {
		case <-m.ended:
			return fmt.Errorf("%s ended at once; its log is %s", m.name, m.log)
		case <-ctx.Done():
			return fmt.Errorf("%s %s; its log is %s: %w", m.name, problem, m.log, ctx.Err())
		case <-tick.C:
		}
	}
}

// isReady reports whether a readiness endpoint answers 200.
func isReady(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
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
