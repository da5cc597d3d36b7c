package console_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/console"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/workshop/backendtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// watched is a store that counts the reads of limits: one for each computation of the page of gates. It can fail them.
type watched struct {
	desk.Store
	reads   atomic.Int64
	broken  atomic.Bool
	panics  atomic.Bool
	workers atomic.Int64 // reads of workers
}

func (s *watched) Workers(ctx context.Context, all bool) ([]store.Worker, error) {
	s.workers.Add(1)
	return s.Store.Workers(ctx, all)
}

func (s *watched) Limits(ctx context.Context) ([]store.LimitUse, error) {
	s.reads.Add(1)
	if s.panics.Load() {
		panic("the store panics")
	}
	if s.broken.Load() {
		return nil, errors.New("the store is away\nevent: main\ndata: forged")
	}
	return s.Store.Limits(ctx)
}

// onWatched returns a world with a watched store.
func onWatched(t *testing.T) (*world, *watched) {
	t.Parallel()
	w := &world{World: backendtest.Open(t, backendtest.FileSettings(t)), log: new(logText)}
	s := &watched{Store: w.Store}
	w.Store = s
	w.serve()
	return w, s
}

// computed waits until the page of gates was computed n more times.
func (s *watched) computed(w *world, n int64) {
	w.Helper()
	until := s.reads.Load() + n
	w.Eventually("the page is computed", func() bool { return s.reads.Load() >= until })
}

// event is an event of a stream.
type event struct{ name, data string }

// stream is an open stream of events. events is closed at its end.
type stream struct {
	*browser
	events chan event
	cancel context.CancelFunc
}

// watch opens the stream of a page. It drops the events ping, which may come between any two others.
func (b *browser) watch(path string) *stream {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	got, err := b.client.Do(b.request(ctx, http.MethodGet, path, nil, "Accept", "text/event-stream"))
	if err != nil {
		b.Fatal(err)
	}
	b.checkHeaders("stream of "+path, got.Header)
	if kind := got.Header.Get("Content-Type"); got.StatusCode != http.StatusOK || kind != "text/event-stream" || got.Header.Get("Cache-Control") != "no-store" {
		b.Fatalf("stream of %s: %d %v", path, got.StatusCode, got.Header)
	}
	s := &stream{b, make(chan event, 100), cancel}
	b.Cleanup(cancel)
	go func() {
		defer close(s.events)
		defer got.Body.Close()
		lines := bufio.NewScanner(got.Body)
		lines.Buffer(nil, 1<<20)
		lines.Split(eventLine)
		var e event
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ":")
			switch value = strings.TrimPrefix(value, " "); {
			case lines.Text() == "":
				if e.name != "ping" {
					s.events <- e
				}
				e = event{}
			case name == "event":
				e.name = value
			case name == "data":
				e.data += value + "\n"
			}
		}
	}()
	return s
}

// eventLine is a bufio.SplitFunc for the lines of an event stream, which end with CR, LF or CRLF.
func eventLine(text []byte, atEOF bool) (advance int, line []byte, err error) {
	i := bytes.IndexAny(text, "\r\n")
	switch {
	case i < 0 || text[i] == '\r' && i+1 == len(text) && !atEOF:
		return 0, nil, nil
	case bytes.HasPrefix(text[i:], []byte("\r\n")):
		return i + 2, text[:i], nil
	}
	return i + 1, text[:i], nil
}

// next returns the next event, which must have the name.
func (s *stream) next(name string) string {
	s.Helper()
	select {
	case e, open := <-s.events:
		if !open || e.name != name {
			s.Fatalf("the event %q %q (open: %t), not %s", e.name, e.data, open, name)
		}
		return e.data
	case <-time.After(slow.Patience()):
		s.Fatalf("timeout while waiting for the event %s", name)
	}
	return ""
}

// ended waits for the end of the stream, and skips events.
func (s *stream) ended() {
	s.Helper()
	late := time.After(slow.Patience())
	for {
		select {
		case _, open := <-s.events:
			if !open {
				return
			}
		case <-late:
			s.Fatal("timeout while waiting for the end of a stream")
		}
	}
}

