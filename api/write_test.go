package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

func TestRetryAndCancel(t *testing.T) {
	everywhere(t, func(w *world) {
		operator := w.token("ada", store.Operator, 0)
		id := w.Dead(holdfast.NewTask{Type: "mail"})
		path := "/api/v1/tasks/" + id.String()
		tag := w.call("GET", path, "", operator...).header.Get("ETag")
		if !strings.HasPrefix(tag, `"1-dead-`) {
			w.Fatalf("ETag of a dead task: %s", tag)
		}
		with := func(value string) []string { return append([]string{"If-Match", value}, operator...) }
		w.call("POST", path+"/retry", "", with(`"1-ready"`)...).
			want("retry of another version", http.StatusPreconditionFailed, "code", "changed", "hint", some{})
		r := w.call("POST", path+"/retry?reason=the+target+is+back", "", with(`"7-dead", `+tag)...)
		if r.status != 200 || r.at("id") != id.String() || r.at("state") != "ready" || r.header.Get("ETag") == tag {
			w.Fatalf("retry: %d %v %s", r.status, r.header, r.text)
		}
		w.call("POST", path+"/retry", "", operator...).
			want("retry of a ready task", http.StatusConflict, "code", "conflict")
		w.call("POST", path+"/cancel", "", with(tag)...).want("cancel of an old version", http.StatusPreconditionFailed)
		w.call("POST", path+"/cancel", "", with("*")...).want("cancel", 200, "state", "cancelled")
		w.call("POST", "/api/v1/tasks/999/cancel", "", with("*")...).want("cancel of no task", 404)
		entries, err := w.Store.AuditLog(w.Context(), store.AuditFilter{Task: id})
		if err != nil || len(entries) != 2 || entries[0].Action != store.ActionCancel ||
			entries[1].Actor != (store.Actor{Name: "ada", Surface: store.API, Reason: "the target is back"}) {
			w.Errorf("audit log: %+v, %v", entries, err)
		}
	})
}

// If many callers saw the same version of a task, only one of them changes it.
func TestOneOfManyWritersWins(t *testing.T) {
	everywhere(t, func(w *world) {
		id := w.Dead(holdfast.NewTask{Type: "mail"})
		statuses, tag := make([]int, 20), w.get("/api/v1/tasks/"+id.String()).header.Get("ETag")
		var writers sync.WaitGroup
		for i := range statuses {
			writers.Go(func() {
				path := "/api/v1/tasks/" + id.String()
				switch i % 3 {
				case 0:
					statuses[i] = w.call("POST", path+"/retry", "", "If-Match", tag).status
				case 1:
					statuses[i] = w.call("POST", path+"/cancel", "", "If-Match", tag).status
				case 2:
					statuses[i] = w.call("PATCH", path, `[{"op":"replace","path":"/queue","value":"other"}]`, "If-Match", tag).status
				}
			})
		}
		writers.Wait()
		won := 0
		for i, status := range statuses {
			switch status {
			case http.StatusOK:
				won++
			case http.StatusPreconditionFailed:
			default:
				w.Errorf("writer %d: %d", i, status)
			}
		}
		if won != 1 {
			w.Errorf("%d writers changed the same version", won)
		}
	})
}

