package simbroker

import (
	"sync"

	"github.com/holdfastq/holdfast/broker"
)

// Broker is the server all clients share.
type Broker struct {
	// One lock for everything, on both sides of the network: it is never held while anything
	// is waited for, and the simulator runs one effect at a time anyway.
	mu        sync.Mutex
	frames    []func() // of clients without a network, not carried out yet
	queues    map[string]*queue
	silent    map[string]bool           // queues that confirm nothing
	order     []*queue                  // as they were declared
	exchanges map[string]map[string]any // their arguments
	signs     map[string]*sign          // by name
	clients   []*Client
	lanes     uint64
	down      bool
	observer  Observer
}

// New returns a server without any queue.
func New() *Broker {
	return &Broker{queues: make(map[string]*queue), exchanges: make(map[string]map[string]any), signs: make(map[string]*sign)}
}

// Client returns a new client of the server, for one process. With a nil Network every frame
// arrives at once, in order.
func (b *Broker) Client(n Network) *Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &Client{broker: b, net: n}
	b.clients = append(b.clients, c)
	return c
}

// find returns the arguments of an object.
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

// create makes an object that does not exist. Dead letters that waited for a queue move there.
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
			from.bury(from.dead.pop())
		}
	}
	return nil
}
