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
	"github.com/holdfastq/holdfast/broker/rabbitmq/rabbittest"
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
			t.Errorf("%s: the error repeats the password: %v", name, err)
		}
		if b != nil {
			b.Close()
		}
	}
}

// closedPort is an address where nothing listens.
func closedPort(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func TestPingSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	// A server under load answers late; only the silent one is to be given up soon.
	const soon, late = 200 * time.Millisecond, 5 * time.Second
	type example struct {
		name, url string
		patience  time.Duration
		want      []string
		hint      holdfast.Hint
	}
	check := func(parts string) holdfast.Hint { return holdfast.Hint{Kind: holdfast.HintCheckBroker, Arg: parts} }
	reach := holdfast.Hint{Kind: holdfast.HintReachBroker}
	nowhere := closedPort(t)
	examples := []example{
		{"refused", "amqp://me:sesame@" + nowhere + "/", late, []string{nowhere, "connection refused"}, reach},
		{"no answer", "amqp://me:sesame@" + silent.Addr().String() + "/", soon, []string{silent.Addr().String()}, reach},
	}
	if address := rabbittest.HostPort(t, rabbittest.URL(t)); address != "" {
		examples = append(examples,
			example{"wrong password", "amqp://guest:sesame@" + address + "/", late, []string{address, `user "guest"`}, check("user, password and virtual host")},
			example{"wrong vhost", strings.TrimSuffix(rabbittest.URL(t), "/") + "/no-such-vhost", late, []string{address, "no-such-vhost"}, check("the virtual host")})
	}
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			b, err := rabbitmq.Open(t.Context(), rabbitmq.Options{URLs: []string{e.url}, DialTimeout: e.patience})
			must(t, err)
			defer b.Close()
			within(t, "a reason", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), e.patience+100*time.Millisecond)
				defer cancel()
				err = b.Ping(ctx, e.patience)
				return holdfast.HintOf(err) == e.hint
			})
			if !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("not an ErrUnavailable: %v", err)
			}
			for _, want := range e.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "sesame") {
				t.Errorf("%q repeats the password", err)
			}
		})
	}
}

// RabbitMQ refuses a password only after some seconds, longer than people wait for a server that may be away. A server that
// answers is waited for until it has said what is wrong.
func TestARefusalIsWaitedFor(t *testing.T) {
	t.Parallel()
	address := rabbittest.HostPort(t, rabbittest.URL(t))
	for name, password := range map[string]string{"wrong": "sesame", "right": "guest"} {
		b, err := rabbitmq.Open(t.Context(), rabbitmq.Options{URLs: []string{"amqp://guest:" + password + "@" + address + "/"}, DialTimeout: time.Minute})
		must(t, err)
		defer b.Close()
		err = b.Ping(t.Context(), time.Nanosecond)
		if refused := err != nil && strings.Contains(err.Error(), `does not accept user "guest"`); refused != (password == "sesame") {
			t.Errorf("the %s password: %v", name, err)
		}
	}
	b, err := rabbitmq.Open(t.Context(), rabbitmq.Options{URLs: []string{"amqp://guest:sesame@" + address + "/"}})
	must(t, err)
	defer b.Close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Ping(gone, time.Minute); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("a caller that has gone waits: %v", err)
	}
}

func TestTheNextNodeIsTried(t *testing.T) {
	t.Parallel()
	b := rabbittest.OpenWith(t, rabbittest.URL(t), rabbitmq.Options{URLs: []string{
		"amqp://guest:guest@" + closedPort(t) + "/", rabbittest.URL(t), "amqp://guest:guest@" + closedPort(t) + "/"}})
	insist(t, b, declare(t, b), "a")
}

func TestOpenOutlivesItsContext(t *testing.T) {
	t.Parallel()
	short, cancel := context.WithCancel(t.Context())
	b, err := rabbitmq.Open(short, rabbitmq.Options{URLs: []string{rabbittest.URL(t)}})
	must(t, err)
	defer b.Close()
	cancel()
	must(t, b.Ping(ctx(t), time.Minute))
}

// Nobody has to wait for a connection before the first publish.
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
	lanes := []string{"default", "bulk"}
	created, err := topology.Declare(ctx(t), b, lanes)
	must(t, err)
	if len(created) != len(topology.Queues(lanes)) {
		t.Errorf("created %q", created)
	}
	missing, err := topology.Verify(ctx(t), b, lanes)
	must(t, err)
	if len(missing) != 1 || missing[0] != topology.Marker() {
		t.Errorf("missing: %q", missing)
	}
	_, err = b.Declare(ctx(t), []broker.Object{topology.MarkerObject()})
	must(t, err)
	publish(t, b, topology.Main("bulk"), "a")
	publish(t, b, topology.Hold(1), "a")
	must(t, topology.Delete(ctx(t), b, lanes))
	missing, err = topology.Verify(ctx(t), b, lanes)
	must(t, err)
	if len(missing) != len(topology.Queues(lanes))+1 {
		t.Errorf("missing: %q", missing)
	}
}

// Names under a reserved prefix are refused with another code than a conflict.
func TestDeclareReportsARefusal(t *testing.T) {
	t.Parallel()
	b, _ := rabbittest.Open(t)
	_, err := b.Declare(ctx(t), []broker.Object{{Kind: broker.Queue, Name: "amq.holdfast", Args: nil}})
	if err == nil || errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "amq.holdfast") {
		t.Errorf("got %v", err)
	}
	must(t, b.Ping(ctx(t), time.Minute))
}
