package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastq/holdfast/internal/rig"
)

// seat is a place for a process: an end of the network with a role. Who sits there changes.
type seat struct {
	name string // of the end
	role string
	ip   string
	crew *crew

	mu    sync.Mutex
	build int // which of the two it runs: older or newer
	lives int
	now   *process
}

// The builds.
const (
	older = iota
	newer
)

// The roles.
const (
	roleWorker   = "worker"
	roleJanitor  = "janitor"
	roleProducer = "producer"
	roleRecorder = "recorder"
)

// process is one life.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// crew are all seats.
type crew struct {
	servers     *servers
	builds      [2]string // holdfast programs
	self        string    // this program
	environment []string
	recorder    string // its URL
	rate        int    // of one producer
	logs        string // folder
	seats       []*seat
}

// add makes an end and a seat in it; nobody sits there yet.
func (c *crew) add(ctx context.Context, role, name string) error {
	ip, err := c.servers.cluster(ctx, "end", name)
	if err != nil {
		return err
	}
	c.seats = append(c.seats, &seat{name: name, role: role, ip: ip, crew: c, build: newer})
	return nil
}

// of are the seats of a role.
func (c *crew) of(role string) []*seat {
	var seats []*seat
	for _, s := range c.seats {
		if s.role == role {
			seats = append(seats, s)
		}
	}
	return seats
}

// command is what a process in the seat runs.
func (s *seat) command() []string {
	switch s.role {
	case roleRecorder:
		return []string{s.crew.self, "record"}
	case roleProducer:
		// A million numbers are more than one life can use.
		return []string{s.crew.self, "produce", s.crew.recorder, fmt.Sprint(s.number()), fmt.Sprint(s.crew.rate)}
	default:
		return []string{s.crew.builds[s.build], "serve", "--roles", s.role, "--name", fmt.Sprintf("%s-%d", s.name, s.lives), "--listen", ":8480"}
	}
}

// number is the first task of this life of a producer.
func (s *seat) number() int {
	for i, other := range s.crew.of(roleProducer) {
		if other == s {
			return 1_000_000_000*(i+1) + 1_000_000*s.lives
		}
	}
	return 0
}

// start begins a new life in the seat. What it prints goes to <end>.jsonl, what it logs to <end>.log.
func (s *seat) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives++
	cmd := exec.Command(filepath.Join(s.crew.servers.root, "scripts", "private-cluster"), append([]string{"inside", s.name}, s.command()...)...)
	cmd.Env = append(append(os.Environ(), "RUN="+s.crew.servers.run, "NETNS=yes"), s.crew.environment...)
	out, err := s.file(".jsonl")
	if err != nil {
		return err
	}
	defer out.Close()
	log, err := s.file(".log")
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = out, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.ended)
	}()
	s.now = p
	return nil
}

func (s *seat) file(suffix string) (*os.File, error) {
	return os.OpenFile(s.path(suffix), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (s *seat) path(suffix string) string { return filepath.Join(s.crew.logs, s.name+suffix) }

func (s *seat) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// signal sends a signal to who sits there; that it has ended by itself is an error.
func (s *seat) signal(sig syscall.Signal) error {
	p := s.process()
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended by itself; see %s", s.name, s.path(".log"))
	default:
	}
	return p.cmd.Process.Signal(sig)
}

// kill is kill -9, and returns when the process is gone.
func (s *seat) kill() error {
	if err := s.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-s.process().ended
	return nil
}

// drain is SIGTERM, and returns when the process has ended.
func (s *seat) drain(ctx context.Context) error {
	if err := s.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.process().ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(drainLimit):
		return fmt.Errorf("%s did not end within %s of SIGTERM", s.name, drainLimit)
	}
}

// replace drains who sits there, starts one of that build and waits until it is ready.
func (s *seat) replace(ctx context.Context, build int) error {
	if err := s.drain(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.build = build
	s.mu.Unlock()
	if err := s.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	return s.ready(ctx)
}

// ready waits until the process says it does its work.
func (s *seat) ready(ctx context.Context) error {
	if s.role == roleProducer || s.role == roleRecorder {
		return nil
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		last := s.ask(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; see %s", s.name, last, s.path(".log"))
		case <-s.process().ended:
			return fmt.Errorf("%s has ended; see %s", s.name, s.path(".log"))
		case <-tick.C:
		}
	}
}

func (s *seat) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return rig.CheckReady(ctx, "http://"+s.ip+":8480")
}

// readyAll waits for everybody.
func (c *crew) readyAll(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, s := range c.seats {
		if err := s.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop ends everybody that is left.
func (c *crew) stop() {
	for _, s := range c.seats {
		if p := s.process(); p != nil {
			_ = p.cmd.Process.Signal(syscall.SIGCONT) // the only error is that it has ended
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
}

// settings are the environment of all processes.
func settings(databaseURL string, nodes []string) []string {
	return []string{
		"HOLDFAST_DATABASE_URL=" + databaseURL, "HOLDFAST_AMQP_URLS=" + strings.Join(nodes, ","),
		"HOLDFAST_WEBHOOK_ALLOW_CIDRS=10.77.0.0/16", "HOLDFAST_WEBHOOK_TIMEOUT=3m",
		"HOLDFAST_TYPES_HTTP_RETRY_STRATEGY=fixed", "HOLDFAST_TYPES_HTTP_RETRY_BASE=1s",
		"HOLDFAST_TYPES_HTTP_MAX_CRASHES=100", // each of them is meant, and none is the task's fault
		"HOLDFAST_WORKER_CONCURRENCY=60", "HOLDFAST_WORKER_DRAIN_TIMEOUT=10s", "HOLDFAST_LOG_LEVEL=info",
	}
}
