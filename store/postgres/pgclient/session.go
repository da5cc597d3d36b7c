package pgclient

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"sync/atomic"
	"time"
)

// closeTimeout is how long the server may take to close a session.
const closeTimeout = time.Second

// Sessions returns a pool of sessions that callers keep. It opens a connection for each caller, and closes the
// connection when the caller does. If there is a direct URL, the connections avoid the pooler. more has additional
// parameters of the sessions. If more sets statement_timeout to 0, there is no time limit for answers. The caller
// closes the pool.
func (d *DB) Sessions(more Parameters) *sql.DB {
	c := &connector{config: d.direct.config, parameters: d.direct.parameters, readTimeout: readTimeout}
	if len(more) > 0 {
		c.parameters = c.parameters.with(more)
	}
	if more["statement_timeout"] == "0" {
		c.readTimeout = 0
	}
	return c.pool(unpooled).DB
}

// Alive reports, without a statement, whether the server has kept an idle session open. It waits while another
// goroutine uses the session.
func Alive(ctx context.Context, session *sql.Conn) bool {
	return session.Raw(func(inner any) error { return inner.(driver.SessionResetter).ResetSession(ctx) }) == nil
}

// Session is a session that one caller keeps for its locks. First the caller executes statements on Conn. After that,
// the session is idle, and [Session.Watch] detects its end. All methods except Set are safe for concurrent use.
type Session struct {
	Conn     *sql.Conn
	conn     *conn
	gone     chan struct{} // closed if the session has ended without a release
	ended    chan struct{} // closed when the session has ended
	released atomic.Bool
	closing  sync.Once
}

// OpenSession takes a session from a pool that [DB.Sessions] has returned. The caller closes Conn, or calls Watch and
// then ends the session. Errors are untranslated; see [Translate].
func OpenSession(ctx context.Context, pool *sql.DB) (*Session, error) {
	taken, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &Session{Conn: taken, gone: make(chan struct{}), ended: make(chan struct{})}
	err = taken.Raw(func(inner any) error {
		s.conn = inner.(*conn)
		return nil
	})
	if err != nil {
		_ = taken.Close()
		return nil, err
	}
	return s, nil
}

// Set sets parameters of the session.
func (s *Session) Set(ctx context.Context, p Parameters) error { return p.set(ctx, s.Conn, false) }

// Err returns an error of the kind holdfast.ErrUnavailable if the end of a context has cut the connection.
func (s *Session) Err() error {
	if s.conn.wire.wasCut() {
		return errLost
	}
	return nil
}

// Gone returns a channel that is closed when the session has ended without Release.
func (s *Session) Gone() <-chan struct{} { return s.gone }

// Watch waits for the end of the session. It reads from the network connection directly. lib/pq has read all answers,
// so the server sends nothing more until it closes the idle session. If the server sends anything, Watch ends the
// session. The caller must call Watch once, after the last statement.
func (s *Session) Watch() {
	var anything [1]byte
	_, _ = s.conn.wire.Conn.Read(anything[:]) // returns when the session ends
	s.End()
	_ = s.conn.wire.Conn.Close()
	close(s.ended)
	if !s.released.Load() {
		close(s.gone)
	}
}

// Release ends the session and waits until Watch has detected its end. If the server does not close the session within
// a second, Release cuts the connection. The server then releases the locks of the session when it detects the cut.
func (s *Session) Release() {
	s.released.Store(true)
	s.End()
	<-s.ended
}

// End sends the end of the session to the server, and does not wait. The server releases the locks of the session
// before it closes the connection. The network connection stays open until then, because Watch waits for its end.
func (s *Session) End() {
	s.closing.Do(func() {
		s.conn.wire.kept.Store(true)
		_ = s.Conn.Close() // an error means that the connection has already ended
		s.conn.wire.cut(closeTimeout)
	})
}
