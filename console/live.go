package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/internal/eventstream"
)

const (
	// maxStreams is the maximum number of live pages of all viewers.
	maxStreams = 500
	// A page whose computation takes long is computed less often: at most this share of the time.
	liveShare = 10
	// An event ping every keepAlive shows proxies and the script that the connection lives.
	keepAlive = 15 * time.Second
)

// hub computes the live pages. All viewers with the same URL and role share one computation, which runs only while
// somebody looks.
type hub struct {
	console *Console

	mu      sync.Mutex
	feeds   map[feedKey]*feed
	viewers int
	stopped bool
	closing chan struct{}
}

// feedKey names a computation.
type feedKey struct {
	url  string
	role access.Role
}

// feed is a page that is computed for its viewers.
type feed struct {
	viewers int
	cancel  context.CancelFunc
	// state is the newest state, and asOf the time when the newest computation began. changed is closed when a newer
	// state replaces it, and after each computation that a new viewer waits for.
	state   liveState
	asOf    time.Time
	joined  time.Time // when the newest viewer came
	changed chan struct{}
}

// liveState is the part main of a page.
type liveState struct {
	main    []byte
	failed  string // why it could not be computed; main is then older
	version int
}

func newHub(c *Console) *hub {
	return &hub{console: c, feeds: make(map[feedKey]*feed), closing: make(chan struct{})}
}

func (h *hub) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.stopped = true
		close(h.closing)
	}
}

// serve sends the page whenever it changes, until the viewer leaves or may not see it any more.
func (h *hub) serve(w http.ResponseWriter, r *http.Request, p page) {
	caller := callerOf(r)
	key := feedKey{r.URL.RequestURI(), caller.Role}
	joined := time.Now()
	f, refusal := h.join(key, p, r)
	if f != nil {
		defer h.leave(key, f)
	}
	stream, err := eventstream.Begin(w)
	if err != nil {
		return
	}
	if f == nil {
		_ = stream.Send("end", refusal)
		return
	}
	beat := time.NewTicker(keepAlive)
	defer beat.Stop()
	for seen := 0; ; {
		h.mu.Lock()
		state, changed, asOf := f.state, f.changed, f.asOf
		h.mu.Unlock()
		// A state from before the viewer came may be older than the page that the viewer has loaded.
		early := asOf.Before(joined)
		if !early && state.version > seen {
			seen = state.version
			if sendState(stream, state) != nil {
				return
			}
		}
		select {
		case <-changed:
		case <-beat.C:
			if !h.console.guard.MayStay(r.Context(), caller) || stream.Send("ping", "") != nil {
				return
			}
			continue
		case <-r.Context().Done():
			return
		case <-h.closing:
			return
		}
		if !h.console.guard.MayStay(r.Context(), caller) {
			return
		}
	}
}

// join adds a viewer to the feed of a page, and starts the feed with the first one. If the page has no feed for the
// viewer, join returns nil and the reason.
func (h *hub) join(key feedKey, p page, r *http.Request) (joined *feed, refusal string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case p.live == 0:
		return nil, "this page does not change by itself"
	case h.stopped:
		return nil, "the server is stopping"
	case h.viewers >= maxStreams:
		return nil, "too many live pages are open"
	}
	h.viewers++
	f := h.feeds[key]
	if f == nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // the first viewer may leave before others
		f = &feed{cancel: cancel, changed: make(chan struct{})}
		h.feeds[key] = f
		go h.compute(ctx, f, p, r.Clone(ctx))
	}
	f.viewers++
	f.joined = time.Now()
	return f, ""
}

// leave removes a viewer, and ends the feed with the last one.
func (h *hub) leave(key feedKey, f *feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.viewers--
	if f.viewers--; f.viewers == 0 {
		f.cancel()
		delete(h.feeds, key)
	}
}

// compute computes a page again and again, until ctx ends.
func (h *hub) compute(ctx context.Context, f *feed, p page, r *http.Request) {
	for {
		began := time.Now()
		state := h.main(ctx, p, r)
		if ctx.Err() != nil {
			return
		}
		h.mu.Lock()
		if state.failed != "" {
			state.main = f.state.main
		}
		awaited := f.asOf.Before(f.joined)
		f.asOf = began
		newer := !bytes.Equal(state.main, f.state.main) || state.failed != f.state.failed
		if newer {
			state.version = f.state.version + 1
			f.state = state
		}
		if newer || awaited {
			close(f.changed)
			f.changed = make(chan struct{})
		}
		h.mu.Unlock()
		took := time.Since(began)
		select {
		case <-ctx.Done():
			return
		case <-h.closing:
			return
		case <-time.After(max(p.live-took, (liveShare-1)*took)):
		}
	}
}

// main returns the part main of a page.
func (h *hub) main(ctx context.Context, p page, r *http.Request) (state liveState) {
	c := h.console
	defer func() {
		if cause := recover(); cause != nil {
			c.log.WithFields(logrus.Fields{"page": p.name, "panic": fmt.Sprint(cause), "stack": string(debug.Stack())}).
				Error("panic in a live page of the console")
			state.failed = "an error in the server; its log has the details"
		}
	}()
	release, err := c.o.API.LiveSlot(ctx)
	if err != nil {
		return liveState{failed: c.o.API.Problem(err).Detail}
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	req := c.request(r.WithContext(ctx))
	view, err := p.load(ctx, req)
	if err != nil {
		return liveState{failed: c.o.API.Problem(err).Detail}
	}
	var main bytes.Buffer
	f := frame{Title: p.title, Nav: p.nav, Live: p.live, request: req, View: view}
	if err := c.templates[p.name]().ExecuteTemplate(&main, "main", f); err != nil {
		panic(err)
	}
	return liveState{main: main.Bytes()}
}

// sendState sends the page, or why it could not be computed.
func sendState(to *eventstream.Writer, state liveState) error {
	if state.failed != "" {
		return to.Send("failed", state.failed)
	}
	return to.Send("main", string(state.main))
}
