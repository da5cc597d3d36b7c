package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// closeLimit is how long a closing handshake may take before it is cut short.
const closeLimit = 2 * time.Second

// maxStrikes is how many waits for a confirm may end in vain, with none that
// succeeds between them, until the connection is given up for one to another node: a
// node cut off from its cluster keeps its clients and answers them nothing.
const maxStrikes = 2

// session is one connection, from the handshake to its end. It is never revived.
type session struct {
	node    string // host:port
	server  string // product and version
	options *Options
	conn    *amqp.Connection
	raw     net.Conn
	work    *sync.WaitGroup
	done    chan struct{} // closed when the connection has ended

	cancelled rumour // that RabbitMQ cancelled a consumer

	mu      sync.Mutex
	err     error         // why it ended, the first reason known
	blocked string        // why RabbitMQ does not read it for now; empty if RabbitMQ does
	blocks  chan struct{} // closed while blocked
	strikes int
}

func dial(ctx context.Context, role string, options *Options, n node, work *sync.WaitGroup) (*session, error) {
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(options.Name + " " + role)
	var raw net.Conn
	finished := func() bool { return true }
	// The driver changes what it is given, hence a new Config each time. Recovery stays
	// nil: it would keep channels alive and number their deliveries from 1 again.
	conn, err := amqp.DialConfig(n.url, amqp.Config{
		Heartbeat:  options.Heartbeat,
		Properties: properties,
		Dial: func(network, addr string) (net.Conn, error) {
			var err error
			if raw, err = connect(ctx, network, addr, options.DialTimeout); err != nil {
				return nil, err
			}
			finished = context.AfterFunc(ctx, func() { raw.Close() })
			guarded := &guardedConn{Conn: raw, limit: options.WriteTimeout}
			return guarded, guarded.SetDeadline(time.Now().Add(options.DialTimeout)) // of the handshake; the driver takes it off
		},
	})
	finished()
	if err != nil {
		if raw != nil {
			raw.Close()
		}
		return nil, explain(err, n)
	}
	s := &session{node: n.addr, server: product(conn), options: options, conn: conn, raw: raw, work: work, done: make(chan struct{}), blocks: make(chan struct{})}
	blocks := conn.NotifyBlocked(make(chan amqp.Blocking, 16))
	closes := conn.NotifyClose(make(chan *amqp.Error, 1))
	work.Go(func() { s.watch(blocks, closes) })
	return s, nil
}

func connect(ctx context.Context, network, addr string, limit time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: limit, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	// On loopback the kernel can choose the very port that is dialled as the local one
	// and connect the socket to itself, which keeps the broker from ever listening there.
	if conn.LocalAddr().String() == conn.RemoteAddr().String() {
		conn.Close()
		return nil, errors.New("nothing listens there (the socket connected to itself)")
	}
	return conn, nil
}

func product(conn *amqp.Connection) string {
	return fmt.Sprintf("%v %v", conn.Properties["product"], conn.Properties["version"])
}

// watch ends with the connection.
func (s *session) watch(blocks <-chan amqp.Blocking, closes <-chan *amqp.Error) {
	defer close(s.done)
	for {
		select {
		case b, ok := <-blocks:
			if !ok {
				blocks = nil
				continue
			}
			s.setBlocked(b)
		case err := <-closes: // nil after a close of our own
			if err != nil {
				s.fail(plain(err))
			}
			return
		}
	}
}

// wait returns why the session ended; it ends it in good order when ctx is done.
func (s *session) wait(ctx context.Context) error {
	select {
	case <-s.done:
	case <-ctx.Done():
		s.fail(errClosed)
		if s.blockedWhy() == "" { // else RabbitMQ does not read the request
			_ = s.conn.CloseDeadline(time.Now().Add(closeLimit)) // an error only says that it is closed already
		}
		s.raw.Close()
		<-s.done
	}
	return s.lost()
}

// lost says why the session ended.
func (s *session) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	if err == nil {
		err = errors.New("it was closed")
	}
	return fmt.Errorf("lost the connection to RabbitMQ at %s: %w", s.node, err)
}

// kill ends a session that cannot be trusted any more, without waiting for the peer.
func (s *session) kill(reason error) {
	s.fail(reason)
	s.raw.Close()
}

func (s *session) fail(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = reason
	}
}

func (s *session) setBlocked(b amqp.Blocking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.options.Log.WithField("node", s.node)
	switch {
	case b.Active && s.blocked == "":
		close(s.blocks)
		s.blocked = cmp.Or(b.Reason, "an alarm")
		log.WithField("reason", s.blocked).Warn("RabbitMQ does not take messages for now")
	case b.Active:
		s.blocked = cmp.Or(b.Reason, "an alarm")
	case s.blocked != "":
		s.blocked, s.blocks = "", make(chan struct{})
		log.Info("RabbitMQ takes messages again")
	}
}

func (s *session) blockedWhy() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked
}

// mayPublish returns an error while RabbitMQ does not read the connection. Messages would fill the socket's buffers,
// and RabbitMQ would store them long after they were reported as Unknown. The channel is closed when RabbitMQ stops
// reading.
func (s *session) mayPublish() (blocks <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocked != "" {
		return nil, fmt.Errorf("RabbitMQ at %s takes no messages now: %s", s.node, s.blocked)
	}
	return s.blocks, nil
}

// strike notes a confirm that did not come in time. A blocked connection is not to blame.
func (s *session) strike() {
	s.mu.Lock()
	s.strikes++
	give := s.strikes >= maxStrikes && s.blocked == ""
	s.mu.Unlock()
	if give {
		s.kill(errors.New("it confirms nothing any more"))
	}
}

func (s *session) confirmed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strikes = 0
}

// open opens a channel. The broker process answers that by itself, whatever state its queues
// are in, so no answer within the time of a dial means that the connection is dead.
func (s *session) open(ctx context.Context) (*channel, error) {
	type answer struct {
		ch  *amqp.Channel
		err error
	}
	answered := make(chan answer, 1)
	s.work.Go(func() {
		ch, err := s.conn.Channel()
		answered <- answer{ch, err}
	})
	limit := time.NewTimer(s.options.DialTimeout)
	defer limit.Stop()
	var cause error
	select {
	case a := <-answered:
		if a.err != nil {
			return nil, unavailable(a.err)
		}
		return newChannel(s, a.ch), nil
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-limit.C:
		cause = fmt.Errorf("RabbitMQ at %s does not answer", s.node)
		if s.blockedWhy() == "" {
			s.kill(cause)
		}
	}
	s.work.Go(func() {
		if a := <-answered; a.err == nil {
			newChannel(s, a.ch).close()
		}
	})
	return nil, unavailable(cause)
}
