package simbroker

import (
	"sync"

	"github.com/holdfastq/holdfast/broker"
)

// Broker is the server that all clients share.
type Broker struct {
	// mu guards everything on both sides of the network. Code that holds mu never waits, and the simulator runs one
	// effect at a time anyway.
	mu             sync.Mutex
	frames         []func() // frames from clients without a network; the broker has not processed them yet
	queues         map[string]*queue
	silent         map[string]bool           // AMQP queues that confirm nothing
	order          []*queue                  // in the order of their declarations
	exchanges      map[string]map[string]any // by name: their arguments
	presenceQueues map[string]*presenceQueue // by name
	clients        []*Client
	links          uint64 // number of links of all channels so far
	down           bool
	observer       Observer
}

// New returns a server without any AMQP queue.
func New() *Broker {
	return &Broker{queues: make(map[string]*queue), exchanges: make(map[string]map[string]any), presenceQueues: make(map[string]*presenceQueue)}
}

// Client returns a new client of the server, for one process. If n is nil, every frame arrives at once, in order.
func (b *Broker) Client(n Network) *Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &Client{broker: b, net: n}
	b.clients = append(b.clients, c)
	return c
}

// find returns the arguments of an object and whether it exists.
func (b *Broker) find(o broker.Object) (args map[string]any, exists bool) {
	if o.Kind == broker.Exchange {
		args, exists = b.exchanges[o.Name]
		return args, exists
	}
	if q := b.queues[o.Name]; q != nil {
		return q.args, true
	}
	return nil, false
}

// create creates an object. Dead letters that wait for the new queue move to it.
func (b *Broker) create(o broker.Object) error {
	if o.Kind == broker.Exchange {
		b.exchanges[o.Name] = o.Args
		return nil
	}
	q, err := newQueue(b, o)
	if err != nil {
		return err
	}
	b.queues[o.Name] = q
	b.order = append(b.order, q)
	for _, from := range b.order {
		for from.target == o.Name && from.dead.length() > 0 {
			from.deadLetter(from.dead.pop())
		}
	}
	return nil
}
