package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/backoff"
)

const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
	// stable is how long a connection must have lived for the next pause to be
	// short again; a node that accepts and then throws out is no healthy one.
	stable = 5 * time.Second
)

var errConnecting = errors.New("still connecting to RabbitMQ")

// link keeps one connection for one role: a session at a time, for ever.
type link struct {
	role    string
	options *Options
	nodes   []node
	work    *sync.WaitGroup

	wanted     chan struct{} // closed when somebody needs the link
	wantedOnce sync.Once

	mu      sync.Mutex
	session *session      // nil while there is none
	err     error         // why there is none; nil before the first attempt has ended
	changed chan struct{} // closed and replaced whenever session or err change
	over    bool
	said    map[string]bool // reasons logged since the last connection
}

func newLink(role string, options *Options, nodes []node, work *sync.WaitGroup) *link {
	return &link{role: role, options: options, nodes: nodes, work: work,
		wanted: make(chan struct{}), changed: make(chan struct{}), said: map[string]bool{}}
}

// run returns after ctx is done and the last session has ended.
func (l *link) run(ctx context.Context) {
	defer l.finish()
	select {
	case <-l.wanted:
	case <-ctx.Done():
		return
	}
	pause := backoff.New(firstPause, longPause)
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		s, err := dial(ctx, l.role, l.options, l.nodes[n%len(l.nodes)], l.work)
		if err == nil {
			l.set(s, nil)
			if err = s.wait(ctx); ctx.Err() != nil {
				return
			}
			if time.Since(began) > stable {
				pause.Reset()
			}
		}
		l.set(nil, err)
		_ = pause.Wait(ctx) // the loop sees the end of ctx
	}
}

func (l *link) set(s *session, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.options.Log.WithField("connection", l.role)
	switch {
	case l.over:
	case s != nil:
		log.WithFields(map[string]any{"node": s.node, "server": s.server}).Info("connected to RabbitMQ")
		clear(l.said)
	case !l.said[err.Error()]: // once for each reason, not for each attempt
		l.said[err.Error()] = true
		log.WithError(err).Warn("no connection to RabbitMQ, trying again")
	}
	l.session, l.err = s, err
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) finish() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.set(nil, errClosed)
}

func (l *link) want() { l.wantedOnce.Do(func() { close(l.wanted) }) }

func (l *link) isWanted() bool {
	select {
	case <-l.wanted:
		return true
	default:
		return false
	}
}

// now returns the live session, or why there is none.
func (l *link) now() (*session, error) {
	s, _, _, err := l.state()
	return s, err
}

func (l *link) state() (s *session, changed <-chan struct{}, over bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err = l.session, l.err
	if s != nil && s.conn.IsClosed() { // run is about to notice
		s, err = nil, s.lost()
	}
	if s == nil && err == nil {
		err = errConnecting
	}
	return s, l.changed, l.over, err
}

// wait returns the live session as soon as there is one, or an ErrUnavailable when
// ctx is done.
func (l *link) wait(ctx context.Context) (*session, error) {
	l.want()
	for {
		s, changed, over, err := l.state()
		if s != nil {
			return s, nil
		}
		if over {
			return nil, unavailable(err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, unavailable(err)
		}
	}
}

// try returns the live session, or at once an ErrUnavailable; only the very first
// attempt to connect is waited for, else nothing could be sent right after Open.
func (l *link) try(ctx context.Context) (*session, error) {
	l.want()
	for {
		l.mu.Lock()
		first, changed := l.session == nil && l.err == nil, l.changed
		l.mu.Unlock()
		if !first {
			s, err := l.now()
			if s == nil {
				return nil, unavailable(err)
			}
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, unavailable(errConnecting)
		}
	}
}
