package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/workshop/backendtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// request returns a request from this machine for serve.
func (w *world) request(method, path string, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(w.Context(), method, "http://localhost"+path, body)
	r.RemoteAddr = "127.0.0.1:4"
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// slowClient sends no byte of its request body and receives no byte of the response before release is closed.
type slowClient struct {
	*httptest.ResponseRecorder
	arrived chan<- struct{}
	release <-chan struct{}
	once    sync.Once
}

func (c *slowClient) wait() {
	c.once.Do(func() { c.arrived <- struct{}{} })
	<-c.release
}

func (c *slowClient) Read([]byte) (int, error) {
	c.wait()
	return 0, io.ErrUnexpectedEOF
}

func (c *slowClient) WriteHeader(status int) {
	c.wait()
	c.ResponseRecorder.WriteHeader(status)
}

func (c *slowClient) Write(text []byte) (int, error) {
	c.wait()
	return c.ResponseRecorder.Write(text)
}

// Slow clients do not delay the requests of other clients.
func TestSlowClientsKeepNoPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, method string
		body         bool
		status       int
	}{
		{"receive", http.MethodGet, false, http.StatusOK},
		{"send", http.MethodPost, true, http.StatusBadRequest},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			const places = 3
			w := newWorld(t, backendtest.FileSettings(t), func(o *api.Options) { o.Concurrency = places })
			arrived, release := make(chan struct{}), make(chan struct{})
			clients := make([]*slowClient, places)
			var served sync.WaitGroup
			for i := range clients {
				client := &slowClient{ResponseRecorder: httptest.NewRecorder(), arrived: arrived, release: release}
				clients[i] = client
				r := w.request(c.method, "/api/v1/tasks", nil)
				if c.body {
					r = w.request(c.method, "/api/v1/tasks", client)
				}
				served.Go(func() { w.api.ServeHTTP(client, r) })
				<-arrived
			}
			if r := w.call("GET", "/api/v1/tasks", ""); r.status != http.StatusOK {
				t.Errorf("another client: %d %s", r.status, r.text)
			}
			close(release)
			served.Wait()
			for _, client := range clients {
				if client.Code != c.status {
					t.Errorf("a slow client: %d %s", client.Code, client.Body)
				}
			}
		})
	}
}

// slowSearch is a store in which a search of payloads waits for release.
type slowSearch struct {
	desk.Store
	arrived, release chan struct{}
	running, most    atomic.Int64
}

func newSlowSearch() *slowSearch {
	return &slowSearch{arrived: make(chan struct{}, 1000), release: make(chan struct{})}
}

func (s *slowSearch) List(ctx context.Context, f store.Filter) (store.Page, error) {
	if len(f.Payload) > 0 {
		now := s.running.Add(1)
		defer s.running.Add(-1)
		for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
		}
		s.arrived <- struct{}{}
		<-s.release
	}
	return s.Store.List(ctx, f)
}

// The OpenAPI document needs no slot: a caller gets it while other requests use all slots.
func TestTheDocumentNeedsNoPlace(t *testing.T) {
	t.Parallel()
	search := newSlowSearch()
	w := newWorld(t, backendtest.FileSettings(t), func(o *api.Options) {
		search.Store, o.Backend.Store, o.Concurrency = o.Backend.Store, search, 1
	})
	var served sync.WaitGroup
	served.Go(func() { w.api.ServeHTTP(httptest.NewRecorder(), w.request("GET", "/api/v1/tasks?q=payload.a:1", nil)) })
	<-search.arrived
	if r := w.call("GET", "/api/v1/openapi.json", ""); r.status != http.StatusOK || r.at("openapi") != "3.1.0" || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %.200s", r.status, r.header, r.text)
	}
	close(search.release)
	served.Wait()
}

// Streams use at most half of the slots.
func TestStreamsLeavePlacesToOthers(t *testing.T) {
	t.Parallel()
	search := newSlowSearch()
	w := newWorld(t, backendtest.FileSettings(t), func(o *api.Options) {
		search.Store, o.Backend.Store, o.Concurrency = o.Backend.Store, search, 4
	})
	ctx, cancel := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	began := make(chan struct{}, 100)
	for range 10 {
		streams.Go(func() {
			client := &slowClient{ResponseRecorder: httptest.NewRecorder(), arrived: began, release: search.release}
			w.api.ServeHTTP(client, w.request("GET", "/api/v1/tasks/events?q=payload.a:1", nil).WithContext(ctx))
		})
	}
	<-search.arrived
	<-search.arrived
	if r := w.call("GET", "/api/v1/tasks", ""); r.status != http.StatusOK {
		t.Errorf("a list: %d %s", r.status, r.text)
	}
	close(search.release)
	for range 10 {
		<-began
	}
	if most := search.most.Load(); most > 2 {
		t.Errorf("%d streams used the store at the same time", most)
	}
	cancel()
	streams.Wait()
}

