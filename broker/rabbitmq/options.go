package rabbitmq

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/internal/serverurl"
)

// Options configures a Broker. URLs is required. The zero value of every other field means a default.
type Options struct {
	// URLs are the nodes of one cluster, as amqp://user:password@host:port/vhost or amqps://. A link tries them in
	// random order.
	URLs []string
	// Name appears in RabbitMQ's list of connections. The default is the name of the program.
	Name string
	// ConfirmTimeout is the time limit of [Broker.Publish] for each 500 messages. The default is 5 s.
	ConfirmTimeout time.Duration
	// PublishChannels is the maximum number of concurrent Publish calls, at most 1000. The default is 64. A call for a
	// queue that confirms nothing occupies its channel until its time limit, and other calls must not wait for it.
	PublishChannels int
	// Heartbeat is the interval after which a silent node is probed. A node that is silent for one and a half intervals
	// loses the connection. The default is 10 s, the minimum 1 s. A heartbeat in the URL takes precedence.
	Heartbeat time.Duration
	// DialTimeout bounds one attempt to connect, including the handshake. The default is 5 s.
	DialTimeout time.Duration
	// WriteTimeout bounds one write to the socket. The default is 5 s.
	WriteTimeout time.Duration
	// RenewAfter is how long a subscription may receive nothing before it replaces its consumer, because RabbitMQ may
	// have forgotten the consumer without notice. The default is 15 s.
	RenewAfter time.Duration
	// Log receives messages about connections, losses and alarms. If Log is nil, they are discarded.
	Log logrus.FieldLogger
	// Declared, if not nil, is called with every object that Declare has declared, also if it existed.
	Declared func(broker.Object)
}

// node is one parsed URL.
type node struct {
	url  string
	addr string // host:port, the only part that errors and logs contain
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
		*d.field = cmp.Or(*d.field, d.preset)
	}
	if o.Heartbeat < time.Second {
		return o, nil, fmt.Errorf("%w: RabbitMQ option Heartbeat is %s, the minimum is 1s", holdfast.ErrInvalid, o.Heartbeat)
	}
	if o.PublishChannels < 0 || o.PublishChannels > 1000 {
		return o, nil, fmt.Errorf("%w: RabbitMQ option PublishChannels is %d, it must be 1 to 1000", holdfast.ErrInvalid, o.PublishChannels)
	}
	o.PublishChannels = cmp.Or(o.PublishChannels, 64)
	o.Name = cmp.Or(o.Name, filepath.Base(os.Args[0]))
	o.Log = logs.Limited(o.Log)
	return o, nodes, nil
}

// parse parses the URLs. Its errors never contain a URL, because a URL contains a password.
func parse(urls []string) ([]node, error) {
	if len(urls) == 0 {
		return nil, fmt.Errorf("%w: no AMQP URL given; want amqp://user:password@host:port/vhost", holdfast.ErrInvalid)
	}
	nodes := make([]node, len(urls))
	for i, url := range urls {
		if err := serverurl.Check(url, "amqp://user:password@host:port/vhost", "amqp", "amqps"); err != nil {
			return nil, fmt.Errorf("%w: AMQP URL number %d %w", holdfast.ErrInvalid, i+1, err)
		}
		uri, err := amqp.ParseURI(url)
		if err != nil || uri.Host == "" {
			return nil, fmt.Errorf("%w: cannot parse AMQP URL number %d; want amqp://user:password@host:port/vhost "+
				"with special characters percent-encoded", holdfast.ErrInvalid, i+1)
		}
		nodes[i] = node{url: url, addr: net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)), user: uri.Username}
	}
	return nodes, nil
}

// shuffled returns the nodes in a new random order, so that different processes and roles connect to different nodes.
func shuffled(nodes []node) []node {
	copied := slices.Clone(nodes)
	rand.Shuffle(len(copied), func(i, j int) { copied[i], copied[j] = copied[j], copied[i] })
	return copied
}

// newID returns a unique ID for a consumer or a message.
func newID() string { return fmt.Sprintf("%016x", rand.Uint64()) }
