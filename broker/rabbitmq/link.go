package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/backoff"
)

const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
	// stable is the minimum lifetime of a healthy connection. After it, the pauses restart at the shortest one. A node
	// that drops connections soon after accepting them is not healthy.
	stable = 5 * time.Second
)

var errConnecting = errors.New("still connecting to RabbitMQ")

// link keeps one connection open for one role. It has at most one session at a time.
type link struct {
	role    string
	options *Options
	nodes   []node
	work    *sync.WaitGroup

	activated    chan struct{} // closed when a caller first needs the link
	activateOnce sync.Once

	mu      sync.Mutex
	session *session      // nil if there is none
	err     error         // why there is no session; nil before the end of the first attempt
	changed chan struct{} // closed and replaced when session or err changes
	stopped bool
	logged  map[string]bool // reasons logged since the last connection
}

func newLink(role string, options *Options, nodes []node, work *sync.WaitGroup) *link {
	return &link{role: role, options: options, nodes: nodes, work: work,
		activated: make(chan struct{}), changed: make(chan struct{}), logged: map[string]bool{}}
}

// run dials sessions until ctx is done. It returns when the last session has ended.
func (l *link) run(ctx context.Context) {
	defer l.finish()
	select {
	case <-l.activated:
	case <-ctx.Done():
		return
	}
	pause := backoff.New(minPause, maxPause)
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
		_ = pause.Wait(ctx) // the loop condition handles the end of ctx
	}
}

func (l *link) set(s *session, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.options.Log.WithField("connection", l.role)
	switch {
	case l.stopped:
	case s != nil:
		log.WithFields(map[string]any{"node": s.node, "server": s.server}).Info("connected to RabbitMQ")
		clear(l.logged)
	case !l.logged[err.Error()]: // once per reason, not once per attempt
		l.logged[err.Error()] = true
		log.WithError(err).Warn("no connection to RabbitMQ, trying again")
	}
	l.session, l.err = s, err
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) finish() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.set(nil, errClosed)
}

func (l *link) activate() { l.activateOnce.Do(func() { close(l.activated) }) }

func (l *link) isActive() bool {
	select {
	case <-l.activated:
		return true
	default:
		return false
	}
}

// current returns the live session, or the reason why there is none.
func (l *link) current() (*session, error) {
	s, _, _, err := l.state()
	return s, err
}

func (l *link) state() (s *session, changed <-chan struct{}, stopped bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err = l.session, l.err
	if s != nil && s.conn.IsClosed() { // run replaces the session soon
		s, err = nil, s.endReason()
	}
	if s == nil && err == nil {
		err = errConnecting
	}
	return s, l.changed, l.stopped, err
}

// wait waits for a live session and returns it. It returns holdfast.ErrUnavailable when ctx is done or the link has
// stopped.
func (l *link) wait(ctx context.Context) (*session, error) {
	l.activate()
	for {
		s, changed, stopped, err := l.state()
		if s != nil {
			return s, nil
		}
		if stopped {
			return nil, unavailable(err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, unavailable(err)
		}
	}
}

// try returns the live session, or holdfast.ErrUnavailable if there is none. It waits only for the end of the first
// attempt to connect, so that calls right after Open succeed.
func (l *link) try(ctx context.Context) (*session, error) {
	l.activate()
	for {
		s, changed, _, err := l.state()
		if s != nil {
			return s, nil
		}
		if err != errConnecting {
			return nil, unavailable(err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, unavailable(err)
		}
	}
}