// quiet fails if an event has arrived.
func (s *stream) quiet(what string) {
	s.Helper()
	select {
	case e, open := <-s.events:
		s.Errorf("%s: the event %q %.300q, open: %t", what, e.name, e.data, open)
	default:
	}
}

func (w *world) setLimit(reason string) {
	w.Helper()
	w.change("PUT", "/limits", `{"type":"mail","rate":"100/s","reason":"`+reason+`"}`)
}

// TestStreamSendsChanges checks that a stream sends the part main of a page when it has changed, and else nothing.
func TestStreamSendsChanges(t *testing.T) {
	w, reads := onWatched(t)
	b := w.browser()
	s := b.watch("/gates")
	page := b.get("/gates").text
	if first := s.next("main"); !strings.Contains(page, strings.TrimSpace(first)) || !strings.Contains(first, "No limit is set.") || strings.Contains(first, "<html") {
		w.Errorf("the first event is not a part of the page: %s", first)
	}
	reads.computed(w, 2)
	s.quiet("nothing has changed")
	w.setLimit("upkeep")
	if next := s.next("main"); !strings.Contains(next, "upkeep") {
		w.Errorf("after a change: %s", next)
	}
	w.setLimit("later")
	late := b.watch("/gates") // must not get the state from before the change, which its page may already show
	if first := late.next("main"); !strings.Contains(first, "later") {
		w.Errorf("a second stream: %s", first)
	}
	s.cancel()
	late.cancel()
	w.Eventually("the streams have ended", func() bool { return w.console.Viewers() == 0 })
	before := reads.reads.Load()
	b.get("/gates")
	if after := reads.reads.Load(); after > before+2 { // a computation may have been in progress
		w.Errorf("%d computations without a viewer", after-before-1)
	}
}

// TestStreamsShareOneComputation checks that streams of one page and role read the store as often as one stream.
func TestStreamsShareOneComputation(t *testing.T) {
	w, reads := onWatched(t)
	viewer, operator := w.as(store.Viewer), w.as(store.Operator)
	var streams []*stream
	for range 50 {
		streams = append(streams, viewer.watch("/gates"))
	}
	var first string
	for i, s := range streams {
		got := s.next("main")
		if first = got; i > 0 && got != first {
			w.Errorf("stream %d: another event", i)
		}
	}
	// Each computation begins a second or more after the one before. 50 of them would be much faster.
	began := time.Now()
	reads.computed(w, 3)
	if took := time.Since(began); took < time.Second {
		w.Errorf("three computations in %s", took)
	}
	own := operator.watch("/gates").next("main")
	if !strings.Contains(own, "/do/closeGate") || strings.Contains(first, "/do/") {
		w.Errorf("the stream of an operator: %s; that of a viewer: %s", own, first)
	}
	w.setLimit("upkeep")
	for _, s := range streams {
		if next := s.next("main"); !strings.Contains(next, "upkeep") || strings.Contains(next, "/do/") {
			w.Errorf("after a change: %s", next)
		}
	}
}

// TestStreamOfAFailingStore checks that a stream says once that a page cannot be computed, and then goes on.
func TestStreamOfAFailingStore(t *testing.T) {
	w, reads := onWatched(t)
	s := w.browser().watch("/gates")
	s.next("main")
	reads.broken.Store(true)
	if failed := s.next("failed"); failed == "" || strings.Count(failed, "\n") != 1 {
		w.Errorf("the event failed: %q", failed)
	}
	reads.computed(w, 2)
	s.quiet("the store still fails")
	late := w.browser().watch("/gates")
	late.next("failed")
	reads.broken.Store(false)
	for _, s := range []*stream{s, late} {
		if next := s.next("main"); !strings.Contains(next, "No limit is set.") {
			w.Errorf("after the failure: %s", next)
		}
	}
}

// TestPanicOfALivePage checks that the log has the stack of a panic, and that the stream goes on after it.
func TestPanicOfALivePage(t *testing.T) {
	w, reads := onWatched(t)
	s := w.browser().watch("/gates")
	s.next("main")
	reads.panics.Store(true)
	if failed := s.next("failed"); strings.Contains(failed, "panic") {
		w.Errorf("the event failed: %q", failed)
	}
	reads.panics.Store(false)
	s.next("main")
	if text := w.log.String(); !strings.Contains(text, "the store panics") || !strings.Contains(text, "(*watched).Limits") {
		w.Errorf("the log: %s", text)
	}
	w.log.reset()
}

