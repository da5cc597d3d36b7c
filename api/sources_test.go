package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// advance makes the steps of plans that are due, as a janitor does.
func (w *world) advance() {
	w.Helper()
	if _, _, err := plan.New(w.Store).Advance(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func TestSourcesOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		operator, viewer := w.token("ada", store.Operator, 0), w.token("vera", store.Viewer, 0)
		call := func(method, path, body string, headers ...string) response {
			return w.call(method, "/api/v1/sources"+path, body, append(headers, operator...)...)
		}
		list := func(query string) response { return w.call("GET", "/api/v1/sources"+query, "", viewer...) }
		slices := func(query string) response { return w.call("GET", "/api/v1/slices"+query, "", viewer...) }
		if r := list(""); r.text != "{\"sources\":[],\"next\":null}\n" {
			w.Errorf("no sources: %s", r.text)
		}
		for body, want := range map[string]int{
			`{}`: 422, `{"type":"pull"}`: 422, `{"every":"5m"}`: 422, `{"type":"pull","every":"soon"}`: 422, `{"type":"pull","every":"1ms"}`: 422,
			`{"type":"pull","every":5}`: 400, `{"type":"pull","every":"5m","overlap":"-1s"}`: 422, `{"type":"pull","every":"5m","lag":"x"}`: 422,
			`{"type":"pull","every":"5m","start":"soon"}`: 422, `{"type":"pull","every":"5m","start":"5m"}`: 422, `{"type":"pull","every":"5m","in_flight":0}`: 422,
			`{"type":"pull","every":"5m","in_flight":1001}`: 422, `{"type":"pull","every":"5m","rate":"fast"}`: 422, `{"type":"pull","every":"5m","max_attempts":0}`: 422,
			`{"type":"http","every":"5m"}`: 422, `{"type":"pull","every":"5m","timeout":"x"}`: 422, `{"type":"pull","every":"5m","retry_strategy":"list"}`: 422,
			`{"type":"pull","every":"5m","retry_base":"0s"}`: 422, `{"type":"pull","every":"5m","retry_max":"-1s"}`: 422, `{"type":"pull","every":"5m","plan":1}`: 400,
		} {
			call("PUT", "/a", body).want(body, want, "detail", some{})
		}
		call("PUT", "/a%20b", `{"type":"pull","every":"5m"}`).want("a bad name", 422, "detail", some{})
		call("PUT", "/default", `{"type":"pull","every":"24h","overlap":"5s","in_flight":2,"reason":"for all"}`).
			want("the default", 200, "name", "default", "own.3", "in_flight", "next", nil, "actor", "ada", "surface", "api", "reason", "for all", "before", nil)
		call("PUT", "/shop", `{"type":"pull","every":"24h"}`, "If-Match", `"x"`).want("a new source with a tag", http.StatusPreconditionFailed)
		w.call("PUT", "/api/v1/sources/shop", `{}`, viewer...).want("creation by a viewer", http.StatusForbidden)
		made := call("PUT", "/shop", `{"start":"2025-01-01T00:00:00Z"}`)
		made.want("create", 200, "type", "pull", "every", "24h0m0s", "overlap", "5s", "lag", "0s", "in_flight", 2, "rate", nil, "queue", "default",
			"start", "2025-01-01T00:00:00Z", "own.0", "start", "own.1", nil, "next", "2025-01-01T00:00:00Z",
			"done_through", "2025-01-01T00:00:00Z", "open", 0, "dead", 0, "done", 0, "warnings.0", nil)
		call("PUT", "/shop", `{}`).want("a change of nothing", 422)
		call("PUT", "/shop", `{"reason":"x"}`).want("a change with a reason only", 422)
		call("GET", "/none", "").want("an unknown name", 404, "detail", "there is no source none")

		w.advance()
		tag := made.header.Get("ETag")
		got := call("GET", "/shop", "")
		got.want("after a step", 200, "open", 2, "next", "2025-01-03T00:00:00Z", "done_through", "2025-01-01T00:00:00Z", "behind_seconds", some{}, "late", true)
		if got.header.Get("ETag") != tag {
			w.Errorf("a slice has changed the entity tag: %s, not %s", got.header.Get("ETag"), tag)
		}
		first := slices("?source=shop&limit=1")
		first.want("the first slice", 200, "slices.0.source", "shop", "slices.0.from", "2025-01-01T00:00:00Z", "slices.0.to", "2025-01-02T00:00:00Z",
			"slices.0.state", "open", "slices.0.task", some{}, "slices.1", nil, "next", "2025-01-01T00:00:00Z")
		slices("?source=shop&after="+first.at("next").(string)).want("the second slice", 200, "slices.0.from", "2025-01-02T00:00:00Z", "next", nil)
		slices("?source=shop&state=dead").want("no dead slice", 200, "slices.0", nil, "next", nil)
		slices("?source=none").want("slices of none", 404)
		slices("").want("slices without a source", 422)
		slices("?source=shop&state=done").want("an unknown state", 422)
		slices("?source=shop&after=soon").want("a bad cursor", 422)
		id := first.at("slices.0.task").(string)
		w.call("GET", "/api/v1/tasks/"+id, "", viewer...).want("its task", 200, "type", "pull", "key", "shop", "payload.source", "shop",
			"payload.from", "2024-12-31T23:59:55Z", "payload.to", "2025-01-02T00:00:00Z", "unique", "slice/shop/2025-01-01T00:00:00.000000Z/2025-01-02T00:00:00.000000Z")

		call("PUT", "/own", `{"timeout":"3s","retry_strategy":"fixed","retry_base":"0s","retry_max":"1h"}`).want("settings of slices", 200,
			"timeout", "3s", "retry_strategy", "fixed", "retry_base", "0s", "retry_max", "1h0m0s", "own.0", "timeout", "own.3", "retry_max")
		call("PUT", "/own", `{"retry_strategy":null}`).want("a base of 0s without a strategy", 422)
		call("PUT", "/own", `{"timeout":"0s","retry_strategy":null,"retry_base":null}`).want("other settings of slices", 200,
			"timeout", "0s", "retry_strategy", nil, "retry_base", nil, "retry_max", "1h0m0s", "before.timeout", "3s")
		call("DELETE", "/own", "").want("deletion of a source without slices", 200)
		changed := call("PUT", "/shop", `{"lag":"1m","rate":"10/s","note":"slow"}`, "If-Match", tag)
		changed.want("change", 200, "lag", "1m0s", "rate", "10/s", "note", "slow", "open", 2, "before.lag", "0s", "before.rate", nil, "own.0", "lag")
		call("PUT", "/shop", `{"lag":null}`, "If-Match", tag).want("a change with an old tag", http.StatusPreconditionFailed, "code", "changed")
		call("PUT", "/shop", `{"lag":null,"rate":null,"start":"-1h"}`).want("a start", 200, "lag", "0s", "rate", nil, "start", "-1h0m0s", "next", "2025-01-03T00:00:00Z", "warnings.0", some{})
		call("PUT", "/default", `{"every":null}`).want("a default without a length", 422, "detail", some{})
		call("PUT", "/default", `{"every":"12h","queue":"pulls"}`).want("another default", 200, "every", "12h0m0s", "warnings.0", some{})
		call("GET", "/shop", "").want("after the change of the default", 200, "every", "12h0m0s", "queue", "pulls")

		for _, body := range []string{`{}`, `{"from":"soon","to":"2024-01-01"}`, `{"from":"2024-01-02","to":"2024-01-01"}`, `{"from":"2024-01-01","to":"2999-01-01"}`,
			`{"from":"2024-01-01","to":"2024-02-01","in_flight":0}`, `{"from":"2024-01-01","to":"2024-02-01","in_flight":1001}`} {
			call("POST", "/shop/backfill", body).want(body, 422, "detail", some{})
		}
		const january = `{"from":"2024-01-01T00:00:00Z","to":"2024-01-02T00:00:00Z","in_flight":7,"reason":"again"}`
		call("POST", "/none/backfill", january).want("a backfill of none", 404)
		call("POST", "/default/backfill", january).want("a backfill of the default", 422)
		fill := call("POST", "/shop/backfill", january)
		fill.want("backfill", 201, "name", "shop.backfill-20240101T000000Z-20240102T000000Z", "backfill_of", "shop", "in_flight", 7, "every", "12h0m0s",
			"start", nil, "from", "2024-01-01T00:00:00Z", "to", "2024-01-02T00:00:00Z", "behind_seconds", 86400)
		call("POST", "/shop/backfill", january).want("the same backfill", http.StatusConflict)
		location := strings.TrimPrefix(fill.header.Get("Location"), "/api/v1/sources")
		call("GET", location, "").want("the backfill", 200, "name", fill.at("name"))
		list("?limit=2").want("the first page", 200, "sources.0.name", "default", "sources.1.name", "shop", "sources.1.etag", some{}, "next", "shop")
		list("?limit=2&after=shop").want("the second page", 200, "sources.0.name", fill.at("name"), "next", nil)
		call("DELETE", location, "").want("deletion of the backfill", 200)
		if _, err := w.Act(w.Context(), store.Actor{Name: "ada", Surface: store.API}, taskID(w, id), store.ActionCancel); err != nil {
			w.Fatal(err)
		}
		w.advance()
		call("GET", "/shop", "").want("after the end of a slice", 200, "done", 1, "done_through", "2025-01-02T00:00:00Z")

		w.call("DELETE", "/api/v1/sources/shop", "", viewer...).want("deletion by a viewer", http.StatusForbidden)
		call("DELETE", "/shop?reason=done", "", "If-Match", tag).want("deletion with an old tag", http.StatusPreconditionFailed)
		call("DELETE", "/shop?reason=done", "").want("deletion", 200, "name", "shop")
		call("GET", "/shop", "").want("a deleted source", 404)
		var actions []string
		audit := w.call("GET", "/api/v1/audit?actor=ada", "", viewer...)
		for _, i := range strings.Fields("0 1 2 3 4 5 6 7 8 9 10 11") {
			actions = append(actions, audit.at("entries."+i+".action").(string))
		}
		if got := strings.Join(actions, " "); got != "delete cancel delete create set set set delete set create create create" {
			w.Errorf("audit: %s", got)
		}
	})
}

// taskID returns the id in a response.
func taskID(w *world, text string) (id holdfast.TaskID) {
	w.Helper()
	if err := id.UnmarshalText([]byte(text)); err != nil {
		w.Fatal(err)
	}
	return id
}
