// Package rabbittest opens brokers for tests against a real RabbitMQ: the one
// AMQP_URL names, or a private one that can be killed.
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
	"github.com/holdfastq/holdfast/internal/slow"
)

// URL is AMQP_URL; without it the test is skipped.
func URL(t testing.TB) string {
	t.Helper()
	address := os.Getenv("AMQP_URL")
	if address == "" {
		t.Skip("AMQP_URL is not set; run: make test")
	}
	return address
}

// Prefix returns a prefix for the names of queues that no other test uses.
func Prefix() string { return fmt.Sprintf("holdfast.test.%016x", rand.Uint64()) }

// Open returns a connected broker and a prefix of this test's own. At the end of the test everything that was declared
// through the broker is deleted, and it is closed. It waits long for confirms: after a late confirm of a slow machine a
// message would be published twice, and tests count messages.
func Open(t testing.TB) (b *rabbitmq.Broker, prefix string) {
	t.Helper()
	return OpenWith(t, URL(t), rabbitmq.Options{ConfirmTimeout: time.Minute}), Prefix()
}

// OpenWith is Open for a server and options of one's own; it sets URLs if there are none, and Declared.
func OpenWith(t testing.TB, address string, options rabbitmq.Options) *rabbitmq.Broker {
	t.Helper()
	if options.URLs == nil {
		options.URLs = []string{address}
	}
	if options.Name == "" {
		options.Name = t.Name()
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := b.Ping(ctx, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	return b
}

// Delete removes objects, over a connection of its own. It does not mind if the
// server is gone: then they are too.
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	if err := b.Delete(ctx, objects); err != nil {
		t.Logf("delete: %v", err)
	}
}

// At is address, a URL, with another host and port.
func At(t testing.TB, address, hostPort string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("AMQP_URL cannot be read") // without the error, which repeats the password
	}
	u.Host = hostPort
	return u.String()
}

// HostPort is the address part of a URL.
func HostPort(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("AMQP_URL cannot be read")
	}
	if u.Port() == "" {
		return u.Host + ":5672"
	}
	return u.Host
}

// Server is a RabbitMQ of the test's own, see scripts/private-rabbitmq.
type Server struct {
	t      testing.TB
	script string
	env    []string
	// URL is where it listens, the same after each start.
	URL string
}

// Private starts a RabbitMQ for this test alone. It takes some seconds, so the test counts as slow. settings are
// variables for the script, such as RB_MEMORY=600MB.
func Private(t testing.TB, settings ...string) *Server {
	t.Helper()
	URL(t) // no servers wanted, no private ones either
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

// Up starts the server if it does not run.
func (s *Server) Up() {
	s.t.Helper()
	out, err := s.run("up")
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		s.t.Skip("RabbitMQ is not installed, so there is no private one")
	}
	if err != nil {
		s.t.Fatalf("private-rabbitmq up: %v: %s", err, out)
	}
	s.URL = strings.TrimSpace(out)
}

// Settle has the server write down which quorum queues it has. RabbitMQ 3.10 forgets one that was
// created less than about a second before a kill -9, with all confirmed messages, and
// after the restart the queue of that name has no leader and answers nothing, for ever.
// Call it after the last declaration, before Kill.
func (s *Server) Settle() { s.must("ctl", "eval", "dets:sync(ra_directory_reverse).") }

// Kill ends the server with kill -9. Up starts it again on its data. See Settle.
func (s *Server) Kill() { s.must("kill") }

// Wipe kills the server and deletes its data.
func (s *Server) Wipe() { s.must("wipe") }

// CloseConnections has the server close all connections of its clients.
func (s *Server) CloseConnections() { s.must("close-connections") }

// Ctl runs rabbitmqctl.
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
