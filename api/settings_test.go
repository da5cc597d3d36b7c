package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast/store"
)

func TestSettingsOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		admin, viewer := w.token("ada", store.Admin, 0), w.token("vera", store.Viewer, 0)
		patch := func(body string, headers ...string) response {
			return w.call("PATCH", "/api/v1/settings?reason=why", body, append(headers, admin...)...)
		}
		undo := func(key string) response {
			return w.call("POST", "/api/v1/settings/undo", `{"key":"`+key+`"}`, admin...)
		}
		value := func(key string) string {
			r := w.call("GET", "/api/v1/settings?all=true", "", viewer...)
			for i := 0; ; i++ {
				at := fmt.Sprintf("settings.%d.", i)
				switch r.at(at + "key") {
				case nil:
					return "none"
				case key:
					return fmt.Sprint(r.at(at+"value"), " ", r.at(at+"origin"))
				}
			}
		}
		first := w.call("GET", "/api/v1/settings", "", viewer...)
		tag := first.header.Get("ETag")
		if first.status != 200 || tag != `"0"` || fmt.Sprint(first.at("version")) != "0" || !strings.Contains(first.text, `"ignored":[]`) {
			w.Fatalf("settings: %d %v %s", first.status, first.header, first.text)
		}
		r := patch(`{"types.mail.retry.base":"5s","defaults.timeout":"1m0s"}`, "If-Match", tag)
		if r.status != 200 || r.header.Get("ETag") == tag || !strings.Contains(r.text, `{"key":"types.mail.retry.base","value":"5s","origin":"store"}`) {
			w.Fatalf("set: %d %v %s", r.status, r.header, r.text)
		}
		if got, inherited := value("defaults.timeout"), value("types.mail.timeout"); got != "1m store" || inherited != "1m store" {
			w.Errorf("the timeout is %s, that of the type is %s", got, inherited)
		}
		patch(`{"defaults.timeout":"2m"}`, "If-Match", tag).
			want("a change of an old version", http.StatusPreconditionFailed, "code", "changed", "hint", some{})
		if r := patch(`{"types.mail.retry.base":null,"defaults.timeout":"2m"}`, "If-Match", r.header.Get("ETag")); r.status != 200 || value("types.mail.retry.base") == "5s store" {
			w.Errorf("a removed and a changed setting: %d %s", r.status, r.text)
		}
		if r := undo("defaults.timeout"); r.status != 200 || value("defaults.timeout") != "1m store" {
			w.Errorf("undo: %d %s", r.status, r.text)
		}
		undo("defaults.timeout").want("an undo of an undo", http.StatusConflict)
		for body, want := range map[string]int{
			`{}`: 422, `[]`: 400, ``: 400, `{"defaults.timeout":5}`: 400, `{"defaults.timeout":"soon"}`: 422, `{"worker.lease":"9s"}`: 422,
			`{"defaults.nosuch":"1"}`: 422, `{"types.mail.retry.base":"0s"}`: 422, `{"types.new.retry.strategy":"list"}`: 422,
			`{"defaults.timeout":"3m","types.mail.retry.jitter":"2"}`: 422, `{"types.mail.queue":null}`: 404, `{"defaults.timeout":"3m","nosuch":null}`: 422,
		} {
			patch(body).want(body, want, "detail", some{})
		}
		if got := value("defaults.timeout"); got != "1m store" {
			w.Errorf("after refused changes the timeout is %s", got)
		}
		for key, want := range map[string]int{"types.mail.queue": 409, "worker.lease": 422, "": 422} {
			undo(key).want(key, want)
		}
		audit := w.call("GET", "/api/v1/audit?setting=defaults.timeout", "", viewer...)
		var history []string
		for i := range 3 {
			at := fmt.Sprintf("entries.%d.", i)
			history = append(history, fmt.Sprint(audit.at(at+"action"), " ", audit.at(at+"actor"), " ", audit.at(at+"before.value"), " ", audit.at(at+"after.value")))
		}
		if got, want := strings.Join(history, ", "), "undo ada 2m 1m, set ada 1m 2m, set ada <nil> 1m"; got != want || audit.at("entries.3") != nil {
			w.Errorf("the history is %s, want %s", got, want)
		}
	})
}

// If many people saw the same version of the settings, only one of them changes it. Without a version, all of them do.
func TestManyChangesOfSettings(t *testing.T) {
	everywhere(t, func(w *world) {
		const n = 5
		tag := w.get("/api/v1/settings").header.Get("ETag")
		statuses := make(map[int]int)
		var mu sync.Mutex
		var people sync.WaitGroup
		for i := range 2 * n {
			people.Go(func() {
				body, headers := fmt.Sprintf(`{"types.a%d.timeout":"%ds"}`, i, i+1), []string{"If-Match", tag}
				status := w.call("PATCH", "/api/v1/settings", body, headers...).status
				mu.Lock()
				defer mu.Unlock()
				statuses[status]++
			})
		}
		people.Wait()
		if statuses[200] != 1 || statuses[412] != 2*n-1 {
			w.Errorf("the answers are %v, want one 200 and %d times 412", statuses, 2*n-1)
		}
	})
}
