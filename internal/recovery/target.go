package recovery

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// target receives the tasks and writes down each call. A task is known by the number in its URL.
type target struct {
	url    string
	server *http.Server
	answer func(*call)

	mu      sync.Mutex
	calls   map[int][]*call // by task
	changed chan struct{}   // closed and replaced with every begin and end of a call
}

// call is one attempt. The fields end and aborted are set when it has ended.
type call struct {
	ctx     context.Context
	number  int // of the task
	attempt int
	begin   time.Time
	end     time.Time
	aborted bool // its sender went away before the answer
}

// newTarget starts a target whose answers wait until answer returns, or until their sender has gone away.
func newTarget(answer func(*call)) (*target, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{url: "http://" + listener.Addr().String(), answer: answer, calls: map[int][]*call{}, changed: make(chan struct{})}
	t.server = &http.Server{Handler: t, ReadHeaderTimeout: patience}
	go func() { _ = t.server.Serve(listener) }() // ends with close
	return t, nil
}

func (t *target) close() { _ = t.server.Close() }

// ServeHTTP implements http.Handler.
func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	attempt, attemptErr := strconv.Atoi(r.Header.Get("holdfast-attempt"))
	if err != nil || attemptErr != nil {
		http.Error(w, "not a task of this measurement", http.StatusBadRequest)
		return
	}
	// A server notices that its caller has gone only after it has read the body.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	c := &call{ctx: r.Context(), number: number, attempt: attempt, begin: time.Now()}
	t.note(func() { t.calls[number] = append(t.calls[number], c) })
	t.answer(c)
	t.note(func() { c.end, c.aborted = time.Now(), r.Context().Err() != nil })
}

func (t *target) note(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	close(t.changed)
	t.changed = make(chan struct{})
}

// await waits until the condition holds. It is called with the lock held.
func (t *target) await(ctx context.Context, what string, holds func() bool) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		t.mu.Lock()
		held, changed := holds(), t.changed
		t.mu.Unlock()
		if held {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return fmt.Errorf("not within %s: %s", patience, what)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// open counts the calls of n tasks, from the number first on, that have no answer yet. The caller has the lock.
func (t *target) open(first, n int) (count int) {
	for number := first; number < first+n; number++ {
		for _, c := range t.calls[number] {
			if c.end.IsZero() {
				count++
			}
		}
	}
	return count
}

// broken counts the tasks, from the number first on, whose first call was aborted, those of them that were called again,
// and returns when the last of these began. The caller has the lock.
func (t *target) broken(first, n int) (tasks, again int, last time.Time) {
	for number := first; number < first+n; number++ {
		calls := t.calls[number]
		if len(calls) == 0 || !calls[0].aborted {
			continue
		}
		tasks++
		if len(calls) > 1 {
			again++
			if calls[1].begin.After(last) {
				last = calls[1].begin
			}
		}
	}
	return tasks, again, last
}
