package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

// panicking is a store that panics when it lists workers.
type panicking struct{ desk.Store }

func (panicking) Workers(context.Context, bool) ([]store.Worker, error) {
	panic("the list of workers is broken")
}

// After a panic, its request gets a problem, the log has a line, and other requests continue.
func TestAPanicIsAProblem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, backendtest.FileSettings(t), func(o *api.Options) { o.Backend.Store = panicking{o.Backend.Store} })
	for range 10 { // more than there are slots
		r := w.call("GET", "/api/v1/workers", "")
		if r.status != http.StatusInternalServerError || r.at("code") != "internal" || strings.Contains(r.text, "broken") {
			t.Fatalf("%d %s", r.status, r.text)
		}
	}
	if text := w.log.String(); !strings.Contains(text, "the list of workers is broken") || !strings.Contains(text, "panic_test.go") {
		t.Errorf("log: %s", text)
	}
	w.get("/api/v1/tasks")
}
