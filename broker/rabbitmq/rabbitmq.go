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
	presences  sync.Map // by name: a channel that is closed when the name becomes free

	cancel context.CancelFunc // ends all links
	work   sync.WaitGroup     // every goroutine and every running call

	mu     sync.Mutex
	closed bool
}

var _ broker.Broker = (*Broker)(nil)

var errClosed = errors.New("the RabbitMQ client is closed")

// Open validates the options and starts to connect in the background. It returns no error if RabbitMQ is unreachable;
// [Broker.Ping] does. The connections for consuming, administration and presence are opened when they are first needed.
//
// The end of ctx does not end the Broker; only Close does.
func Open(ctx context.Context, options Options) (*Broker, error) {
	options, nodes, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{options: options}
	ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, role := range []struct {
		link **link
		name string
	}{{&b.publish, "publish"}, {&b.consume, "consume"}, {&b.admin, "admin"}, {&b.presence, "presence"}} {
		l := newLink(role.name, &b.options, shuffled(nodes), &b.work)
		*role.link = l
		b.work.Go(func() { l.run(ctx) })
	}
	b.publishers = newPublishers(b.publish, &b.options)
	b.publish.activate()
	return b, nil
}

// Close implements [broker.Broker]. It returns after all calls in progress have returned.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.work.Wait()
	return nil
}

// beginCall registers a call that may start goroutines; endCall unregisters it. Close waits for registered calls.
func (b *Broker) beginCall() (endCall func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, unavailable(errClosed)
	}
	b.work.Add(1)
	return b.work.Done, nil
}

// Ping waits until RabbitMQ answers a request, at most for limit. The error contains the address and the cause. If the
// first attempt to connect takes longer than limit, Ping waits for its end to learn the cause: RabbitMQ rejects a wrong
// password only after some seconds. DialTimeout bounds that wait.
func (b *Broker) Ping(ctx context.Context, limit time.Duration) error {
	endCall, err := b.beginCall()
	if err != nil {
		return err
	}
	defer endCall()
	waitCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := b.admin.wait(waitCtx)
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

// Health implements [broker.Admin]. It ignores the presence connection and connections that no call has needed yet.
// RabbitMQ reports an alarm to a connection only after that connection publishes, so Blocked may be late.
func (b *Broker) Health() broker.Health {
	health := broker.Health{Connected: true}
	for _, l := range []*link{b.admin, b.consume, b.publish} {
		if !l.isActive() {
			continue
		}
		s, err := l.current()
		if s == nil {
			health.Connected, health.Err = false, err
			continue
		}
		health.Server = s.server
		health.Blocked = s.blockedReason() // the publish link comes last: RabbitMQ blocks only that connection
	}
	return health
}
