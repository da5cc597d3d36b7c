package api_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// watch opens a stream and returns a function that returns the name and the data of the next event, and "" at the end.
func (w *world) watch(path string, headers ...string) func() (name, data string) {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
		w.Fatalf("%s: %s %v", path, answer.Status, answer.Header)
	}
	lines := bufio.NewScanner(answer.Body)
	return func() (name, data string) {
		for lines.Scan() {
			line := lines.Text()
			if found, ok := strings.CutPrefix(line, "event: "); ok {
				name = found
			}
			if found, ok := strings.CutPrefix(line, "data: "); ok {
				data = found
			}
			if line == "" && name != "" {
				return name, data
			}
		}
		return "", ""
	}
}

func TestEvents(t *testing.T) {
	everywhere(t, func(w *world) {
		viewer := w.token("viewer", store.Viewer, 0)
		first := w.Enqueue(holdfast.NewTask{Type: "mail"})[0]
		next := w.watch("/api/v1/tasks/events?q=type:mail+state:ready", viewer...)
		if name, data := next(); name != "snapshot" || !strings.Contains(data, `{"tasks":[{"id":"`+first.String()+`"`) {
			w.Fatalf("first event: %s %s", name, data)
		}
		w.Enqueue(holdfast.NewTask{Type: "report"})
		second := w.Enqueue(holdfast.NewTask{Type: "mail"})[0]
		if name, data := next(); name != "change" || !strings.Contains(data, `{"tasks":[{"id":"`+second.String()+`"`) || !strings.Contains(data, `"removed":[]`) {
			w.Errorf("second event: %s %s", name, data)
		}
		if _, err := w.Act(w.Context(), tester, first, store.ActionCancel); err != nil {
			w.Fatal(err)
		}
		if name, data := next(); name != "change" || !strings.Contains(data, `"tasks":[],"removed":["`+first.String()+`"]`) {
			w.Errorf("third event: %s %s", name, data)
		}
		if _, err := w.Pause(w.Context(), tester, store.PauseFor(store.Subject{Type: "mail"}, 0)); err != nil {
			w.Fatal(err)
		}
		if name, data := next(); name != "change" || !strings.Contains(data, `"id":"`+second.String()+`"`) || !strings.Contains(data, `"kind":"pause","type":"mail"`) {
			w.Errorf("event after a pause: %s %s", name, data)
		}
		w.revoke("viewer")
		if name, data := next(); name != "" {
			w.Errorf("after the revocation: %s %s", name, data)
		}
	})
}

func TestStopEndsStreams(t *testing.T) {
	everywhere(t, func(w *world) {
		next := w.watch("/api/v1/tasks/events")
		if name, _ := next(); name != "snapshot" {
			w.Fatalf("first event: %s", name)
		}
		w.api.Stop()
		if name, data := next(); name != "" {
			w.Errorf("after Stop: %s %s", name, data)
		}
		if r := w.call("GET", "/api/v1/tasks", ""); r.status != 200 {
			w.Errorf("another request after Stop: %d", r.status)
		}
	})
}
