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

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// throttle is a proxy that passes a limited number of bytes from the server, and then no more.
type throttle struct {
	remaining atomic.Int64
	listener  net.Listener
	work      sync.WaitGroup
}

func newThrottle(t *testing.T, target string) *throttle {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &throttle{listener: listener}
	p.remaining.Store(1 << 60)
	p.work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.pass(client, target) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.remaining.Store(1 << 60)
		p.work.Wait()
	})
	return p
}

func (p *throttle) pass(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	gone := make(chan struct{})
	p.work.Go(func() {
		defer close(gone)
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	buffer := make([]byte, 16<<10)
	for {
		for p.remaining.Load() <= 0 {
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
		p.remaining.Add(int64(-n))
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// The answer to a claim can be too long to arrive in time. Smaller claims must then succeed.
func TestClaimInPartsAfterATooLongAnswer(t *testing.T) {
	t.Parallel()
	address, name := pgtest.Schema(t)
	parsed := parse(t, address)
	proxy := newThrottle(t, parsed.Host)
	parsed.Host = proxy.listener.Addr().String()
	s := pgtest.Connect(t, postgres.Options{URL: parsed.String(), Schema: name})
	tasks := make([]holdfast.NewTask, 32)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3, Payload: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}
	}
	var tickets []message.Ticket
	for part := range slices.Chunk(tasks, 4) { // a slow disk takes long for all tasks at once
		inserted, err := s.Insert(t.Context(), part, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, inserted.Entries[0].Tickets...)
	}
	worker := registerWorker(t, s)

	proxy.remaining.Store(5 << 20)                                             // enough for the first tasks
	ctx, cancel := context.WithTimeout(t.Context(), slow.Times(3*time.Second)) // enough for the first bytes
	defer cancel()
	began := time.Now()
	claims, err := s.Claim(ctx, worker, store.AnyOf("t"), tickets, store.IntoExecutors)
	if !errors.Is(err, holdfast.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || claims != nil {
		t.Fatalf("with a part of the answer: %d claims, %v", len(claims), err)
	}
	if took := time.Since(began); took > slow.Times(30*time.Second) {
		t.Errorf("the claim took %s", took)
	}
	if remaining := proxy.remaining.Load(); remaining > 0 {
		t.Errorf("the proxy could pass %d more bytes, so the proxy did not cut the answer off", remaining)
	}
	proxy.remaining.Store(1 << 60)
	for _, part := range [][]message.Ticket{tickets[:3], tickets[3:16], tickets[16:]} {
		claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), part, store.IntoExecutors)
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