// timedSearch is a store in which a search of payloads is slow. It records when searches begin and end.
type timedSearch struct {
	desk.Store
	times chan [2]time.Time
}

func (s *timedSearch) List(ctx context.Context, f store.Filter) (store.Page, error) {
	if len(f.Payload) == 0 {
		return s.Store.List(ctx, f)
	}
	began := time.Now()
	time.Sleep(400 * time.Millisecond)
	s.times <- [2]time.Time{began, time.Now()}
	return s.Store.List(ctx, f)
}

// A stream repeats a slow search less often.
func TestASlowStreamPauses(t *testing.T) {
	t.Parallel()
	timed := &timedSearch{times: make(chan [2]time.Time, 1000)}
	w := newWorld(t, backendtest.FileSettings(t), func(o *api.Options) { timed.Store, o.Backend.Store = o.Backend.Store, timed })
	next := w.watch("/api/v1/tasks/events?q=payload.a:1")
	if name, _ := next(); name != "snapshot" {
		t.Fatalf("first event: %s", name)
	}
	first, second := <-timed.times, <-timed.times
	if took, pause := first[1].Sub(first[0]), second[0].Sub(first[1]); pause < 4*took {
		t.Errorf("the stream paused for %s after a search that took %s", pause, took)
	}
}

// shortSearch is a store whose searches stop after one task if short is true.
type shortSearch struct {
	desk.Store
	short atomic.Bool
}

func (s *shortSearch) List(ctx context.Context, f store.Filter) (store.Page, error) {
	page, err := s.Store.List(ctx, f)
	if err == nil && s.short.Load() && len(page.Tasks) > 1 {
		page.Next = page.Tasks[0].ID
		page.Tasks = page.Tasks[:1]
	}
	return page, err
}

// A stream does not remove a task that its latest search did not reach.
func TestRemovedTasksWereLookedAt(t *testing.T) {
	t.Parallel()
	short := new(shortSearch)
	w := newWorld(t, backendtest.FileSettings(t), func(o *api.Options) { short.Store, o.Backend.Store = o.Backend.Store, short })
	w.Enqueue(holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "mail"})
	next := w.watch("/api/v1/tasks/events?q=state:ready")
	if name, _ := next(); name != "snapshot" {
		t.Fatalf("first event: %s", name)
	}
	short.short.Store(true)
	added := w.Enqueue(holdfast.NewTask{Type: "mail"})[0]
	if name, data := next(); name != "change" || !strings.Contains(data, `{"id":"`+added.String()+`"`) || !strings.Contains(data, `"removed":[]`) {
		t.Errorf("after a new task: %s %s", name, data)
	}
	if _, err := w.Act(t.Context(), tester, added, store.ActionCancel); err != nil {
		t.Fatal(err)
	}
	if name, data := next(); name != "change" || !strings.Contains(data, `"tasks":[],"removed":["`+added.String()+`"]`) {
		t.Errorf("after the task was cancelled: %s %s", name, data)
	}
}

// slowTokens is a store that fails to read the list of tokens after some time.
type slowTokens struct {
	desk.Store
	fail  func(context.Context) error
	reads atomic.Int64
}

func (s *slowTokens) Tokens(ctx context.Context) ([]store.Token, error) {
	s.reads.Add(1)
	return nil, s.fail(ctx)
}

// While the store does not answer, each request ends soon, and requests do not wait one after another.
func TestAuthenticationWithoutAStoreEndsSoon(t *testing.T) {
	t.Parallel()
	const requests = 20
	var begun sync.WaitGroup
	for what, fail := range map[string]func(context.Context) error{
		"a store that hangs": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"a store that fails slowly": func(context.Context) error {
			begun.Wait() // until the other requests have begun
			time.Sleep(slow.Times(200 * time.Millisecond))
			return holdfast.ErrUnavailable
		},
	} {
		t.Run(what, func(t *testing.T) {
			tokens := &slowTokens{fail: fail}
			w := newWorld(t, backendtest.FileSettings(t), func(o *api.Options) { tokens.Store, o.Backend.Store = o.Backend.Store, tokens })
			ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
			defer cancel()
			var done sync.WaitGroup
			begun.Add(requests)
			for range requests {
				done.Go(func() {
					r, answer := w.request("GET", "/api/v1/tasks", nil).WithContext(ctx), httptest.NewRecorder()
					r.Header.Set("Authorization", "Bearer x")
					begun.Done()
					w.api.ServeHTTP(answer, r)
					if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" {
						t.Errorf("%d %v %s", answer.Code, answer.Header(), answer.Body)
					}
				})
			}
			done.Wait()
			if ctx.Err() != nil {
				t.Error("the requests did not end")
			}
			if reads := tokens.reads.Load(); reads > requests/2 {
				t.Errorf("%d requests read the list of tokens %d times", requests, reads)
			}
		})
	}
}
