package demo

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// order is the body of a demo message: it tells the target how to behave, so that the
// outcome is known beforehand.
type order struct {
	Number   int  `json:"number"`
	Failures int  `json:"failures"` // answer 503 this often before accepting
	Reject   bool `json:"reject"`   // answer 400, always
	TakesMS  int  `json:"takes_ms"`
}

// target is a flaky receiver of webhooks that keeps its own books: the demo's
// figures come from here, not from the workers.
type target struct {
	server *http.Server
	url    string

	mu       sync.Mutex
	messages map[int]*message
	open     map[int]int // requests being served now, by message
}

// message is what the target knows about one message.
type message struct {
	calls     []time.Time
	failures  int
	delivered []time.Time // when it was answered with 200 while the sender was still there
	rejected  int
	aborted   []time.Time // the sender went away in the middle
}

func newTarget() (*target, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{
		url:      "http://" + listener.Addr().String() + "/orders",
		messages: make(map[int]*message), open: make(map[int]int),
	}
	t.server = &http.Server{Handler: t, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = t.server.Serve(listener) }() // ends with close, which is its only error
	return t, nil
}

func (t *target) close() { _ = t.server.Close() }

// ServeHTTP handles one delivery.
func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err == nil {
		err = json.Unmarshal(body, &o)
	}
	if err != nil {
		http.Error(w, "not an order", http.StatusBadRequest)
		return
	}
	m := t.begin(o.Number)
	left := wait(r.Context(), time.Duration(o.TakesMS)*time.Millisecond)
	switch status := t.finish(m, o, left); status {
	case http.StatusOK:
		_, _ = io.WriteString(w, `{"accepted":true}`)
	case http.StatusBadRequest:
		http.Error(w, `{"error":"unknown product","order":`+string(body)+`}`, status)
	default:
		http.Error(w, "the warehouse is busy, try again", status)
	}
}

// wait returns true if the caller left before d was over.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() != nil
	case <-ctx.Done():
		return true
	}
}

func (t *target) begin(number int) *message {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.messages[number]
	if m == nil {
		m = &message{}
		t.messages[number] = m
	}
	m.calls = append(m.calls, time.Now())
	t.open[number]++
	return m
}

func (t *target) finish(m *message, o order, left bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[o.Number]--
	switch {
	case left:
		m.aborted = append(m.aborted, time.Now())
		return http.StatusServiceUnavailable
	case o.Reject:
		m.rejected++
		return http.StatusBadRequest
	case m.failures < o.Failures:
		m.failures++
		return http.StatusServiceUnavailable
	}
	m.delivered = append(m.delivered, time.Now())
	return http.StatusOK
}

// delivered counts messages accepted at least once.
func (t *target) delivered() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, m := range t.messages {
		if len(m.delivered) > 0 {
			n++
		}
	}
	return n
}