func TestIdempotencyKey(t *testing.T) {
	everywhere(t, func(w *world) {
		ada, ben := w.token("ada", store.Operator, 0), w.token("ben", store.Operator, 0)
		send := func(body, key string, token []string) response {
			return w.call("POST", "/api/v1/tasks", body, append([]string{"Idempotency-Key", key}, token...)...)
		}
		const one, many = `{"type":"mail","payload":{"n":1}}`, `[{"type":"mail"},{"type":"report","unique":"u"}]`
		first := send(one, "k1", ada)
		if first.status != http.StatusCreated || first.header.Get("Idempotent-Replayed") != "" {
			w.Fatalf("first: %d %s", first.status, first.text)
		}
		again := send(one, "k1", ada)
		if again.status != http.StatusCreated || again.text != first.text || again.header.Get("Idempotent-Replayed") != "true" {
			w.Errorf("again: %d %v %s; first %s", again.status, again.header, again.text, first.text)
		}
		send(many, "k1", ada).want("another body", 422, "code", "key_reused")
		if r := send(one, "k1", ben); r.status != http.StatusCreated || r.at("id") == first.at("id") {
			w.Errorf("another token: %d %s", r.status, r.text)
		}
		list := send(many, "k2", ada)
		if again := send(many, "k2", ada); again.status != list.status || again.text != list.text || list.at("tasks.1.id") == nil {
			w.Errorf("many: %s, again %s", list.text, again.text)
		}
		// A request that fails stores neither tasks nor an answer.
		send(`[{"type":"mail"},{"type":""}]`, "k3", ada).want("an invalid task", 422)
		if r := send(one, "k3", ada); r.status != http.StatusCreated || r.header.Get("Idempotent-Replayed") != "" {
			w.Errorf("after an invalid task: %d %s", r.status, r.text)
		}
		send(one, strings.Repeat("k", 256), ada).want("a long key", 422)
		if got := w.count(); got != 5 {
			w.Errorf("%d tasks are stored, want 5", got)
		}
	})
}

func (w *world) count() int64 {
	w.Helper()
	by, err := w.Store.Count(w.Context(), store.Filter{})
	if err != nil {
		w.Fatal(err)
	}
	var all int64
	for _, n := range by.By {
		all += n
	}
	return all
}

// Requests with the same key at the same time store the tasks once and get the same answer.
func TestConcurrentRequestsWithOneKey(t *testing.T) {
	everywhere(t, func(w *world) {
		texts := make([]string, 20)
		var senders sync.WaitGroup
		for i := range texts {
			senders.Go(func() {
				r := w.call("POST", "/api/v1/tasks", `[{"type":"mail"},{"type":"mail"}]`, "Idempotency-Key", "k")
				texts[i] = fmt.Sprint(r.status, r.text)
			})
		}
		senders.Wait()
		for i, text := range texts {
			if text != texts[0] || !strings.HasPrefix(text, "201") {
				w.Errorf("request %d: %s; request 0: %s", i, text, texts[0])
			}
		}
		if got := w.count(); got != 2 {
			w.Errorf("%d tasks are stored, want 2", got)
		}
	})
}

// If the process fails after it has written the tasks and before it writes the answer, neither is stored. The repeated
// request stores both.
func TestACrashStoresNeitherTasksNorAnswer(t *testing.T) {
	run := func(t *testing.T, settings []string) {
		t.Parallel()
		failing := new(failingOnce)
		w := newWorld(t, settings, func(o *api.Options) {
			failing.Store = o.Backend.Store
			o.Backend.Store = failing
		})
		send := func() response {
			return w.call("POST", "/api/v1/tasks", `{"type":"mail"}`, "Idempotency-Key", "k")
		}
		failing.fail = true
		if r := send(); r.status != http.StatusServiceUnavailable {
			t.Errorf("with the failure: %d %s", r.status, r.text)
		}
		if got := w.count(); got != 0 {
			t.Errorf("%d tasks are stored without an answer", got)
		}
		failing.fail = false
		first, again := send(), send()
		if first.status != http.StatusCreated || again.text != first.text || w.count() != 1 {
			t.Errorf("after the failure: %s, %s, %d tasks", first.text, again.text, w.count())
		}
	}
	t.Parallel()
	t.Run("servers", func(t *testing.T) { run(t, backendtest.ServerSettings(t)) })
	t.Run("embedded", func(t *testing.T) { run(t, backendtest.FileSettings(t)) })
}

// failingOnce ends a request after it has written its tasks and before it writes its answer.
type failingOnce struct {
	desk.Store
	fail bool
}

func (f *failingOnce) Once(ctx context.Context, r store.Request, do func(context.Context, store.Tx) (store.Answer, error)) (store.Answer, error) {
	return f.Store.Once(ctx, r, func(ctx context.Context, tx store.Tx) (store.Answer, error) {
		answer, err := do(ctx, tx)
		if err == nil && f.fail {
			err = errors.Join(holdfast.ErrUnavailable, errors.New("the process fails here"))
		}
		return answer, err
	})
}
