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
	"github.com/holdfastq/holdfast/broker/rabbitmq/rabbittest"
)

// A test that kills a process starts this binary again, which then shows the sign of this name until it is killed.
const signVariable = "HOLDFAST_TEST_SIGN"

// showForEver is the life of such a process.
func showForEver(name string) error {
	b, err := rabbitmq.Open(context.Background(), rabbitmq.Options{URLs: []string{os.Getenv("AMQP_URL")}})
	if err != nil {
		return err
	}
	defer b.Close()
	_, release, err := b.Show(context.Background(), name)
	if err != nil {
		return err
	}
	defer release()
	fmt.Println("shown")
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent is gone
	return err
}

// startShowing returns once another process shows the sign, and how to kill it.
func startShowing(t *testing.T, name string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), signVariable+"="+name)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if lines := bufio.NewScanner(stdout); !lines.Scan() || lines.Text() != "shown" {
		t.Fatalf("the process said %q", lines.Text())
	}
	return func() { must(t, cmd.Process.Kill()) }
}

func show(t testing.TB, b *rabbitmq.Broker, name string) (gone <-chan struct{}) {
	t.Helper()
	gone, release, err := b.Show(ctx(t), name)
	must(t, err)
	t.Cleanup(release)
	return gone
}

func shown(t testing.TB, b *rabbitmq.Broker, name string) bool {
	t.Helper()
	yes, err := b.Shown(ctx(t), name)
	must(t, err)
	return yes
}

func gone(t testing.TB, sign <-chan struct{}) {
	t.Helper()
	select {
	case <-sign:
	case <-time.After(patience):
		t.Fatal("nobody says that the sign is gone")
	}
}

// What dies is missed at once, and its name is free for the next one.
func TestSignOfAKilledProcess(t *testing.T) {
	t.Parallel()
	b, prefix := rabbittest.Open(t)
	for n := range 5 {
		name := fmt.Sprint(prefix, ".alive.", n)
		kill := startShowing(t, name)
		if !shown(t, b, name) {
			t.Fatal("it shows no sign")
		}
		kill()
		began, questions := time.Now(), 0
		within(t, "the sign to vanish", func() bool {
			questions++
			return !shown(t, b, name)
		})
		took := time.Since(began)
		t.Logf("gone %s after kill -9, with question %d", took.Round(time.Millisecond), questions)
		if took > 5*time.Second {
			t.Errorf("it was seen for %s more", took)
		}
		show(t, b, name)
	}
}

// A question that hangs must not hold a janitor, and a sign that nobody answers for must not count as there.
func TestSignInABlackHole(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t, rabbitmq.Options{Heartbeat: time.Second, DialTimeout: time.Second})
	direct, name := rabbittest.OpenWith(t, rabbittest.URL(t), rabbitmq.Options{}), rabbittest.Prefix()
	sign := show(t, b, name)
	if !shown(t, b, name) {
		t.Fatal("it shows no sign")
	}
	proxy.Cut()
	for range 2 { // over an open connection, perhaps over none
		took(t, 0, patience, func() {
			short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := b.Shown(short, name); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("without an answer: %v", err)
			}
			if _, _, err := b.Show(short, name+".other"); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("without an answer: %v", err)
			}
		})
	}
	gone(t, sign)
	within(t, "the server to miss it", func() bool { return !shown(t, direct, name) })
	proxy.Heal()
	show(t, b, name)
	show(t, b, name+".other")
}

// Whenever a caller gives up, nothing is left behind that others would take for a sign.
func TestSignsThatWereGivenUp(t *testing.T) {
	t.Parallel()
	b, name := rabbittest.Open(t)
	other := rabbittest.OpenWith(t, rabbittest.URL(t), rabbitmq.Options{})
	witness := show(t, b, name+".witness")
	inARow := 0 // how often it was shown
	for limit := time.Duration(0); inARow < 5; limit += 200 * time.Microsecond {
		short, cancel := context.WithTimeout(t.Context(), limit)
		_, release, err := b.Show(short, name)
		cancel()
		inARow++
		if err == nil {
			release()
			continue
		}
		inARow = 0
		if !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("after %s: %v", limit, err)
		}
		within(t, "the sign to vanish", func() bool { return !shown(t, other, name) })
		if t.Failed() || limit > patience {
			t.Fatal("never shown in time")
		}
	}
	show(t, other, name)
	select {
	case <-witness:
		t.Error("it has cost another sign")
	default:
	}
}

// testSigns does what only an operator can do.
func testSigns(t *testing.T, server *rabbittest.Server) {
	b := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{})
	other := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{})
	deleted, stays := rabbittest.Prefix(), rabbittest.Prefix()
	sign, witness := show(t, b, deleted), show(t, b, stays)
	server.Ctl("delete_queue", deleted)
	gone(t, sign)
	if shown(t, other, deleted) || !shown(t, other, stays) {
		t.Error("the wrong sign is gone")
	}
	sign = show(t, b, deleted)
	// 3.10 tells the type with its module, and 4.0 also adds it to the arguments, of which there are none.
	list := server.Ctl("-q", "list_queues", "name", "durable", "auto_delete", "exclusive", "type")
	if !regexp.MustCompile(deleted + `\tfalse\tfalse\ttrue\t\w*classic`).MatchString(list) {
		t.Errorf("the queues are %s", list)
	}
	server.CloseConnections()
	gone(t, sign)
	gone(t, witness)
	within(t, "the sign to vanish", func() bool {
		yes, err := other.Shown(ctx(t), deleted)
		return err == nil && !yes
	})
	sign = show(t, b, deleted)

	server.Ctl("add_user", "blind", "blind")
	server.Ctl("set_permissions", "blind", "^$", "^$", "^$")
	blind := rabbittest.OpenWith(t, strings.Replace(server.URL, "guest:guest", "blind:blind", 1), rabbitmq.Options{})
	if _, _, err := blind.Show(ctx(t), rabbittest.Prefix()); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "ACCESS_REFUSED") {
		t.Errorf("without the right to: %v", err)
	}
	if !shown(t, blind, deleted) { // to ask needs no right
		t.Error("it does not see a sign")
	}
	queue := declare(t, b)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := b.Show(short, queue); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "exclusive") {
		t.Errorf("a queue for messages: %v", err)
	}
	if !shown(t, other, deleted) {
		t.Error("it has cost another sign")
	}
	select {
	case <-sign:
		t.Error("the sign is gone")
	default:
	}
}
