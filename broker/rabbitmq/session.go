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

// closeLimit bounds a closing handshake.
const closeLimit = 2 * time.Second

// maxMissedConfirms is the number of consecutive publishes without a confirm after which a session drops its
// connection. The link then connects to another node. A node cut off from its cluster keeps its clients but confirms
// nothing.
const maxMissedConfirms = 2

// session is one connection, from the handshake to its end. It does not reconnect.
type session struct {
	node    string // host:port
	server  string // product and version
	options *Options
	conn    *amqp.Connection
	raw     net.Conn
	work    *sync.WaitGroup
	done    chan struct{} // closed when the connection has ended

	consumerCancelled broadcast // notified when RabbitMQ cancels a consumer

	mu             sync.Mutex
	err            error         // the first known reason for the end of the session
	blocked        string        // why RabbitMQ does not read from the connection now; "" if it reads
	blocks         chan struct{} // closed while blocked
	missedConfirms int
}

func dial(ctx context.Context, role string, options *Options, n node, work *sync.WaitGroup) (*session, error) {
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(options.Name + " " + role)
	var raw net.Conn
	finished := func() bool { return true }
	// The driver modifies the Config, so each dial needs a new one. Recovery stays nil, because it would keep channels
	// and restart their delivery tags at 1.
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
			// The deadline is for the handshake, and the driver removes it afterwards.
			return guarded, guarded.SetDeadline(time.Now().Add(options.DialTimeout))
		},
	})
	finished()
	if err != nil {
		if raw != nil {
			raw.Close()
		}
		return nil, dialError(err, n)
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
	// On loopback the kernel can choose the dialed port as the local port and connect the socket to itself. RabbitMQ
	// could then not listen on that port.
	if conn.LocalAddr().String() == conn.RemoteAddr().String() {
		conn.Close()
		return nil, errors.New("connection refused: the socket connected to itself")
	}
	return conn, nil
}

func product(conn *amqp.Connection) string {
	return fmt.Sprintf("%v %v", conn.Properties["product"], conn.Properties["version"])
}

// watch handles blocked notifications until the connection ends.
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
		case err := <-closes: // nil if this process closed the connection
			if err != nil {
				s.fail(plain(err))
			}
			return
		}
	}
}

// wait waits for the end of the session and returns the reason. When ctx is done, wait closes the connection.
func (s *session) wait(ctx context.Context) error {
	select {
	case <-s.done:
	case <-ctx.Done():
		s.fail(errClosed)
		if s.blockedReason() == "" { // a blocked RabbitMQ does not read the close request
			_ = s.conn.CloseDeadline(time.Now().Add(closeLimit)) // fails only if the connection is closed already
		}
		s.raw.Close()
		<-s.done
	}
	return s.endReason()
}

func (s *session) endReason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	reason := cmp.Or(s.err, errors.New("connection closed"))
	return fmt.Errorf("lost the connection to RabbitMQ at %s: %w", s.node, reason)
}

// kill ends a session that has failed, without a closing handshake.
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
		log.WithField("reason", s.blocked).Warn("RabbitMQ blocked the connection")
	case b.Active:
		s.blocked = cmp.Or(b.Reason, "an alarm")
	case s.blocked != "":
		s.blocked, s.blocks = "", make(chan struct{})
		log.Info("RabbitMQ unblocked the connection")
	}
}

func (s *session) blockedReason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked
}

// mayPublish returns an error while RabbitMQ does not read from the connection. Messages would then fill the socket
// buffers, and RabbitMQ would store them long after Publish reported them as Unknown. The returned channel is closed
// when RabbitMQ stops reading.
func (s *session) mayPublish() (blocks <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocked != "" {
		return nil, fmt.Errorf("RabbitMQ at %s accepts no messages now: %s", s.node, s.blocked)
	}
	return s.blocks, nil
}

// confirmMissed counts a publish without a confirm in time. After maxMissedConfirms of them, it kills a session that is
// not blocked.
func (s *session) confirmMissed() {
	s.mu.Lock()
	s.missedConfirms++
	giveUp := s.missedConfirms >= maxMissedConfirms && s.blocked == ""
	s.mu.Unlock()
	if giveUp {
		s.kill(errors.New("publisher confirms are missing"))
	}
}

func (s *session) confirmReceived() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missedConfirms = 0
}

// open opens a channel. RabbitMQ can answer this request in any state of its queues. So if no answer arrives within
// DialTimeout, open kills the session, unless the session is blocked.
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
		if s.blockedReason() == "" {
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
