package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// TestChangeRetriesOfASource shows and changes the timeout and the retries of a source. An empty field gives a setting back.
func TestChangeRetriesOfASource(t *testing.T) {
	everywhere(t, func(w *world) {
		w.change("PUT", "/sources/default", `{"timeout":"45s","retry_base":"10s"}`)
		w.change("PUT", "/sources/shop", `{"type":"pull","every":"24h","retry_strategy":"linear","retry_base":"90s"}`)
		b := w.as(store.Operator)
		text := b.get("/sources/shop").text
		for _, part := range []string{
			"<dt>Timeout</dt><dd>45 s <small>(default)</small></dd>", "<dt>Retry strategy</dt><dd>linear</dd>",
			"<dt>Retry base</dt><dd>1 min 30 s</dd>", "<dt>Retry max</dt><dd>setting of the type</dd>", "<option selected>linear</option>",
		} {
			if !strings.Contains(text, part) {
				w.Errorf("the page lacks %s", part)
			}
		}
		f, found := b.get("/sources/shop").formFor("setSource")
		if !found || f.fields.Get("retry_base") != "1m30s" || f.fields.Get("timeout") != "" {
			w.Fatalf("the form has %v", f.fields)
		}
		form := f.fields
		for name, c := range map[string]struct {
			status int
			value  string
		}{"max_attempts": {http.StatusBadRequest, "many"}, "timeout": {http.StatusUnprocessableEntity, "soon"}, "retry_strategy": {http.StatusUnprocessableEntity, "list"}} {
			form.Set(name, c.value)
			if r := b.post(f.action, form); r.status != c.status || !strings.Contains(r.summary(), c.value) {
				w.Errorf("%s %s: %d %s", name, c.value, r.status, r.summary())
			}
			form.Set(name, "")
		}
		form.Set("max_attempts", "3")
		form.Set("timeout", "3s")
		form.Set("retry_strategy", "fixed")
		form.Set("retry_base", "")
		form.Set("retry_max", " 1h ")
		if r := b.post(f.action, form); r.status != http.StatusSeeOther {
			w.Fatalf("the change: %d %s", r.status, r.summary())
		}
		s, err := w.Source(w.Context(), "shop")
		w.must(err)
		if e := s.Effective; *e.Attempts != 3 || time.Duration(*e.Timeout).String() != "3s" || e.RetryStrategy != holdfast.Fixed || s.Spec.RetryBase != nil || time.Duration(*e.RetryBase).String() != "10s" ||
			time.Duration(*e.RetryMax).String() != "1h0m0s" || e.Type != "pull" || time.Duration(*e.Every).String() != "24h0m0s" {
			w.Errorf("settings %+v", e)
		}
		if r := b.post(f.action, form); r.status != http.StatusPreconditionFailed {
			w.Errorf("the form after the change: %d %s", r.status, r.summary())
		}
	})
}
