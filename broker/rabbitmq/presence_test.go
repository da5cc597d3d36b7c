package rabbitmq_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// presenceVariable names a presence. A test that kills a process starts this binary with that variable. The process
// then keeps the presence until it is killed.
const presenceVariable = "HOLDFAST_TEST_PRESENCE"

// holdPresence is the main function of that process.
func holdPresence(name string) error {
	b, err := rabbitmq.Open(context.Background(), rabbitmq.Options{URLs: []string{os.Getenv("AMQP_URL")}})
	if err != nil {
		return err
	}
	defer b.Close()
	_, release, err := b.Acquire(context.Background(), name)
	if err != nil {
		return err
	}
	defer release()
	fmt.Println("acquired")
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent process ends
	return err
}

// startHolder starts a process and returns when that process holds the presence. kill kills the process.
func startHolder(t *testing.T, name string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), presenceVariable+"="+name)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if lines := bufio.NewScanner(stdout); !lines.Scan() || lines.Text() != "acquired" {
		t.Fatalf("the process printed %q", lines.Text())
	}
	return func() { must(t, cmd.Process.Kill()) }
}

func acquire(t testing.TB, b *rabbitmq.Broker, name string) (waitLost <-chan struct{}) {
	t.Helper()
	waitLost, release, err := b.Acquire(ctx(t), name)
	must(t, err)
	t.Cleanup(release)
	return waitLost
}

func present(t testing.TB, b *rabbitmq.Broker, name string) bool {
	t.Helper()
	present, err := b.Present(ctx(t), name)
	must(t, err)
	return present
}

func waitLost(t testing.TB, lost <-chan struct{}) {
	t.Helper()
	select {
	case <-lost:
	case <-time.After(slow.Patience()):
		t.Fatal("no report that the presence is lost")
	}
}

// The presence of a killed process ends at once, and its name can be acquired again.
func TestPresenceOfAKilledProcess(t *testing.T) {
	t.Parallel()
	b, prefix := rabbittest.Open(t)
	for n := range 5 {
		name := fmt.Sprint(prefix, ".presence.worker.", n)
		kill := startHolder(t, name)
		if !present(t, b, name) {
			t.Fatal("the presence is missing")
		}
		kill()
		began, lookups := time.Now(), 0
		within(t, "the presence to end", func() bool {
			lookups++
			return !present(t, b, name)
		})
		took := time.Since(began)
		t.Logf("missing %s after kill -9, at lookup %d", took.Round(time.Millisecond), lookups)
		if most := slow.Times(5 * time.Second); took > most { // without the end of the connection, it takes two heartbeats
			t.Errorf("the presence ended %s after kill -9, want at most %s", took, most)
		}
		acquire(t, b, name)
	}
}

// A query that hangs must return when its context ends. Without an answer it must not report a presence.
func TestPresenceInABlackHole(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t, quickHeartbeats())
	direct, name := rabbittest.OpenWith(t, rabbittest.URL(t), rabbitmq.Options{}), rabbittest.Prefix()
	lost := acquire(t, b, name)
	if !present(t, b, name) {
		t.Fatal("the presence is missing")
	}
	proxy.Cut()
	for range 2 { // first over an open connection, then perhaps without one
		checkDuration(t, 0, slow.Patience(), func() {
			short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := b.Present(short, name); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("without an answer: %v", err)
			}
			if _, _, err := b.Acquire(short, name+".other"); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("without an answer: %v", err)
			}
		})
	}
	waitLost(t, lost)
	within(t, "the server to drop the presence", func() bool { return !present(t, direct, name) })
	proxy.Heal()
	acquire(t, b, name)
	acquire(t, b, name+".other")
}

// An Acquire that is cancelled at any point leaves no presence behind.
func TestCancelledAcquires(t *testing.T) {
	t.Parallel()
	b, name := rabbittest.Open(t)
	other := rabbittest.OpenWith(t, rabbittest.URL(t), rabbitmq.Options{})
	janitor := acquire(t, b, name+".janitor")
	consecutive := 0 // number of consecutive successful acquires
	for limit := time.Duration(0); consecutive < 5; limit += max(200*time.Microsecond, limit/20) {
		short, cancel := context.WithTimeout(t.Context(), limit)
		_, release, err := b.Acquire(short, name)
		cancel()
		consecutive++
		if err == nil {
			release()
			continue
		}
		consecutive = 0
		if !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("after %s: %v", limit, err)
		}
		within(t, "the presence to end", func() bool { return !present(t, other, name) })
		if t.Failed() || limit > slow.Patience() {
			t.Fatal("never acquired in time")
		}
	}
	acquire(t, other, name)
	select {
	case <-janitor:
		t.Error("another presence was lost")
	default:
	}
}

// testPresence tests operations that need a private server.
func testPresence(t *testing.T, server *rabbittest.Server) {
	b := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{})
	other := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{})
	deleted, stays := rabbittest.Prefix(), rabbittest.Prefix()
	lost, janitor := acquire(t, b, deleted), acquire(t, b, stays)
	server.Ctl("delete_queue", deleted)
	waitLost(t, lost)
	if present(t, other, deleted) || !present(t, other, stays) {
		t.Error("the wrong presence ended")
	}
	lost = acquire(t, b, deleted)
	// RabbitMQ 3.10 reports the type with its module. RabbitMQ 4.0 also adds it to the arguments.
	list := server.Ctl("-q", "list_queues", "name", "durable", "auto_delete", "exclusive", "type")
	if !regexp.MustCompile(deleted + `\tfalse\tfalse\ttrue\t\w*classic`).MatchString(list) {
		t.Errorf("the queues are %s", list)
	}
	server.CloseConnections()
	waitLost(t, lost)
	waitLost(t, janitor)
	within(t, "the presence to end", func() bool {
		present, err := other.Present(ctx(t), deleted)
		return err == nil && !present
	})
	lost = acquire(t, b, deleted)

	server.Ctl("add_user", "blind", "blind")
	server.Ctl("set_permissions", "blind", "^$", "^$", "^$")
	blind := rabbittest.OpenWith(t, strings.Replace(server.URL, "guest:guest", "blind:blind", 1), rabbitmq.Options{})
	if _, _, err := blind.Acquire(ctx(t), rabbittest.Prefix()); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "ACCESS_REFUSED") {
		t.Errorf("acquire without permission: %v", err)
	}
	if !present(t, blind, deleted) { // a query needs no permission
		t.Error("the presence is missing for a user without permissions")
	}
	queue := declare(t, b)
	for limit := 300 * time.Millisecond; ; limit *= 2 { // on a busy machine the first try may need longer
		short, cancel := context.WithTimeout(t.Context(), limit)
		_, _, err := b.Acquire(short, queue)
		cancel()
		if errors.Is(err, holdfast.ErrUnavailable) && strings.Contains(err.Error(), "exclusive") {
			break
		}
		if !errors.Is(err, holdfast.ErrUnavailable) || limit > slow.Patience() {
			t.Errorf("acquire the name of an ordinary queue: %v", err)
			break
		}
	}
	if !present(t, other, deleted) {
		t.Error("another presence was lost")
	}
	select {
	case <-lost:
		t.Error("the presence was lost")
	default:
	}
}
