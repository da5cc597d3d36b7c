package rabbitmq

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// sink returns a connection whose other end reads nothing.
func sink(t *testing.T, limit time.Duration) *guardedConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &guardedConn{Conn: conn, limit: limit}
}

// fill writes until a write fails, and returns the duration of that write.
func fill(t *testing.T, conn net.Conn) time.Duration {
	t.Helper()
	chunk := make([]byte, 1<<20)
	for {
		began := time.Now()
		if _, err := conn.Write(chunk); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			return time.Since(began)
		}
	}
}

func TestWritesHaveADeadline(t *testing.T) {
	t.Parallel()
	conn := sink(t, 200*time.Millisecond)
	if took := fill(t, conn); took < 150*time.Millisecond {
		t.Errorf("a write took %s, want at least about 200ms", took)
	}
}

// A write does not extend the deadline that the driver sets for a closing handshake.
func TestAnEarlierDeadlineWins(t *testing.T) {
	t.Parallel()
	conn := sink(t, time.Hour)
	if err := conn.SetDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	fill(t, conn)
	if err := conn.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	conn.limit = time.Millisecond
	fill(t, conn)
}
