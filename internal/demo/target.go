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

// order is the body of a message. It determines how the target answers, so that the outcome of each message is known.
type order struct {
	Number   int  `json:"number"`
	Failures int  `json:"failures"` // number of 503 responses before the first 200
	Reject   bool `json:"reject"`   // always answer 400
	TakesMS  int  `json:"takes_ms"`
}

// target is a flaky receiver of webhooks. It counts the deliveries itself, so that the numbers of the demo do not
// depend on the workers.
type target struct {
	server *http.Server
	url    string

	mu       sync.Mutex
	messages map[int]*message
	open     map[int]int // number of open requests by message
}

type message struct {
	calls     []time.Time
	failures  int
	delivered []time.Time // times of the 200 responses to senders that were still connected
	rejected  int
	aborted   []time.Time // times at which the sender disconnected before the response
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
	go func() { _ = t.server.Serve(listener) }() // Serve returns an error only after close
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
	gone := wait(r.Context(), time.Duration(o.TakesMS)*time.Millisecond)
	switch status := t.finish(m, o, gone); status {
	case http.StatusOK:
		_, _ = io.WriteString(w, `{"accepted":true}`)
	case http.StatusBadRequest:
		http.Error(w, `{"error":"unknown product","order":`+string(body)+`}`, status)
	default:
		http.Error(w, "the warehouse is busy, try again", status)
	}
}

// wait waits for d or until the caller has disconnected. It reports whether the caller has disconnected.
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

// begin records a request for a message.
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

// finish records the end of a request and returns the status of the response.
func (t *target) finish(m *message, o order, gone bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[o.Number]--
	switch {
	case gone:
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

// delivered returns the number of messages that were delivered at least once.
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
