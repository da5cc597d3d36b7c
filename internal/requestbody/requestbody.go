// Package requestbody bounds the bodies of HTTP requests in time. If a handler answers before it has read the body, the
// client can still read the answer.
package requestbody

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// Pause is how long a client may send nothing while its body is not complete.
	Pause = 10 * time.Second
	// total is how long a body may take.
	total = time.Minute
	// restLimit and restTime bound how much of a refused body is read. Otherwise the closed connection would make the
	// client report a reset, because most clients read the answer after they have sent everything.
	restLimit = 256 << 20
	restTime  = 10 * time.Second
)

// Bound returns the request with time limits for its body, and a function that the caller calls when the handler has
// answered. pause replaces Pause, unless it is 0. A handler that reads the body after a limit gets an error.
func Bound(w http.ResponseWriter, r *http.Request, pause time.Duration) (bounded *http.Request, answered func()) {
	if r.Body == nil || r.ContentLength == 0 { // -1 is an unknown length
		return r, func() {}
	}
	if pause == 0 {
		pause = Pause
	}
	b := &body{ReadCloser: r.Body, control: http.NewResponseController(w), pause: pause, end: time.Now().Add(total)}
	b.extend()                           // the server itself reads a part of a body that no handler reads
	bounded = r.WithContext(r.Context()) // a copy, because the server looks at the type of its body
	bounded.Body = b
	// A client that asks first sends nothing until a handler reads.
	b.asks = r.Header.Get("Expect") != ""
	return bounded, b.finish
}

// body is a body with a time limit for each read.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	pause   time.Duration
	end     time.Time

	mu    sync.Mutex // a handler may have left a read behind
	ended bool       // no further byte can be read
	asks  bool       // the client waits until a handler reads
}

// extend gives the next read its time.
func (b *body) extend() {
	until := time.Now().Add(b.pause)
	if until.After(b.end) {
		until = b.end
	}
	_ = b.control.SetReadDeadline(until) // fails only if the connection is closed, and then the read fails, too
}

// Read implements io.Reader.
func (b *body) Read(into []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asks = false
	b.extend()
	n, err := b.ReadCloser.Read(into)
	if err != nil {
		b.ended = true
	}
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // from here on, the server reads only to see that the client goes away
	}
	return n, err
}

// finish sends the answer, and reads the rest of the body.
func (b *body) finish() {
	b.mu.Lock()
	none := b.ended || b.asks
	b.mu.Unlock()
	if none || b.control.Flush() != nil {
		return
	}
	b.end = time.Now().Add(restTime)
	_, _ = io.CopyN(io.Discard, b, restLimit)
}
