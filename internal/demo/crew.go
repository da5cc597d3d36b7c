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

// crew are the processes of the tour.
type crew struct {
	o       Options
	members []*member
}

type member struct {
	part
	cmd     *exec.Cmd
	address chan string // of its endpoints, once they are served
	ended   chan struct{}
}

// log is the file that a part's log goes to.
func (c *crew) log(p part) string {
	return filepath.Join(c.o.Logs, strings.ReplaceAll(p.name, " ", "-")+".log")
}

// start runs one process.
func (c *crew) start(ctx context.Context, p part) error {
	file, err := os.OpenFile(c.log(p), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	arguments, environment := c.o.command(p, "127.0.0.1:0")
	cmd := exec.CommandContext(ctx, c.o.Binary, arguments...)
	cmd.Env = environment
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	m := &member{part: p, cmd: cmd, address: make(chan string, 1), ended: make(chan struct{})}
	c.members = append(c.members, m)
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			fmt.Fprintln(file, lines.Text())
			if found := servedAt.FindStringSubmatch(lines.Text()); found != nil {
				m.address <- found[1]
			}
		}
	})
	go func() { // ends with the process
		reading.Wait()
		_ = cmd.Wait() // how it ended is in its log
		_ = file.Close()
		close(m.ended)
	}()
	return nil
}

var servedAt = regexp.MustCompile(`serving health and metrics.*address="?([0-9.:]+)`)

// ready waits until every process says it does its work.
func (c *crew) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, m := range c.members {
		select {
		case address := <-m.address:
			if err := pollReady(ctx, "http://"+address+"/healthz/ready"); err != nil {
				return fmt.Errorf("%s did not become ready; its log is %s: %w", m.name, c.log(m.part), err)
			}
		case <-m.ended:
			return fmt.Errorf("%s ended at once; its log is %s", m.name, c.log(m.part))
		case <-ctx.Done():
			return fmt.Errorf("%s did not start; its log is %s: %w", m.name, c.log(m.part), ctx.Err())
		}
	}
	return nil
}

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

// kill ends a process as a crash would, and returns when it is gone.
func (c *crew) kill(p part) {
	for _, m := range c.members {
		if m.part == p {
			_ = m.cmd.Process.Kill() // the only error is that it has ended
			<-m.ended
		}
	}
}

// stop asks every process to drain and waits; a second call does nothing.
func (c *crew) stop() {
	for _, m := range c.members {
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, m := range c.members {
		select {
		case <-m.ended:
		case <-time.After(15 * time.Second):
			_ = m.cmd.Process.Kill()
			<-m.ended
		}
	}
	c.members = nil
}
