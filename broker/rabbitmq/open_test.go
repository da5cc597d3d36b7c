package rabbitmq_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func TestOpenRefusesBadOptions(t *testing.T) {
	t.Parallel()
	good := []string{"amqp://guest:guest@127.0.0.1:1/"}
	for name, options := range map[string]rabbitmq.Options{
		"no URL":             {},
		"no AMQP URL":        {URLs: []string{"http://secret@host/"}},
		"second is bad":      {URLs: []string{good[0], "amqp://me:sec/ret@host/"}},
		"negative timeout":   {URLs: good, ConfirmTimeout: -1},
		"too fast heartbeat": {URLs: good, Heartbeat: time.Millisecond},
		"no channels":        {URLs: good, PublishChannels: -1},
	} {
		b, err := rabbitmq.Open(t.Context(), options)
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: the error contains the password: %v", name, err)
		}
		if b != nil {
			b.Close()
		}
	}
}

// closedPort returns an address without a listener.
func closedPort(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func TestPingReportsTheCause(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	// A server under load answers late, so only the attempt with the silent server gets the short timeout.
	shortTimeout, longTimeout := 200*time.Millisecond, slow.Times(5*time.Second)
	type example struct {
		name, url string
		timeout   time.Duration
		want      []string
		hint      holdfast.Hint
	}
	checkHint := func(parts string) holdfast.Hint { return holdfast.Hint{Kind: holdfast.HintCheckBroker, Arg: parts} }
	reach := holdfast.Hint{Kind: holdfast.HintReachBroker}
	closed := closedPort(t)
	examples := []example{
		{"refused", "amqp://me:sesame@" + closed + "/", longTimeout, []string{closed, "connection refused"}, reach},
		{"no answer", "amqp://me:sesame@" + silent.Addr().String() + "/", shortTimeout, []string{silent.Addr().String()}, reach},
	}
	if address := rabbittest.HostPort(t, rabbittest.URL(t)); address != "" {
		examples = append(examples,
			example{"wrong password", "amqp://guest:sesame@" + address + "/", longTimeout, []string{address, `user "guest"`}, checkHint("user, password and virtual host")},
			example{"wrong vhost", strings.TrimSuffix(rabbittest.URL(t), "/") + "/no-such-vhost", longTimeout, []string{address, "no-such-vhost"}, checkHint("the virtual host")})
	}
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			b, err := rabbitmq.Open(t.Context(), rabbitmq.Options{URLs: []string{e.url}, DialTimeout: e.timeout})
			must(t, err)
			defer b.Close()
			within(t, "an error with the hint", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), e.timeout+100*time.Millisecond)
				defer cancel()
				err = b.Ping(ctx, e.timeout)
				return holdfast.HintOf(err) == e.hint
			})
			if !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
			for _, want := range e.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "sesame") {
				t.Errorf("%q contains the password", err)
			}
		})
	}
}

// RabbitMQ rejects a wrong password only after some seconds, which is longer than Ping's time limit. Ping waits until
// the cause is known if a server responds.
func TestPingWaitsForARefusal(t *testing.T) {
	t.Parallel()
	address := rabbittest.HostPort(t, rabbittest.URL(t))
	for name, password := range map[string]string{"wrong": "sesame", "right": "guest"} {
		b, err := rabbitmq.Open(t.Context(), rabbitmq.Options{URLs: []string{"amqp://guest:" + password + "@" + address + "/"}, DialTimeout: slow.Patience()})
		must(t, err)
		defer b.Close()
		err = b.Ping(t.Context(), time.Nanosecond)
		if refused := err != nil && strings.Contains(err.Error(), `does not accept user "guest"`); refused != (password == "sesame") {
			t.Errorf("%s password: %v", name, err)
		}
	}
	b, err := rabbitmq.Open(t.Context(), rabbitmq.Options{URLs: []string{"amqp://guest:sesame@" + address + "/"}})
	must(t, err)
	defer b.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Ping(cancelled, time.Minute); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

func TestTheNextNodeIsTried(t *testing.T) {
	t.Parallel()
	b := rabbittest.OpenWith(t, rabbittest.URL(t), rabbitmq.Options{URLs: []string{
		"amqp://guest:guest@" + closedPort(t) + "/", rabbittest.URL(t), "amqp://guest:guest@" + closedPort(t) + "/"}})
	publishUntilStored(t, b, declare(t, b), "a")
}

func TestOpenOutlivesItsContext(t *testing.T) {
	t.Parallel()
	short, cancel := context.WithCancel(t.Context())
	b, err := rabbitmq.Open(short, rabbitmq.Options{URLs: []string{rabbittest.URL(t)}})
	must(t, err)
	defer b.Close()
	cancel()
	must(t, b.Ping(ctx(t), slow.Patience()))
}

// The first Publish waits for the connection.
func TestPublishRightAfterOpen(t *testing.T) {
	t.Parallel()
	first, _ := rabbittest.Open(t)
	queue := declare(t, first)
	b, err := rabbitmq.Open(t.Context(), rabbitmq.Options{URLs: []string{rabbittest.URL(t)}})
	must(t, err)
	defer b.Close()
	publish(t, b, queue, "a")
}

func TestTheTopologyCanBeDeclaredVerifiedAndDeleted(t *testing.T) {
	t.Parallel()
	b, prefix := rabbittest.Open(t)
	topology := broker.NewTopology(prefix, 3, "1")
	queues := []string{"default", "bulk"}
	must(t, topology.Declare(ctx(t), b, queues))
	missing, err := topology.Verify(ctx(t), b, queues)
	must(t, err)
	if len(missing) != 1 || missing[0] != topology.Marker() {
		t.Errorf("missing: %q", missing)
	}
	err = b.Declare(ctx(t), []broker.Object{topology.MarkerObject()})
	must(t, err)
	publish(t, b, topology.Main("bulk"), "a")
	publish(t, b, topology.HoldingQueue(1), "a")
	must(t, topology.Delete(ctx(t), b, queues))
	missing, err = topology.Verify(ctx(t), b, queues)
	must(t, err)
	if len(missing) != len(topology.Queues(queues))+1 {
		t.Errorf("missing: %q", missing)
	}
}

// RabbitMQ refuses a name with a reserved prefix. The code of this reply is not that of a conflict.
func TestDeclareReportsARefusal(t *testing.T) {
	t.Parallel()
	b, _ := rabbittest.Open(t)
	err := b.Declare(ctx(t), []broker.Object{{Kind: broker.Queue, Name: "amq.holdfast", Args: nil}})
	if err == nil || errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "amq.holdfast") {
		t.Errorf("got %v", err)
	}
	must(t, b.Ping(ctx(t), slow.Patience()))
}
