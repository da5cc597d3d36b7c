package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

func TestShardJobsOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		operator, viewer := w.token("ada", store.Operator, 0), w.token("vera", store.Viewer, 0)
		call := func(method, path, body string, headers ...string) response {
			return w.call(method, "/api/v1/shard-jobs"+path, body, append(headers, operator...)...)
		}
		list := func(query string) response { return w.call("GET", "/api/v1/shard-jobs"+query, "", viewer...) }
		if r := list(""); r.text != "{\"shard_jobs\":[],\"next\":null}\n" {
			w.Errorf("no shard jobs: %s", r.text)
		}
		for body, want := range map[string]int{
			`{}`: 422, `{"type":"scan"}`: 422, `{"type":"http","zones":{"0":"a"}}`: 422, `{"zones":{"0":"a"}}`: 422, `{"type":"scan","zones":{}}`: 422, `{"type":"scan","zones":{"0":"No Zone"}}`: 422,
			`{"type":"scan","zones":{"0 1":"a"}}`: 422, `{"type":"scan","zones":{"0":"a"},"every":"1ms"}`: 422, `{"type":"scan","zones":{"0":"a"},"every":"soon"}`: 422,
			`{"type":"scan","zones":{"0":"a"},"max_attempts":0}`: 422, `{"type":"scan","zones":{"0":"a"},"map":1}`: 400, `{"type":"scan","zones":{"0":7}}`: 400,
			`{"type":"scan","zones":{"0":"a","0":"b"}}`: 400, `{"type":"scan","zones":["a"]}`: 400, `{"reason":"none"}`: 422,
		} {
			call("PUT", "/a", body).want(body, want, "detail", some{})
		}
		const body = `{"type":"scan","every":"90s","max_attempts":3,"note":"orders","zones":{"0":"b","1":"a","2":"a","10":"b"},"reason":"new"}`
		call("PUT", "/a%20b", body).want("a bad name", 422)
		call("PUT", "/scan", body, "If-Match", `"1"`).want("a change of none", http.StatusPreconditionFailed)
		w.call("PUT", "/api/v1/shard-jobs/scan", body, viewer...).want("create by a viewer", http.StatusForbidden)
		made := call("PUT", "/scan", body)
		made.want("create", 200, "name", "scan", "type", "scan", "every", "1m30s", "max_attempts", 3, "note", "orders", "map_version", 1, "shards", 4, "moved.0", nil,
			"zones.0.zone", "a", "zones.0.shards", 2, "zones.1.shards", 2, "zones.2", nil, "before", nil, "actor", "ada", "surface", "api", "reason", "new")
		tag := made.header.Get("ETag")
		got := call("GET", "/scan", "")
		got.want("get", 200, "zones.0.offset", 0, "zones.0.open", false, "zones.0.task", nil, "zones.0.state", nil)
		if got.header.Get("ETag") != tag {
			w.Errorf("entity tag %s, not %s", got.header.Get("ETag"), tag)
		}
		list("").want("list", 200, "shard_jobs.0.name", "scan", "shard_jobs.0.etag", tag, "shard_jobs.0.zones.0.offset", nil, "next", nil)
		call("GET", "/none", "").want("an unknown job", 404, "detail", "there is no shard job none")
		call("GET", "/none/map", "").want("the map of an unknown job", 404)

		// A pass of the zone b saves an offset. The map and the tags stay.
		mapped := call("GET", "/scan/map", "")
		mapTag := mapped.header.Get("ETag")
		saveOffset(w, "scan", "b", 7)
		got = call("GET", "/scan", "")
		got.want("after a save", 200, "zones.1.offset", 7, "zones.1.state", "running", "zones.1.open", true, "zones.1.task", some{}, "zones.0.offset", 0, "zones.0.state", "ready")
		mapped = call("GET", "/scan/map", "")
		mapped.want("the map", 200, "job", "scan", "map_version", 1, "shards.0.shard", "0", "shards.0.zone", "b", "shards.0.offset", 7, "shards.1.offset", 0,
			"shards.3.shard", "10", "shards.4", nil)
		if got.header.Get("ETag") != tag || mapped.header.Get("ETag") != mapTag {
			w.Errorf("a save has changed an entity tag: %v %v", got.header, mapped.header)
		}

		call("POST", "/scan/move", `{"shard":"9","to":"b"}`).want("a move of no shard", 404)
		const noZone = `the zone "<img>" must be at most 100 lower-case letters, digits, _ or -, because it is the name of its queue`
		call("POST", "/scan/move", `{"shard":"1","to":"<img>"}`).want("a move to no zone", 422, "detail", noZone)
		call("PUT", "/scan", `{"type":"scan","zones":{"0":"<img>"}}`).want("a job with no zone", 422, "detail", noZone)
		call("POST", "/scan/move", `{"shard":"1"}`).want("a move without a zone", 422)
		call("POST", "/none/move", `{"shard":"1","to":"b"}`).want("a move in no job", 404)
		call("POST", "/scan/move", `{"shard":"1","to":"b"}`, "If-Match", tag).want("a move with another tag", http.StatusPreconditionFailed)
		moved := call("POST", "/scan/move", `{"shard":"0","to":"a","reason":"balance"}`, "If-Match", mapTag)
		moved.want("move", 200, "map_version", 2, "moved.0.shard", "0", "moved.0.from", "b", "moved.0.to", "a", "moved.0.offset", 7, "moved.1", nil)
		call("POST", "/scan/move", `{"shard":"0","to":"a"}`).want("a move to the same zone", 200, "map_version", 2, "moved.0", nil)
		call("POST", "/scan/drain", `{"zone":"b"}`, "If-Match", mapTag).want("a drain with an old tag", http.StatusPreconditionFailed, "code", "changed")
		call("POST", "/scan/drain", `{"zone":"c"}`).want("a drain of no zone", 422)
		call("POST", "/scan/drain", `{"zone":"b"}`).want("drain", 200, "map_version", 3, "moved.0.shard", "10", "moved.0.offset", 7, "moved.1", nil)
		call("POST", "/scan/drain", `{"zone":"a"}`).want("a drain of the last zone", 422)
		call("GET", "/scan", "").want("after the drain", 200, "zones.0.zone", "a", "zones.0.shards", 4, "zones.1.zone", "b", "zones.1.shards", 0, "zones.1.open", true)

		less := call("PUT", "/scan", `{"zones":{"1":"a","2":"c","10":"c"}}`)
		less.want("a map that lacks a shard with an offset", http.StatusConflict, "detail", "the map lacks the shard 0, which has the offset 7", "hint", "drop_offsets")
		call("PUT", "/scan", `{"zones":{"1":"a","2":"c","10":"c"},"drop_offsets":true,"reason":"fewer"}`).
			want("with drop_offsets", 200, "map_version", 4, "moved.0.shard", "0", "moved.0.to", nil, "moved.1.to", "c", "moved.2.shard", "10", "moved.2.offset", 7)
		call("PUT", "/scan", `{"note":"x"}`, "If-Match", tag).want("a change with an old tag", http.StatusPreconditionFailed)
		call("PUT", "/scan", `{"note":null,"every":null,"max_attempts":null}`).
			want("change", 200, "note", nil, "every", "0s", "max_attempts", nil, "type", "scan", "map_version", 4, "before.note", "orders", "moved.0", nil)
		call("PUT", "/scan", `{"type":"scan-2","zones":{"0":"a","1":"a","2":"c","10":"c"}}`).
			want("a change of both", 200, "type", "scan-2", "map_version", 5, "moved.0.shard", "0", "moved.0.from", nil, "moved.0.offset", 0, "moved.1", nil)
		call("PUT", "/zweit", `{"type":"scan","zones":{"0":"a"}}`).want("another job", 200)
		list("?limit=1").want("the first page", 200, "shard_jobs.1", nil, "next", "scan")
		list("?limit=1&after=scan").want("the second page", 200, "shard_jobs.0.name", "zweit", "next", nil)

		call("DELETE", "/scan?reason=done", "", "If-Match", tag).want("deletion with an old tag", http.StatusPreconditionFailed)
		call("DELETE", "/scan?reason=done", "").want("deletion", 200, "name", "scan")
		call("GET", "/scan", "").want("a deleted job", 404)
		audit := w.call("GET", "/api/v1/audit?actor=ada", "", viewer...)
		var actions []string
		for _, i := range strings.Fields("0 1 2 3 4 5 6 7") {
			action, _ := audit.at("entries." + i + ".action").(string)
			actions = append(actions, action)
		}
		if got := strings.Join(actions, " "); got != "delete create set set set set set create" {
			w.Errorf("audit: %s", got)
		}
		audit.want("audit", 200, "entries.0.subject", "shard job scan", "entries.0.reason", "done", "entries.4.reason", "fewer", "entries.6.reason", "balance",
			"entries.6.before.spec.zones.0", "b", "entries.6.after.spec.zones.0", "a", "entries.7.reason", "new")
	})
}

