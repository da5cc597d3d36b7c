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

	"github.com/holdfastq/holdfast/workshop/rig"
)

// slot is a network namespace, called an end, with a role. Several processes use it one after another.
type slot struct {
	name       string // name of the end
	role       string
	ip         string
	deployment *deployment

	mu      sync.Mutex
	build   int // older or newer
	starts  int // number of processes that were started
	current *process
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

// process is a process of a slot.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// deployment has the slots of all processes.
type deployment struct {
	servers     *servers
	builds      [2]string // paths of the holdfast programs
	self        string    // path of this program
	environment []string
	recorder    string // URL of the recorder
	rate        int    // tasks per second of one producer
	logs        string // folder of the logs
	slots       []*slot
}

// add creates an end and an empty slot in it.
func (c *deployment) add(ctx context.Context, role, name string) error {
	ip, err := c.servers.cluster(ctx, "end", name)
	if err != nil {
		return err
	}
	c.slots = append(c.slots, &slot{name: name, role: role, ip: ip, deployment: c, build: newer})
	return nil
}

// of returns the slots of a role.
func (c *deployment) of(role string) []*slot {
	var slots []*slot
	for _, s := range c.slots {
		if s.role == role {
			slots = append(slots, s)
		}
	}
	return slots
}

// command returns the command line of a process in the slot.
func (s *slot) command() []string {
	switch s.role {
	case roleRecorder:
		return []string{s.deployment.self, "record"}
	case roleProducer:
		return []string{s.deployment.self, "produce", s.deployment.recorder, fmt.Sprint(s.number()), fmt.Sprint(s.deployment.rate)}
	default:
		return []string{s.deployment.builds[s.build], "serve", "--roles", s.role, "--name", fmt.Sprintf("%s-%d", s.name, s.starts), "--listen", ":8480"}
	}
}

// number returns the number of the first task of the current process of a producer. Each process has a million numbers,
// which is more than it can use.
func (s *slot) number() int {
	for i, other := range s.deployment.of(roleProducer) {
		if other == s {
			return 1_000_000_000*(i+1) + 1_000_000*s.starts
		}
	}
	return 0
}

// start starts a process in the slot. Its output goes to <end>.jsonl, and its log to <end>.log.
func (s *slot) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
	cmd := exec.Command(filepath.Join(s.deployment.servers.root, "scripts", "private-cluster"), append([]string{"inside", s.name}, s.command()...)...)
	cmd.Env = append(append(os.Environ(), "RUN="+s.deployment.servers.run, "NETNS=yes"), s.deployment.environment...)
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
		_ = cmd.Wait() // the log contains the reason for its end
		close(p.ended)
	}()
	s.current = p
	return nil
}

func (s *slot) file(suffix string) (*os.File, error) {
	return os.OpenFile(s.path(suffix), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (s *slot) path(suffix string) string { return filepath.Join(s.deployment.logs, s.name+suffix) }

// process returns the current process, or nil before the first start.
func (s *slot) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// signal sends a signal to the process in the slot. It returns an error if the process has ended.
func (s *slot) signal(sig syscall.Signal) error {
	p := s.process()
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended unexpectedly; see %s", s.name, s.path(".log"))
	default:
	}
	return p.cmd.Process.Signal(sig)
}

// kill kills the process with SIGKILL and waits for its end.
func (s *slot) kill() error {
	if err := s.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-s.process().ended
	return nil
}

// drain sends SIGTERM and waits for the end of the process.
func (s *slot) drain(ctx context.Context) error {
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

// replace drains the process in the slot, starts one with the given build and waits until that is ready.
func (s *slot) replace(ctx context.Context, build int) error {
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

// ready waits until the process is ready. Producers and recorders are ready at once.
func (s *slot) ready(ctx context.Context) error {
	if s.role == roleProducer || s.role == roleRecorder {
		return nil
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		last := s.checkReady(ctx)
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

// checkReady returns nil if the process is ready now.
func (s *slot) checkReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return rig.CheckReady(ctx, "http://"+s.ip+":8480")
}

// readyAll waits until all processes are ready.
func (c *deployment) readyAll(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, s := range c.slots {
		if err := s.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop kills all processes.
func (c *deployment) stop() {
	for _, s := range c.slots {
		if p := s.process(); p != nil {
			_ = p.cmd.Process.Signal(syscall.SIGCONT) // fails only if the process has ended
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
}

// settings returns the environment of all processes.
func settings(databaseURL string, nodes []string) []string {
	return []string{
		"HOLDFAST_DATABASE_URL=" + databaseURL, "HOLDFAST_AMQP_URLS=" + strings.Join(nodes, ","),
		"HOLDFAST_WEBHOOK_ALLOW_CIDRS=10.77.0.0/16", "HOLDFAST_WEBHOOK_TIMEOUT=3m", "HOLDFAST_WEBHOOK_BREAKER_FAULTS=0",
		"HOLDFAST_TYPES_HTTP_RETRY_STRATEGY=fixed", "HOLDFAST_TYPES_HTTP_RETRY_BASE=1s",
		"HOLDFAST_TYPES_HTTP_MAX_CRASHES=100", // the crashes are intended, and no task causes one
		"HOLDFAST_WORKER_CONCURRENCY=60", "HOLDFAST_WORKER_DRAIN_TIMEOUT=10s", "HOLDFAST_LOG_LEVEL=info",
	}
}
