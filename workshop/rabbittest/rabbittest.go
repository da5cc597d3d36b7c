// Package rabbittest opens brokers for tests against a real RabbitMQ: the server that AMQP_URL names, or a private
// server that a test may kill.
package rabbittest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// URL returns AMQP_URL. It skips the test if the variable is not set.
func URL(t testing.TB) string {
	t.Helper()
	address := os.Getenv("AMQP_URL")
	if address == "" {
		t.Skip("AMQP_URL is not set; run: make test")
	}
	measured.Do(func() { measure(address) })
	return address
}

// measured guards measure.
var measured sync.Once

// measure measures how long the server takes for confirms, for slow.Measured. It ignores errors, which the tests report
// better.
func measure(address string) {
	ctx, cancel := context.WithTimeout(context.Background(), slow.Patience())
	defer cancel()
	b, err := rabbitmq.Open(ctx, rabbitmq.Options{URLs: []string{address}, Name: "measure", ConfirmTimeout: slow.Patience()})
	if err != nil {
		return
	}
	defer b.Close()
	queue := broker.Object{Kind: broker.Queue, Name: Prefix(), Args: map[string]any{"x-queue-type": "quorum"}}
	if err := b.Declare(ctx, []broker.Object{queue}); err != nil {
		return
	}
	defer func() { _ = b.Delete(ctx, []broker.Object{queue}) }()
	const confirms, usual = 20, 10 * time.Millisecond
	var began time.Time
	for n := range 1 + confirms { // the first opens the channel
		if n == 1 {
			began = time.Now()
		}
		if _, err := b.Publish(ctx, []broker.Message{{Queue: queue.Name, Body: []byte("x")}}); err != nil {
			return
		}
	}
	slow.Measured(time.Since(began), confirms*usual)
}

// Prefix returns a unique prefix for the names of queues.
func Prefix() string { return fmt.Sprintf("holdfast.test.%016x", rand.Uint64()) }

// Open returns a connected broker and a unique prefix. At the end of the test it deletes all objects that were declared
// through the broker, and closes the broker. Its ConfirmTimeout is long: on a slow machine, a late confirm would cause
// a second publish, and tests count messages.
func Open(t testing.TB) (b *rabbitmq.Broker, prefix string) {
	t.Helper()
	return OpenWith(t, URL(t), rabbitmq.Options{ConfirmTimeout: slow.Times(time.Minute)}), Prefix()
}

// OpenWith is like Open, for the given server and options. It sets URLs if there are none, and Declared. On a slow
// machine, it lengthens the timeouts that are not set.
func OpenWith(t testing.TB, address string, options rabbitmq.Options) *rabbitmq.Broker {
	t.Helper()
	if options.URLs == nil {
		options.URLs = []string{address}
	}
	if options.Name == "" {
		options.Name = t.Name()
	}
	for _, timeout := range []*time.Duration{&options.ConfirmTimeout, &options.DialTimeout, &options.WriteTimeout} {
		if *timeout == 0 {
			*timeout = slow.Times(5 * time.Second)
		}
	}
	var mu sync.Mutex
	var created []broker.Object
	options.Declared = func(o broker.Object) {
		mu.Lock()
		defer mu.Unlock()
		created = append(created, o)
	}
	b, err := rabbitmq.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		Delete(t, address, created)
	})
	ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
	defer cancel()
	if err := b.Ping(ctx, slow.Patience()); err != nil {
		t.Fatal(err)
	}
	return b
}

// Delete deletes objects over its own connection. It only logs an error, because the server may have been wiped.
func Delete(t testing.TB, address string, objects []broker.Object) {
	t.Helper()
	if len(objects) == 0 {
		return
	}
	b, err := rabbitmq.Open(context.WithoutCancel(t.Context()), rabbitmq.Options{URLs: []string{address}, Name: "cleanup"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), slow.Patience())
	defer cancel()
	if err := b.Delete(ctx, objects); err != nil {
		t.Logf("delete: %v", err)
	}
}

// At returns the URL address with another host and port.
func At(t testing.TB, address, hostPort string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("cannot parse AMQP_URL") // without the error, because it contains the password
	}
	u.Host = hostPort
	return u.String()
}

// HostPort returns the host and port of a URL. The default port is 5672.
func HostPort(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("cannot parse AMQP_URL")
	}
	if u.Port() == "" {
		return u.Host + ":5672"
	}
	return u.Host
}

// Server is a RabbitMQ server for one test, see scripts/private-rabbitmq.
type Server struct {
	t      testing.TB
	script string
	env    []string
	// URL is its address, the same after each start.
	URL string
}

// Private starts a RabbitMQ server for one test. This takes some seconds, so the test is treated as slow. The settings
// are environment variables for the script, such as RB_MEMORY=600MB.
func Private(t testing.TB, settings ...string) *Server {
	t.Helper()
	URL(t) // without AMQP_URL, private servers are skipped, too
	slow.Skip(t)
	script, err := findScript()
	if err != nil {
		t.Skip(err)
	}
	folder, err := os.MkdirTemp("", "holdfast-rabbitmq-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, script: script, env: append(append(os.Environ(), "RUN="+folder), settings...)}
	t.Cleanup(func() {
		if out, err := s.run("down"); err != nil {
			t.Errorf("private-rabbitmq down: %v: %s", err, out)
		}
		os.RemoveAll(folder)
	})
	s.Up()
	return s
}

func findScript() (string, error) {
	folder, err := os.Getwd()
	for ; err == nil && folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		script := filepath.Join(folder, "scripts", "private-rabbitmq")
		if _, err := os.Stat(script); err == nil {
			return script, nil
		}
	}
	return "", errors.New("scripts/private-rabbitmq not found above the working directory")
}

// Up starts the server if it is not running.
func (s *Server) Up() {
	s.t.Helper()
	out, err := s.run("up")
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		s.t.Skip("RabbitMQ is not installed, so no private server can be started")
	}
	if err != nil {
		s.t.Fatalf("private-rabbitmq up: %v: %s", err, out)
	}
	s.URL = strings.TrimSpace(out)
}

// Settle makes the server write its list of quorum queues to disk. Call it after the last declaration, before Kill.
// RabbitMQ 3.10 forgets a quorum queue that was declared less than about one second before a kill -9, together with all
// its confirmed messages. After the restart, the queue of that name has no leader and never answers.
func (s *Server) Settle() { s.must("ctl", "eval", "dets:sync(ra_directory_reverse).") }

// Kill kills the server with kill -9. Up starts it again with its data. See Settle.
func (s *Server) Kill() { s.must("kill") }

// CloseConnections makes the server close all client connections.
func (s *Server) CloseConnections() { s.must("close-connections") }

// Ctl runs rabbitmqctl and returns its output.
func (s *Server) Ctl(args ...string) string { return s.must(append([]string{"ctl"}, args...)...) }

func (s *Server) must(args ...string) string {
	s.t.Helper()
	out, err := s.run(args...)
	if err != nil {
		s.t.Fatalf("private-rabbitmq %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (s *Server) run(args ...string) (string, error) {
	cmd := exec.Command(s.script, args...)
	cmd.Env = s.env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out) + stderr.String(), err
	}
	return string(out), nil
}
