package e2e

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// target is a receiver of webhooks that records its calls.
type target struct {
	*httptest.Server
	answer func(call) int // returns the status; if it blocks, it should also wait for call.ctx
	header http.Header    // header of each answer

	mu     sync.Mutex
	calls  []*call
	change chan struct{} // closed and replaced when a call begins or ends
}

// call is one request.
type call struct {
	ctx     context.Context
	task    holdfast.TaskID
	key     string // the header webhook-id
	attempt int
	begin   time.Time
	end     time.Time // zero while the call is open
	status  int
	aborted bool // the sender disconnected before the answer
}

// newTarget starts a target that ends with the test.
func newTarget(t *testing.T, answer func(call) int) *target {
	t.Helper()
	tg := &target{answer: answer, change: make(chan struct{})}
	tg.Server = httptest.NewServer(tg)
	t.Cleanup(func() {
		tg.CloseClientConnections()
		tg.Close()
	})
	return tg
}

func (tg *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("webhook-id")
	number, _, _ := strings.Cut(strings.TrimPrefix(key, "task_"), "_")
	id, err := holdfast.ParseTaskID(number)
	attempt, attemptErr := strconv.Atoi(r.Header.Get("holdfast-attempt"))
	if err != nil || attemptErr != nil {
		http.Error(w, "not from holdfast", http.StatusBadRequest)
		return
	}
	// A server detects that its caller has disconnected only after the server has read the body.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	c := &call{ctx: r.Context(), task: id, key: key, attempt: attempt, begin: time.Now()}
	tg.update(func() { tg.calls = append(tg.calls, c) })
	status := tg.answer(*c)
	tg.update(func() { c.end, c.status, c.aborted = time.Now(), status, r.Context().Err() != nil })
	maps.Copy(w.Header(), tg.header)
	w.WriteHeader(status)
}

// update calls change with the lock held, and notifies all waiting calls of await.
func (tg *target) update(change func()) {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	change()
	close(tg.change)
	tg.change = make(chan struct{})
}

// await waits until condition returns true for the calls so far, and returns these calls.
func (tg *target) await(t *testing.T, what string, condition func(calls []call) bool) []call {
	t.Helper()
	limit := slow.Patience()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		calls, change := tg.snapshot()
		if condition(calls) {
			return calls
		}
		select {
		case <-change:
		case <-timer.C:
			t.Fatalf("not within %s: %s (%d calls, %d open)", limit, what, len(calls), len(open(calls)))
		}
	}
}

// snapshot returns a copy of the calls, and a channel that is closed at the next change.
func (tg *target) snapshot() ([]call, <-chan struct{}) {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	calls := make([]call, len(tg.calls))
	for i, c := range tg.calls {
		calls[i] = *c
	}
	return calls, tg.change
}

// open returns the calls without an answer.
func open(calls []call) []call {
	return slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return !c.end.IsZero() })
}

// byTask groups calls by task.
func byTask(calls []call) map[holdfast.TaskID][]call {
	groups := make(map[holdfast.TaskID][]call)
	for _, c := range calls {
		groups[c.task] = append(groups[c.task], c)
	}
	return groups
}
