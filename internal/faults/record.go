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

// Order is the body of a request: it tells the recorder how to behave, so that the outcome is known beforehand.
type Order struct {
	Number   int `json:"number"`
	Failures int `json:"failures"` // answer 503 this often before success
	TakesMS  int `json:"takes_ms"`
}

// Record is one request, as the recorder saw it.
type Record struct {
	Number  int       `json:"number"`
	Attempt int       `json:"attempt"`
	From    string    `json:"from"` // the address of the worker's end
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Result  Result    `json:"result"`
}

// Result is how a request ended.
type Result string

// The results.
const (
	Answered Result = "answered" // with success
	Refused  Result = "refused"  // with the planned failure
	Left     Result = "left"     // the worker was gone before the answer
)

// recorderAddress is where the recorder listens within its end.
const recorderAddress = ":8099"

// Recorder serves the target of all tasks and writes a line for each request to out, until ctx is done or a line
// cannot be written.
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
	fail    context.CancelCauseFunc // ends it: books with a hole are worse than none
}

// ServeHTTP does what the order says.
func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var order Order
	record := Record{Began: time.Now()}
	body, err := io.ReadAll(request.Body) // to its end, or the server does not notice when the worker goes away
	if err == nil {
		err = json.Unmarshal(body, &order)
	}
	if err != nil {
		http.Error(w, "not an order", http.StatusBadRequest)
		return
	}
	record.Number = order.Number
	record.Attempt, _ = strconv.Atoi(request.Header.Get(webhook.AttemptHeader)) // 0 is no attempt, which the judge reports
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
