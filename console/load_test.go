package console_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

// slowSearch is a store in which a search of payloads waits for release.
type slowSearch struct {
	desk.Store
	arrived chan struct{}
	release chan struct{}
}

func (s *slowSearch) List(ctx context.Context, f store.Filter) (store.Page, error) {
	if len(f.Payload) > 0 {
		s.arrived <- struct{}{}
		<-s.release
	}
	return s.Store.List(ctx, f)
}

// onSlowSearch returns a world with a slow search and the given number of slots.
func onSlowSearch(t *testing.T, slots int) (*world, *slowSearch) {
	t.Parallel()
	w := &world{World: backendtest.Open(t, backendtest.FileSettings(t)), log: new(logText), slots: slots}
	s := &slowSearch{w.Store, make(chan struct{}, 1000), make(chan struct{})}
	w.Store = s
	w.serve()
	return w, s
}

const slowPage = "/tasks?q=payload.a:1"

// TestManySlowPages checks that pages have a bound: the pages above it get 503 at once, and the API still has a slot.
func TestManySlowPages(t *testing.T) {
	const slots, more = 3, 20
	w, search := onSlowSearch(t, slots)
	answers := make(chan *httptest.ResponseRecorder)
	var served sync.WaitGroup
	for range api.MaxPages + more {
		served.Go(func() {
			rec, r := httptest.NewRecorder(), local(w.Context(), slowPage)
			r.Header.Del("Accept")
			w.console.ServeHTTP(rec, r)
			answers <- rec
		})
	}
	for range more {
		if got := <-answers; got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" {
			t.Errorf("a page above the bound: %d %v", got.Code, got.Header())
		}
	}
	for range slots - 1 {
		<-search.arrived
	}
	rec, r := httptest.NewRecorder(), local(w.Context(), "/api/v1/tasks")
	if w.api.ServeHTTP(rec, r); rec.Code != http.StatusOK {
		t.Errorf("a request to the API: %d %s", rec.Code, rec.Body)
	}
	if n := len(search.arrived); n > 0 {
		t.Errorf("%d pages use the slot of the API", n)
	}
	close(search.release)
	for range api.MaxPages {
		if got := <-answers; got.Code != http.StatusOK {
			t.Errorf("a page: %d", got.Code)
		}
	}
	served.Wait()
	w.browser().get("/tasks")
}

// TestManySlowLivePages checks that the computations of live pages leave slots to others.
func TestManySlowLivePages(t *testing.T) {
	const slots = 4
	w, search := onSlowSearch(t, slots)
	ctx, cancel := context.WithCancel(w.Context())
	var open sync.WaitGroup
	for i := range 10 {
		open.Go(func() {
			w.console.ServeHTTP(httptest.NewRecorder(), local(ctx, slowPage+"&before="+string(rune('1'+i%9))+string(rune('0'+i/9))))
		})
	}
	for range slots / 2 {
		<-search.arrived
	}
	if r := w.browser().get("/tasks"); r.status != http.StatusOK {
		t.Errorf("a page: %d", r.status)
	}
	if n := len(search.arrived); n > 0 {
		t.Errorf("%d more live pages are computed", n)
	}
	close(search.release)
	cancel()
	open.Wait()
}

// TestAPageMayUseTheAPI checks that a page that makes a request of the API does so with its own slot.
func TestAPageMayUseTheAPI(t *testing.T) {
	t.Parallel()
	w := &world{World: backendtest.Open(t, backendtest.FileSettings(t)), log: new(logText), slots: 1}
	w.serve()
	if r := w.browser().get(newOperation + "?action=retry&query=state:dead"); r.status != http.StatusOK || len(r.find("p", "bad")) > 0 {
		t.Errorf("%d %s", r.status, r.summary())
	}
}