// A shard moves while a pass saves offsets as often as it can.
func TestAShardMovesWhileAPassSaves(t *testing.T) {
	everywhere(t, func(w *world) {
		w.call("PUT", "/api/v1/shard-jobs/scan", `{"type":"scan","zones":{"0":"a","1":"b"}}`).want("create", 200)
		pass := saveOffset(w, "scan", "b", 1)
		saved, moved := make(chan int, 1), make(chan struct{})
		go func() {
			last := 1
			for pass.Save(w.Context(), int64(last+1)) == nil { // until the map changes
				last++
				select {
				case <-moved:
					saved <- last
					return
				default:
				}
			}
			saved <- last
		}()
		w.call("POST", "/api/v1/shard-jobs/scan/move", `{"shard":"1","to":"c"}`).want("move", 200, "moved.0.to", "c", "map_version", 2)
		close(moved)
		last := <-saved
		w.call("GET", "/api/v1/shard-jobs/scan/map", "").want("the map", 200, "shards.1.zone", "c", "shards.1.offset", last)
	})
}

// saveOffset stores the next passes of a shard job as a janitor does, and lets the pass of a zone save an offset.
func saveOffset(w *world, job, zone string, offset int64) *plan.Pass {
	w.Helper()
	_, _, err := plan.New(w.Store).Advance(w.Context())
	must := func(err error) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
	}
	must(err)
	j, err := w.ShardJob(w.Context(), job)
	must(err)
	task, err := w.Store.Task(w.Context(), j.Progress.Passes[zone].Task)
	must(err)
	worker, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "worker", Concurrency: 1}, time.Hour)
	must(err)
	claims, err := w.Store.Claim(w.Context(), worker, store.AnyOf(task.Type), []message.Ticket{{Task: task.ID, Attempt: 1}}, store.IntoExecutors)
	must(err)
	pass, err := plan.BeginPass(w.Context(), w.Store, plan.PassPayload{Job: job, Zone: zone}, *claims[0].Task)
	must(err)
	must(pass.Save(w.Context(), offset))
	return pass
}