// TestStreamOfAnUnchangingPage checks that the stream of a page that is never live ends with that reason.
func TestStreamOfAnUnchangingPage(t *testing.T) {
	w, _ := onWatched(t)
	s := w.browser().watch("/settings")
	if reason := s.next("end"); !strings.Contains(reason, "does not change by itself") {
		w.Errorf("the reason of the end: %q", reason)
	}
	s.ended()
}

// TestOverviewReadsTheWorkersOnce checks that one page reads the workers once.
func TestOverviewReadsTheWorkersOnce(t *testing.T) {
	w, reads := onWatched(t)
	before := reads.workers.Load()
	w.browser().get("/")
	if n := reads.workers.Load() - before; n != 1 {
		w.Errorf("%d reads of the workers", n)
	}
}

func TestStreamsEnd(t *testing.T) {
	w, _ := onWatched(t)
	viewer, operator := w.as(store.Viewer), w.as(store.Operator)
	revoked, stays := viewer.watch("/gates"), operator.watch("/gates")
	revoked.next("main")
	stays.next("main")
	w.must(w.Store.RevokeToken(w.Context(), tester, "viewer"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range revoked.events { // until its end
		}
	}()
	n := 0
	w.Eventually("the stream of a revoked token has ended", func() bool {
		n++
		w.setLimit(strings.Repeat("x", n%100+1))
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	w.setLimit("last")
	late := time.After(slow.Patience())
	for seen := false; !seen; {
		select {
		case e, open := <-stays.events:
			if !open {
				w.Fatal("the stream of another token has ended")
			}
			seen = strings.Contains(e.data, "last")
		case <-late:
			w.Fatal("timeout while waiting for the last change")
		}
	}
	w.console.Stop()
	w.console.Stop()
	stays.ended()
	after := operator.watch("/gates")
	after.next("end")
	after.ended()
}

// TestTooManyStreams opens as many streams as may be open. The next one ends with a reason.
func TestTooManyStreams(t *testing.T) {
	w, _ := onWatched(t)
	ctx, cancel := context.WithCancel(w.Context())
	var open sync.WaitGroup
	for range console.MaxStreams {
		open.Go(func() { w.console.ServeHTTP(httptest.NewRecorder(), local(ctx, "/gates")) })
	}
	w.Eventually("all streams are open", func() bool { return w.console.Viewers() == console.MaxStreams })
	refused := w.browser().watch("/gates")
	if reason := refused.next("end"); !strings.Contains(reason, "too many") {
		w.Errorf("the reason of the end: %q", reason)
	}
	refused.ended()
	cancel()
	open.Wait()
	if n := w.console.Viewers(); n != 0 {
		w.Errorf("%d streams after the end of all", n)
	}
	w.browser().watch("/gates").next("main")
}

// local returns a request for a stream from this machine, without a connection.
func local(ctx context.Context, path string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	r.RemoteAddr = "127.0.0.1:4"
	r.Header.Set("Accept", "text/event-stream")
	return r
}

// TestEveryLivePage reads the first event of each live page of a store with data of every kind.
func TestEveryLivePage(t *testing.T) {
	everywhere(t, func(w *world) {
		urls := w.urlsOf(w.seed())
		b := w.as(store.Admin)
		for _, p := range w.console.Pages() {
			if !p.Live {
				continue
			}
			for _, at := range slices.Compact(urls[p.Name][:1]) {
				s := b.watch(at)
				main := s.next("main")
				s.quiet("stream of " + at) // a text that began an event would have arrived with it
				s.cancel()
				w.checkText("stream of "+at, main)
				if d, err := parse("<main>" + main + "</main>"); err != nil || len(d.find("h1", "")) != 1 {
					w.Errorf("stream of %s: %v: %s", at, err, main)
				} else {
					w.checkDocument("stream of "+at, d)
				}
			}
		}
	})
}
