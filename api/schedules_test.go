package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
)

func TestSchedulesOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		operator, viewer := w.token("ada", store.Operator, 0), w.token("vera", store.Viewer, 0)
		call := func(method, path, body string, headers ...string) response {
			return w.call(method, "/api/v1/schedules"+path, body, append(headers, operator...)...)
		}
		list := func(query string) response { return w.call("GET", "/api/v1/schedules"+query, "", viewer...) }
		if r := list(""); r.text != "{\"schedules\":[],\"next\":null}\n" {
			w.Errorf("no schedules: %s", r.text)
		}
		for body, want := range map[string]int{
			`{"name":"a","task":{"type":"mail"}}`: 422, `{"name":"a","cron":"0 3 * * *","every":"5m","task":{"type":"mail"}}`: 422,
			`{"name":"a","cron":"0 25 * * *","task":{"type":"mail"}}`: 422, `{"name":"a","cron":"0 3 * * *","timezone":"Mars","task":{"type":"mail"}}`: 422,
			`{"name":"a","every":"fast","task":{"type":"mail"}}`: 422, `{"name":"a","every":"1ms","task":{"type":"mail"}}`: 422, `{"name":"a","every":5,"task":{"type":"mail"}}`: 400,
			`{"name":"a b","every":"5m","task":{"type":"mail"}}`: 422, `{"every":"5m","task":{"type":"mail"}}`: 422, `{"name":"a","every":"5m"}`: 422,
			`{"name":"a","every":"5m","missed":"some","task":{"type":"mail"}}`: 422, `{"name":"a","every":"5m","overlap":"none","task":{"type":"mail"}}`: 422,
			`{"name":"a","every":"5m","end":"2001-01-01","task":{"type":"mail"}}`: 422, `{"name":"a","every":"5m","start":"soon","task":{"type":"mail"}}`: 422,
			`{"name":"a","every":"5m","task":{"type":"mail","max_attempts":0}}`: 422, `{"name":"a","every":"5m","task":{"type":"mail","unique":"x"}}`: 400,
			`{"name":"a","every":"5m","task":{"type":"http","payload":{}}}`: 422, `{"name":"a","every":"5m","plan":1}`: 400,
		} {
			call("POST", "", body).want(body, want, "detail", some{})
		}
		const nightly = `{"name":"nightly","cron":"30 2 * * *","timezone":"Europe/Berlin","start":"2030-03-30T00:00:00Z","task":{"type":"mail","payload":{"a":1},"key":"tenant-7"},"reason":"works"`
		dry := call("POST", "", nightly+`,"dry_run":true}`)
		dry.want("a dry run", 200, "state", "running", "next.1", "2030-03-31T03:00:00+02:00", "next.9", some{}, "next.10", nil)
		list("").want("after a dry run", 200, "schedules.0", nil)
		made := call("POST", "", nightly+`}`)
		made.want("create", 201, "name", "nightly", "cron", "30 2 * * *", "missed", "one", "catch_up", "1h0m0s", "overlap", "skip", "next.0", dry.at("next.0"),
			"next_run_at", some{}, "task.queue", "default", "task.payload.a", 1, "runs", 0, "actor", "ada", "surface", "api", "reason", "works")
		if made.header.Get("Location") != "/api/v1/schedules/nightly" {
			w.Errorf("location: %v", made.header)
		}
		for _, more := range []string{`}`, `,"dry_run":true}`} {
			call("POST", "", nightly+more).want("the same name", http.StatusConflict, "detail", some{})
		}
		w.call("POST", "/api/v1/schedules", nightly+`}`, viewer...).want("create by a viewer", http.StatusForbidden)
		call("GET", "/none", "").want("an unknown name", http.StatusNotFound, "detail", "there is no schedule none")
		tag := made.header.Get("ETag")
		run := call("POST", "/nightly/run", `{"reason":"now"}`, "If-Match", tag)
		run.want("run", 201, "name", "nightly", "type", "mail", "task", some{}, "at", some{})
		task := w.call("GET", "/api/v1/tasks/"+run.at("task").(string), "", viewer...)
		task.want("its task", 200, "type", "mail", "key", "tenant-7", "payload.a", 1)
		if unique, _ := task.at("unique").(string); !strings.HasPrefix(unique, "schedule/nightly/20") {
			w.Errorf("unique key %q", unique)
		}
		got := call("GET", "/nightly", "")
		got.want("after a run", 200, "runs", 1, "open.0.task", run.at("task"), "recent.0.at", run.at("at"), "next.1", "2030-03-31T03:00:00+02:00")
		if got.header.Get("ETag") != tag {
			w.Errorf("a run has changed the entity tag: %s, not %s", got.header.Get("ETag"), tag)
		}
		list("").want("list", 200, "schedules.0.etag", tag, "schedules.0.task.type", "mail", "schedules.0.task.payload", nil)

		call("PATCH", "/nightly", `{}`).want("an edit of nothing", 422)
		call("PATCH", "/nightly", `{"reason":"x","dry_run":true}`).want("an edit with a reason only", 422)
		call("PATCH", "/nightly", `{"cron":"x"}`).want("a bad edit", 422)
		call("PATCH", "/none", `{"note":"x"}`).want("an edit of none", 404)
		edit := `{"every":"36h","start":null,"note":"slow","jitter":"1m","task":{"key":null,"tags":["x"]}`
		call("PATCH", "/nightly", edit+`,"dry_run":true}`).want("a dry run of an edit", 200, "every", "36h0m0s", "cron", nil, "timezone", nil, "next.9", some{})
		call("GET", "/nightly", "").want("after a dry run of an edit", 200, "cron", "30 2 * * *", "note", nil)
		edited := call("PATCH", "/nightly", edit+`}`, "If-Match", tag)
		edited.want("edit", 200, "every", "36h0m0s", "cron", nil, "note", "slow", "jitter", "1m0s", "task.key", nil, "task.tags.0", "x", "task.payload.a", 1, "runs", 1)
		for _, path := range []string{"/nightly/pause", "/nightly/run"} {
			call("POST", path, "", "If-Match", tag).want(path+" with an old tag", http.StatusPreconditionFailed, "code", "changed")
		}
		call("PATCH", "/nightly", `{"note":null}`, "If-Match", tag).want("edit with an old tag", http.StatusPreconditionFailed)
		call("PATCH", "/nightly", `{"note":null,"jitter":null,"missed":"all","overlap":"3","catch_up":"0s"}`).
			want("a second edit", 200, "note", nil, "jitter", nil, "missed", "all", "overlap", "3", "catch_up", "0s", "task.tags.0", "x")

		call("POST", "/nightly/pause", `{"reason":"holidays"}`).want("pause", 200, "state", "paused", "next_run_at", nil)
		call("POST", "/nightly/pause", "").want("a second pause", 200, "state", "paused")
		call("GET", "/nightly", "").want("a paused schedule", 200, "next_run_at", nil, "next.0", some{})
		call("POST", "/nightly/resume", "").want("resume", 200, "state", "running", "next_run_at", some{})

		for _, body := range []string{`{}`, `{"from":"soon","to":"2030-01-01"}`, `{"from":"2030-01-02","to":"2030-01-01"}`, `{"from":"2030-01-01T00:00:00Z","to":"2030-01-01T00:00:01Z"}`,
			`{"from":"2030-01-01","to":"2030-02-01","in_flight":0}`} {
			call("POST", "/nightly/backfill", body).want(body, 422, "detail", some{})
		}
		call("POST", "/none/backfill", `{"from":"2030-01-01","to":"2030-02-01"}`).want("a backfill of none", 404)
		fill := call("POST", "/nightly/backfill", `{"from":"2030-01-01T00:00:00Z","to":"2030-01-31T00:00:00Z","in_flight":2,"reason":"again"}`)
		fill.want("backfill", 201, "name", "nightly.backfill-20300101T000000Z-20300131T000000Z", "times", 20, "backfill_of", "nightly", "overlap", "2")
		call("POST", "/nightly/backfill", `{"from":"2030-01-01T00:00:00Z","to":"2030-01-31T00:00:00Z"}`).want("the same backfill", http.StatusConflict)
		location := strings.TrimPrefix(fill.header.Get("Location"), "/api/v1/schedules")
		call("PATCH", location, `{"note":"x"}`).want("an edit of a backfill", 422)
		list("?limit=1").want("the first page", 200, "schedules.0.name", "nightly", "schedules.1", nil, "next", "nightly")
		list("?limit=1&after=nightly").want("the second page", 200, "schedules.0.name", fill.at("name"), "next", nil)
		call("DELETE", location, "").want("deletion of the backfill", 200, "state", "deleted")

		w.call("DELETE", "/api/v1/schedules/nightly", "", viewer...).want("deletion by a viewer", http.StatusForbidden)
		call("DELETE", "/nightly?reason=done", "", "If-Match", tag).want("deletion with an old tag", http.StatusPreconditionFailed)
		call("DELETE", "/nightly?reason=done", "").want("deletion", 200, "name", "nightly", "state", "deleted")
		call("GET", "/nightly", "").want("a deleted schedule", http.StatusNotFound)
		list("").want("after all", 200, "schedules.0", nil)
		audit := w.call("GET", "/api/v1/audit?actor=ada", "", viewer...)
		var actions []string
		for _, i := range strings.Fields("0 1 2 3 4 5 6 7 8") {
			actions = append(actions, audit.at("entries."+i+".action").(string))
		}
		if got := strings.Join(actions, " "); got != "delete delete create resume pause edit edit run create" {
			w.Errorf("audit: %s", got)
		}
		audit.want("audit", 200, "entries.0.subject", "schedule nightly", "entries.0.reason", "done", "entries.2.reason", "again", "entries.4.reason", "holidays",
			"entries.6.before.spec.cron", "30 2 * * *", "entries.6.after.spec.every", "36h0m0s", "entries.7.reason", "now", "entries.8.reason", "works")
	})
}

// The first time of an interval is one interval after its start, and both are the same in every answer, whatever the
// second in which the store creates the schedule.
func TestTheStartOfAnIntervalIsStored(t *testing.T) {
	everywhere(t, func(w *world) {
		made := w.call("POST", "/api/v1/schedules", `{"name":"ping","every":"90m","run_at_start":true,"task":{"type":"mail"}}`)
		made.want("create", 201, "run_at_start", true, "waiting", some{})
		text, _ := made.at("start").(string)
		start, err := time.Parse(time.RFC3339, text)
		if err != nil {
			w.Fatalf("start: %v in %s", err, made.text)
		}
		for i, member := range []string{"next.0", "next.1", "next.2"} {
			if want := start.Add(time.Duration(i+1) * 90 * time.Minute).Format(time.RFC3339); made.at(member) != want {
				w.Errorf("%s is %v, not %s", member, made.at(member), want)
			}
		}
		w.call("GET", "/api/v1/schedules/ping", "").want("get", 200, "start", text, "next.0", made.at("next.0"), "next_run_at", made.at("next.0"))
		w.call("PATCH", "/api/v1/schedules/ping", `{"start":null,"note":"x"}`).
			want("an edit of other values", 200, "start", text, "next.0", made.at("next.0"))
	})
}
