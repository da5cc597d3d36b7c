package rabbitmq

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/logs"
)

// Options say where RabbitMQ is. URLs is required, the zero value of everything
// else is a sensible default.
type Options struct {
	// URLs are the nodes of one cluster, as amqp://user:password@host:port/vhost
	// or amqps://. They are tried in random order.
	URLs []string
	// Name is shown in RabbitMQ's list of connections. Empty means the program's name.
	Name string
	// ConfirmTimeout is the limit of [Broker.Publish] for each 500 messages, 5 s if 0.
	ConfirmTimeout time.Duration
	// PublishChannels is how many calls of Publish are carried out at the same time, 64 if 0. A call for a queue that
	// confirms nothing keeps its channel until its limit, and other calls must not wait for it.
	PublishChannels int
	// Heartbeat is the interval after which a silent node is probed; one and a
	// half of it without a sign of life end the connection. 10 s if 0. A heartbeat
	// in the URL takes precedence.
	Heartbeat time.Duration
	// DialTimeout bounds one attempt to connect, handshake included, 5 s if 0.
	DialTimeout time.Duration
	// WriteTimeout bounds one write to the socket, 5 s if 0.
	WriteTimeout time.Duration
	// RenewAfter is how long a subscription may receive nothing until it takes a new consumer, since RabbitMQ may
	// have forgotten the old one without a word. 15 s if 0.
	RenewAfter time.Duration
	// Log takes connects, losses and alarms; nil discards them.
	Log logrus.FieldLogger
	// Declared, if not nil, is told every object that Declare created.
	Declared func(broker.Object)
}

// node is one parsed URL.
type node struct {
	url  string
	addr string // host:port, the only part that is ever shown
	user string
}

func (o Options) withDefaults() (Options, []node, error) {
	nodes, err := parse(o.URLs)
	if err != nil {
		return o, nil, err
	}
	for _, d := range []struct {
		field  *time.Duration
		name   string
		preset time.Duration
	}{
		{&o.ConfirmTimeout, "ConfirmTimeout", 5 * time.Second},
		{&o.Heartbeat, "Heartbeat", 10 * time.Second},
		{&o.DialTimeout, "DialTimeout", 5 * time.Second},
		{&o.WriteTimeout, "WriteTimeout", 5 * time.Second},
		{&o.RenewAfter, "RenewAfter", 15 * time.Second},
	} {
		if *d.field < 0 {
			return o, nil, fmt.Errorf("%w: RabbitMQ option %s is negative: %s", holdfast.ErrInvalid, d.name, *d.field)
		}
		if *d.field == 0 {
			*d.field = d.preset
		}
	}
	if o.Heartbeat < time.Second {
		return o, nil, fmt.Errorf("%w: RabbitMQ option Heartbeat is %s, the shortest possible is 1s", holdfast.ErrInvalid, o.Heartbeat)
	}
	if o.PublishChannels < 0 || o.PublishChannels > 1000 {
		return o, nil, fmt.Errorf("%w: RabbitMQ option PublishChannels is %d, it must be 1 to 1000", holdfast.ErrInvalid, o.PublishChannels)
	}
	if o.PublishChannels == 0 {
		o.PublishChannels = 64
	}
	if o.Name == "" {
		o.Name = filepath.Base(os.Args[0])
	}
	o.Log = logs.Limited(o.Log)
	return o, nodes, nil
}

// parse never repeats a URL in an error: it holds a password.
func parse(urls []string) ([]node, error) {
	if len(urls) == 0 {
		return nil, fmt.Errorf("%w: no AMQP URL given, expected amqp://user:password@host:port/vhost", holdfast.ErrInvalid)
	}
	nodes := make([]node, len(urls))
	for i, url := range urls {
		uri, err := amqp.ParseURI(url)
		if err != nil || uri.Host == "" {
			return nil, fmt.Errorf("%w: AMQP URL number %d cannot be read, expected amqp://user:password@host:port/vhost "+
				"with special characters percent-encoded", holdfast.ErrInvalid, i+1)
		}
		nodes[i] = node{url: url, addr: net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)), user: uri.Username}
	}
	return nodes, nil
}

// shuffled returns the nodes in a new random order, so that neither all processes
// nor all roles of one crowd onto the first node of the list.
func shuffled(nodes []node) []node {
	mixed := append([]node(nil), nodes...)
	rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	return mixed
}

// newID returns a text that is not used twice, for consumers and messages.
func newID() string { return fmt.Sprintf("%016x", rand.Uint64()) }
