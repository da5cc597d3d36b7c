package faults

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/consumer/webhook"
)

// Order is the body of a request. It determines how the recorder answers, so that the outcome of each task is known.
type Order struct {
	Number   int  `json:"number"`
	Failures int  `json:"failures"` // number of 503 responses before the first 200
	TakesMS  int  `json:"takes_ms"`
	Limited  bool `json:"limited"` // see limitedKey
	Paused   bool `json:"paused"`  // see pausedKey
}

// Record describes one request that the recorder received.
type Record struct {
	Number  int       `json:"number"`
	Attempt int       `json:"attempt"`
	From    string    `json:"from"` // IP address of the worker
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Result  Result    `json:"result"`
	Limited bool      `json:"limited"`
	Paused  bool      `json:"paused"` // the task has pausedKey
}

// Result is the result of a request.
type Result string

// The results.
const (
	Answered Result = "answered" // the recorder answered with success
	Refused  Result = "refused"  // the recorder answered with a planned failure
	Left     Result = "left"     // the worker disconnected before the answer
)

// recorderAddress is the address on which the recorder listens in its end.
const recorderAddress = ":8099"

// Recorder serves as the target of all tasks and writes a JSON line for each request to out. It returns nil when ctx is
// done, and an error if it cannot listen or cannot write a line.
func Recorder(ctx context.Context, out io.Writer) error {
	listener, err := net.Listen("tcp", recorderAddress)
	if err != nil {
		return err
	}
	serving, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r := &recorder{lines: json.NewEncoder(out), refused: make(map[int]int), fail: fail}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(serving, func() { _ = server.Close() })
	defer stop()
	err = server.Serve(listener)
	switch {
	case ctx.Err() != nil:
		return nil
	case serving.Err() != nil:
		return context.Cause(serving)
	}
	return err
}

type recorder struct {
	mu      sync.Mutex
	lines   *json.Encoder
	refused map[int]int
	fail    context.CancelCauseFunc // stops the recorder, because incomplete records are worse than none
}

// ServeHTTP answers a request as its order requires.
func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var order Order
	record := Record{Began: time.Now()}
	body, err := io.ReadAll(request.Body) // without this, the server does not detect that the worker has disconnected
	if err == nil {
		err = json.Unmarshal(body, &order)
	}
	if err != nil {
		http.Error(w, "not an order", http.StatusBadRequest)
		return
	}
	record.Number, record.Limited, record.Paused = order.Number, order.Limited, order.Paused
	record.Attempt, _ = strconv.Atoi(request.Header.Get(webhook.AttemptHeader)) // Judge reports a wrong number
	record.From, _, _ = net.SplitHostPort(request.RemoteAddr)
	timer := time.NewTimer(time.Duration(order.TakesMS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-request.Context().Done():
	}
	r.mu.Lock()
	switch {
	case request.Context().Err() != nil:
		record.Result = Left
	case r.refused[order.Number] < order.Failures:
		r.refused[order.Number]++
		record.Result = Refused
	default:
		record.Result = Answered
	}
	record.Ended = time.Now()
	err = r.lines.Encode(record)
	r.mu.Unlock()
	if err != nil {
		r.fail(err)
	}
	if record.Result != Answered || err != nil {
		http.Error(w, "busy, try again", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "{}")
}
