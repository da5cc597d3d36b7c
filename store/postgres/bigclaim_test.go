package postgres_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// strait is a way to the server that lets only so many bytes of answers pass, and then none.
type strait struct {
	left     atomic.Int64
	listener net.Listener
	work     sync.WaitGroup
}

func newStrait(t *testing.T, target string) *strait {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &strait{listener: listener}
	s.left.Store(1 << 60)
	s.work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			s.work.Go(func() { s.pass(client, target) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		s.left.Store(1 << 60)
		s.work.Wait()
	})
	return s
}

func (s *strait) pass(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	gone := make(chan struct{})
	s.work.Go(func() {
		defer close(gone)
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	buffer := make([]byte, 16<<10)
	for {
		for s.left.Load() <= 0 {
			select {
			case <-gone:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		s.left.Add(int64(-n))
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// The answer to a claim can be so long that it does not arrive in time. A part of the claim must work then.
func TestClaimInPartsAfterAnAnswerTooLong(t *testing.T) {
	t.Parallel()
	address, name := pgtest.Schema(t)
	parsed := parse(t, address)
	way := newStrait(t, parsed.Host)
	parsed.Host = way.listener.Addr().String()
	s := pgtest.Connect(t, postgres.Options{URL: parsed.String(), Schema: name})
	tasks := make([]holdfast.NewTask, 32)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "t", Lane: holdfast.DefaultLane, MaxAttempts: 3, Payload: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}
	}
	var tickets []message.Ticket
	for part := range slices.Chunk(tasks, 4) { // a slow disk takes long for all at once
		inserted, err := s.Insert(t.Context(), part, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, inserted.Receipts[0].Tickets...)
	}
	run := openRun(t, s)

	way.left.Store(5 << 20)                                        // the first tasks arrive
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // time for the first of it, on a busy machine too
	defer cancel()
	began := time.Now()
	claims, err := s.Claim(ctx, run, store.AnyOf("t"), tickets, store.IntoExecutors)
	if !errors.Is(err, holdfast.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || claims != nil {
		t.Fatalf("with a part of the answer: %d claims, %v", len(claims), err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	if left := way.left.Load(); left > 0 {
		t.Errorf("the answer had %d bytes to go, so its end has not been tested", left)
	}
	way.left.Store(1 << 60)
	for _, part := range [][]message.Ticket{tickets[:3], tickets[3:16], tickets[16:]} {
		claims, err := s.Claim(t.Context(), run, store.AnyOf("t"), part, store.IntoExecutors)
		if err != nil {
			t.Fatal(err)
		}
		for i, claim := range claims {
			if claim.Verdict != store.Claimed || claim.Task.ID != part[i].Task || len(claim.Task.Payload) != 1<<20+2 {
				t.Errorf("task %s: verdict %d, %d bytes", part[i].Task, claim.Verdict, len(claim.Task.Payload))
			}
		}
	}
}
