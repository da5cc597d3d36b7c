package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/broker"
)

// Broker is a client of RabbitMQ. It is safe for concurrent use.
type Broker struct {
	options    Options
	publish    *link
	consume    *link
	admin      *link
	presence   *link
	publishers *publishers
	signs      sync.Map // by name, what is closed when it is free again

	end  context.CancelFunc // of all links
	work sync.WaitGroup     // every goroutine and every running call

	mu     sync.Mutex
	closed bool
}

var _ broker.Broker = (*Broker)(nil)

var errClosed = errors.New("the RabbitMQ client was closed")

// Open validates the options and begins to connect in the background. That RabbitMQ
// cannot be reached is no error here; see [Broker.Ping] for that. The connections
// to receive, to look after queues and to show signs are made when they are first needed.
//
// The end of ctx does not end the Broker, only Close does.
func Open(ctx context.Context, options Options) (*Broker, error) {
	options, nodes, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{options: options}
	ctx, b.end = context.WithCancel(context.WithoutCancel(ctx))
	for _, role := range []struct {
		link **link
		name string
	}{{&b.publish, "publish"}, {&b.consume, "consume"}, {&b.admin, "admin"}, {&b.presence, "presence"}} {
		l := newLink(role.name, &b.options, shuffled(nodes), &b.work)
		*role.link = l
		b.work.Go(func() { l.run(ctx) })
	}
	b.publishers = newPublishers(b.publish, &b.options)
	b.publish.want()
	return b, nil
}

// Close implements [broker.Broker]. Calls that are still running return first.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.work.Wait()
	return nil
}

// enter begins a call that may start goroutines; leave ends it. Close waits for it.
func (b *Broker) enter() (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, unavailable(errClosed)
	}
	b.work.Add(1)
	return b.work.Done, nil
}

// Ping waits until RabbitMQ answers a request, at most for the limit. Its error names the address and what is wrong
// there. To know that, it waits for the end of the first attempt to connect if that takes longer than the limit:
// RabbitMQ refuses a wrong password only after some seconds. DialTimeout bounds that.
func (b *Broker) Ping(ctx context.Context, limit time.Duration) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	patient, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := b.admin.wait(patient)
	if errors.Is(err, errConnecting) {
		s, err = b.admin.try(ctx)
	}
	if err != nil {
		return err
	}
	ch, err := s.open(ctx)
	if err != nil {
		return err
	}
	ch.close()
	return nil
}

// Health implements [broker.Admin]. Connections nobody needed yet do not count, and nobody needs the one that shows signs. RabbitMQ
// tells a connection of an alarm only once it publishes, so Blocked may be late.
func (b *Broker) Health() broker.Health {
	health := broker.Health{Connected: true}
	for _, l := range []*link{b.admin, b.consume, b.publish} {
		if !l.isWanted() {
			continue
		}
		s, err := l.now()
		if s == nil {
			health.Connected, health.Err = false, err
			continue
		}
		health.Server = s.server
		health.Blocked = s.blockedWhy() // last the publishing one, the only one RabbitMQ blocks
	}
	return health
}
