package api_test

import (
	"fmt"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

func TestKeysOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		operator, viewer := w.token("ada", store.Operator, 0), w.token("vera", store.Viewer, 0)
		get := func(path string) response {
			w.Helper()
			r := w.call("GET", "/api/v1"+path, "", viewer...)
			if r.status != 200 {
				w.Fatalf("%s: %d %s", path, r.status, r.text)
			}
			return r
		}
		if r := get("/keys"); r.text != "{\"keys\":[]}\n" {
			w.Errorf("no keys: %s", r.text)
		}
		for _, path := range []string{"/keys?limit=0", "/keys?limit=1001", "/keys?dead=maybe"} {
			if r := w.call("GET", "/api/v1"+path, "", viewer...); r.status != 422 || r.at("detail") == nil {
				w.Errorf("%s: %d %s", path, r.status, r.text)
			}
		}
		if r := w.call("POST", "/api/v1/tasks", `{"type":"mail","ordered":true}`, operator...); r.status != 422 {
			w.Errorf("an ordered task without a key: %d %s", r.status, r.text)
		}
		stored := w.call("POST", "/api/v1/tasks", `[{"type":"mail","key":"a","ordered":true},{"type":"mail","key":"a","ordered":true},{"type":"mail","key":"a"}]`, operator...)
		first, second, plain := stored.at("tasks.0.id"), stored.at("tasks.1.id"), stored.at("tasks.2.id")
		if stored.status != 201 {
			w.Fatalf("store: %d %s", stored.status, stored.text)
		}
		if r := get("/keys"); r.at("keys.0.key") != "a" || r.at("keys.0.active") != first || r.at("keys.0.state") != "ready" || fmt.Sprint(r.at("keys.0.waiting")) != "1" ||
			r.at("keys.0.since") == nil || r.at("keys.0.doomed") != nil || r.at("keys.1") != nil {
			w.Errorf("keys: %s", r.text)
		}
		task := func(id any) response { return get(fmt.Sprint("/tasks/", id)) }
		if task(second).at("ordered") != true || task(plain).at("ordered") != nil {
			w.Errorf("tasks: %s %s", task(second).text, task(plain).text)
		}
		why := func(id any) response { return get(fmt.Sprintf("/tasks/%v/explanation", id)) }
		if r := why(second); r.at("causes.0.code") != "ordered" || r.at("next_start") != nil ||
			r.at("causes.0.text") != fmt.Sprintf("it waits for its turn among the ordered tasks of the key a: task %v is ready; no waiting task is ahead", first) {
			w.Errorf("explanation: %s", r.text)
		}
		if r := why(first); r.at("causes.0.code") == "ordered" || r.at("next_start") == nil {
			w.Errorf("explanation of the active task: %s", r.text)
		}

		// A dead task blocks its key. With the policy "dead", the tasks behind it are doomed.
		blocks := w.dead(holdfast.NewTask{Type: "mail", Key: "b", Ordered: true})
		w.enqueue(holdfast.NewTask{Type: "mail", Key: "b", Ordered: true})
		policy := holdfast.DefaultPolicy()
		policy.AfterDeath = holdfast.AfterDeathDead
		dooms := w.deadUnder(policy, holdfast.NewTask{Type: "mail", Key: "c", Ordered: true})
		doomed := w.enqueue(holdfast.NewTask{Type: "mail", Key: "c", Ordered: true})[0]
		if r := get("/keys?dead=true"); r.at("keys.0.key") != "b" || r.at("keys.0.active") != blocks.String() || r.at("keys.0.state") != "dead" ||
			r.at("keys.1.key") != "c" || r.at("keys.1.active") != dooms.String() || r.at("keys.1.doomed") != true || r.at("keys.2") != nil {
			w.Errorf("keys with dead tasks: %s", r.text)
		}
		if r := get("/keys?limit=1"); r.at("keys.0.key") != "b" || r.at("keys.1") != nil {
			w.Errorf("the first key: %s", r.text)
		}
		if r := task(doomed); r.at("doomed") != true || r.at("ordered") != true {
			w.Errorf("a doomed task: %s", r.text)
		}
		if r := why(doomed); r.at("causes.0.code") != "doomed" {
			w.Errorf("explanation of a doomed task: %s", r.text)
		}
		if r := why(blocks); r.at("next.0") != "1 ordered task of the key b waits behind it until an operator retries, cancels or archives it" {
			w.Errorf("explanation of a dead task: %s", r.text)
		}
		if r := why(dooms); r.at("next.0") != "later ordered tasks of the key c die without an attempt until an operator retries, cancels or archives it" {
			w.Errorf("explanation of a task that dooms others: %s", r.text)
		}
	})
}
