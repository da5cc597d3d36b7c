package measure

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

// target receives the requests of the tasks and records each call. The number in the URL identifies the task.
type target struct {
	url    string
	server *http.Server
	answer func(*call)

	mu      sync.Mutex
	calls   map[int][]*call // by task
	changed chan struct{}   // closed and replaced when a call begins or ends
}

// call is one attempt of a task. The fields end and aborted are set when the call has ended.
type call struct {
	ctx     context.Context
	number  int // number of the task
	attempt int
	begin   time.Time
	end     time.Time
	aborted bool // the sender disconnected before the answer
}

// newTarget starts a target. The target calls answer for each call and responds when answer returns. answer must return
// when the context of the call is done.
func newTarget(answer func(*call)) (*target, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{url: "http://" + listener.Addr().String(), answer: answer, calls: map[int][]*call{}, changed: make(chan struct{})}
	t.server = &http.Server{Handler: t, ReadHeaderTimeout: waitLimit}
	go func() { _ = t.server.Serve(listener) }() // returns after close
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
	// A server detects that its caller has disconnected only after the server has read the body.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	c := &call{ctx: r.Context(), number: number, attempt: attempt, begin: time.Now()}
	t.update(func() { t.calls[number] = append(t.calls[number], c) })
	t.answer(c)
	t.update(func() { c.end, c.aborted = time.Now(), r.Context().Err() != nil })
}

// update calls change with the lock held, and notifies all waiting calls of await.
func (t *target) update(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	close(t.changed)
	t.changed = make(chan struct{})
}

// await waits until condition returns true. It calls condition with the lock held.
func (t *target) await(ctx context.Context, what string, condition func() bool) error {
	late := time.NewTimer(waitLimit)
	defer late.Stop()
	for {
		t.mu.Lock()
		ok, changed := condition(), t.changed
		t.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return fmt.Errorf("not within %s: %s", waitLimit, what)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// open returns the number of unanswered calls of the n tasks from the number first on. The caller holds the lock.
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

// interrupted considers the n tasks from the number first on. tasks is the number of tasks whose first call was
// aborted. retried is how many of these were called a second time, and last is the begin of the last second call. The
// caller holds the lock.
func (t *target) interrupted(first, n int) (tasks, retried int, last time.Time) {
	for number := first; number < first+n; number++ {
		calls := t.calls[number]
		if len(calls) == 0 || !calls[0].aborted {
			continue
		}
		tasks++
		if len(calls) > 1 {
			retried++
			if calls[1].begin.After(last) {
				last = calls[1].begin
			}
		}
	}
	return tasks, retried, last
}
