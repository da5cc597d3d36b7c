package postgres_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// newCrowdedPooler returns the URL of a proxy that behaves like a pooler whose sessions are all in use. It passes on
// the first connection, and gives every other connection to refuse. If refuse is nil, the other connections can log in,
// but the proxy drops their statements.
func newCrowdedPooler(t *testing.T, refuse func(net.Conn)) (address string) {
	t.Helper()
	u := parse(t, pgtest.URL(t))
	server := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); group.Wait() })
	var count atomic.Int64
	serve := func(client net.Conn, first bool) {
		defer client.Close()
		if !first && refuse != nil {
			refuse(client)
			return
		}
		behind, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer behind.Close()
		group.Go(func() { _, _ = io.Copy(client, behind); _ = client.Close() })
		buffer := make([]byte, 1<<16)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if statement := buffer[0] == 'Q' || buffer[0] == 'P'; statement && !first {
				continue
			}
			if _, err := behind.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			first := count.Add(1) == 1
			group.Go(func() { serve(client, first) })
		}
	})
	u.Host = listener.Addr().String()
	return u.String()
}

// If all sessions of a pooler are in use, its mode is unknown. The store must not treat it as a pooler in session mode.
func TestACrowdedPoolerIsNotTakenForSessions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse func(net.Conn)
		want   string
	}{
		"waits":   {nil, "docs/poolers.md"},
		"refused": {func(c net.Conn) { _ = c.Close() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := newCrowdedPooler(t, c.refuse)
			s, err := postgres.Open(t.Context(), postgres.Options{URL: address})
			if err == nil {
				t.Errorf("Open succeeded, KeepsSessions is %t", s.KeepsSessions())
				_ = s.Close()
			} else if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(holdfast.HintOf(err).Arg, c.want) {
				t.Errorf("open: %v", err)
			}
			direct, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.URL(t), DirectURL: newCrowdedPooler(t, c.refuse)})
			if !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("open with such a direct URL: %v", err)
			}
			if err == nil {
				_ = direct.Close()
			}
		})
	}
}
