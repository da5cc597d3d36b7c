package rabbitmq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// TestPrivateServer runs tests that would disturb other users of a shared server.
func TestPrivateServer(t *testing.T) {
	t.Parallel()
	server := rabbittest.Private(t, "RB_CHANNEL_TICK=200")
	for _, test := range []struct {
		name string
		run  func(*testing.T, *rabbittest.Server)
	}{
		{"alarm", testAlarm},
		{"permissions", testPermissions},
		{"limits", testLimits},
		{"consumer timeout", testConsumerTimeout},
		{"connections closed by the server", testCloseConnections},
		{"forgotten consumer", testForgottenConsumer},
		{"presence", testPresence},
		{"kill -9", testKill},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, server) })
	}
}

func testAlarm(t *testing.T, server *rabbittest.Server) {
	b := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{ConfirmTimeout: slow.Times(time.Minute)})
	queue := declare(t, b)
	publish(t, b, queue, "a") // RabbitMQ blocks only connections that publish
	sub := subscribe(t, b, queue, 1)
	first := receive(t, sub)
	publish(t, b, queue, "b")

	clearAlarm := func() { server.Ctl("set_vm_memory_high_watermark", "absolute", "1GB") }
	defer clearAlarm()
	server.Ctl("set_vm_memory_high_watermark", "0.0000001")
	for _, body := range []string{"written", "not written"} { // RabbitMQ reports the alarm when it reads the first
		outcomes, err := b.Publish(ctx(t), one(queue, body)) // returns before the time limit
		wantUnknown(t, outcomes, err)
		if err == nil || !strings.Contains(err.Error(), "accepts no messages now") {
			t.Errorf("publish %q: %v", body, err)
		}
		if health := b.Health(); !health.Connected || health.Blocked == "" {
			t.Errorf("after %q: %+v", body, health)
		}
	}
	checks, err := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{}).Server(ctx(t))
	must(t, err)
	if !slices.ContainsFunc(checks, func(f doctor.Check) bool {
		return f.Name == "broker alarms" && f.Severity == doctor.Failed && strings.Contains(f.Detail, "accepts no messages now")
	}) {
		t.Errorf("the doctor does not report the alarm: %+v", checks)
	}
	// The alarm does not delay subscriptions.
	must(t, sub.Ack(first.Tag, broker.One))
	must(t, sub.Ack(receive(t, sub).Tag, broker.One))
	declare(t, b)

	clearAlarm()
	publishUntilStored(t, b, queue, "last")
	if blocked := b.Health().Blocked; blocked != "" {
		t.Errorf("still blocked: %s", blocked)
	}
	for body := ""; body != "last"; {
		d := receive(t, sub)
		if body = string(d.Body); body == "not written" {
			t.Error("a message was written to a blocked connection")
		}
		must(t, sub.Ack(d.Tag, broker.One))
	}
}

// A queue that the user has no permission to read is reported as such, not as missing.
func testPermissions(t *testing.T, server *rabbittest.Server) {
	b := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{})
	queue := declare(t, b)
	server.Ctl("add_user", "poor", "poor")
	server.Ctl("set_permissions", "poor", "^$", "^$", "^$")
	poor := rabbittest.OpenWith(t, strings.Replace(server.URL, "guest:guest", "poor:poor", 1), rabbitmq.Options{})
	checks, err := poor.Compare(ctx(t), []broker.Object{{Name: queue}})
	must(t, err)
	if f := checks[0]; f.Severity != doctor.Failed || !strings.Contains(f.Detail, "ACCESS_REFUSED") || !strings.Contains(f.Remedy.Arg, "set_permissions") {
		t.Errorf("%+v", f)
	}
	if err := poor.Declare(ctx(t), []broker.Object{{Name: rabbittest.Prefix()}}); err == nil || !strings.Contains(err.Error(), "ACCESS_REFUSED") || !strings.Contains(holdfast.HintOf(err).Arg, "set_permissions") {
		t.Errorf("declare without permission: %v", err)
	}
	checks, err = poor.Server(ctx(t))
	must(t, err)
	if !slices.ContainsFunc(checks, func(f doctor.Check) bool {
		return f.Name == "broker alarms" && f.Severity == doctor.Failed && strings.Contains(f.Remedy.Arg, "amq.default")
	}) {
		t.Errorf("check without permission to publish: %+v", checks)
	}
}

func testConsumerTimeout(t *testing.T, server *rabbittest.Server) {
	server.Ctl("eval", "application:set_env(rabbit, consumer_timeout, 1000).")
	defer server.Ctl("eval", "application:set_env(rabbit, consumer_timeout, 1800000).")
	b := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{})
	queue := declare(t, b)
	publish(t, b, queue, "a")
	other := subscribe(t, b, declare(t, b), 1)
	sub := subscribe(t, b, queue, 1)
	tag := receive(t, sub).Tag
	waitEnded(t, sub)
	if err := sub.Ack(tag, broker.One); !errors.Is(err, broker.ErrSubscriptionEnded) {
		t.Errorf("got %v", err)
	}
	second := subscribe(t, b, queue, 1)
	must(t, second.Ack(receive(t, second).Tag, broker.One))
	must(t, other.Pause()) // only one channel was lost
}

func testCloseConnections(t *testing.T, server *rabbittest.Server) {
	b := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{})
	queue := declare(t, b)
	publish(t, b, queue, "a")
	sub := subscribe(t, b, queue, 1)
	receive(t, sub)
	server.CloseConnections()
	waitEnded(t, sub)
	publishUntilStored(t, b, queue, "b")
	if d := receive(t, subscribe(t, b, queue, 2)); string(d.Body) != "a" {
		t.Errorf("received %q", d.Body)
	}
}

// RabbitMQ does not notify a consumer that its queue has forgotten.
func testForgottenConsumer(t *testing.T, server *rabbittest.Server) {
	b := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{RenewAfter: time.Second})
	forgotten, busyQueue := declare(t, b), declare(t, b)
	sub, busy := subscribe(t, b, forgotten, 10), subscribe(t, b, busyQueue, 10)
	publish(t, b, busyQueue, "first")
	held := receive(t, busy)
	for _, queue := range []string{forgotten, busyQueue} {
		server.Ctl("eval", fmt.Sprintf(`Q = {list_to_atom("%%2F_%s"), node()},
			{ok, {_, Consumers}, _} = ra:local_query(Q, fun rabbit_fifo:query_consumers/1),
			[Consumer] = maps:values(Consumers),
			{ok, _, _} = ra:process_command(Q, rabbit_fifo:make_checkout({element(2, Consumer), element(1, Consumer)}, cancel, #{})).`, queue))
	}
	publish(t, b, forgotten, "a")
	must(t, sub.Ack(receive(t, sub).Tag, broker.One))
	must(t, busy.Ack(held.Tag, broker.One)) // the subscription is the same, so its unsettled messages can be settled
	publish(t, b, busyQueue, "next")
	must(t, busy.Ack(receive(t, busy).Tag, broker.One))
}

func testKill(t *testing.T, server *rabbittest.Server) {
	b := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{})
	queue := declare(t, b)
	server.Settle()
	const n = 300
	for i := range n {
		publish(t, b, queue, fmt.Sprint(i))
	}
	sub := subscribe(t, b, queue, 10)
	for range 10 {
		receive(t, sub)
	}
	server.Kill()
	waitEnded(t, sub)
	within(t, "Health to notice", func() bool { return !b.Health().Connected })
	server.Up()
	seen := map[string]bool{}
	sub = subscribe(t, b, queue, n)
	for len(seen) < n {
		d := receive(t, sub)
		seen[string(d.Body)] = true
	}
	must(t, sub.Ack(n, broker.UpTo))
	publishUntilStored(t, b, queue, "after")
}
