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
			w.call("GET", "/api/v1"+path, "", viewer...).want(path, 422, "detail", some{})
		}
		w.call("POST", "/api/v1/tasks", `{"type":"mail","ordered":true}`, operator...).
			want("an ordered task without a key", 422)
		stored := w.call("POST", "/api/v1/tasks", `[{"type":"mail","key":"a","ordered":true},{"type":"mail","key":"a","ordered":true},{"type":"mail","key":"a"}]`, operator...)
		first, second, plain := stored.at("tasks.0.id"), stored.at("tasks.1.id"), stored.at("tasks.2.id")
		if stored.status != 201 {
			w.Fatalf("store: %d %s", stored.status, stored.text)
		}
		get("/keys").want("keys", 200, "keys.0.key", "a", "keys.0.active", first, "keys.0.state", "ready",
			"keys.0.waiting", 1, "keys.0.since", some{}, "keys.0.doomed", nil, "keys.1", nil)
		task := func(id any) response { return get(fmt.Sprint("/tasks/", id)) }
		if task(second).at("ordered") != true || task(plain).at("ordered") != nil {
			w.Errorf("tasks: %s %s", task(second).text, task(plain).text)
		}
		why := func(id any) response { return get(fmt.Sprintf("/tasks/%v/explanation", id)) }
		why(second).want("explanation", 200, "causes.0.code", "ordered", "next_start", nil, "causes.0.text",
			fmt.Sprintf("it waits for its turn among the ordered tasks of the key a: task %v is ready; no waiting task is ahead", first))
		if r := why(first); r.at("causes.0.code") == "ordered" || r.at("next_start") == nil {
			w.Errorf("explanation of the active task: %s", r.text)
		}

		// A dead task blocks its key. With the policy "dead", the tasks behind it are doomed.
		blocks := w.Dead(holdfast.NewTask{Type: "mail", Key: "b", Ordered: true})
		w.Enqueue(holdfast.NewTask{Type: "mail", Key: "b", Ordered: true})
		policy := holdfast.DefaultPolicy()
		policy.AfterDeath = holdfast.AfterDeathDead
		dooms := w.DeadUnder(policy, holdfast.NewTask{Type: "mail", Key: "c", Ordered: true})
		doomed := w.Enqueue(holdfast.NewTask{Type: "mail", Key: "c", Ordered: true})[0]
		get("/keys?dead=true").want("keys with dead tasks", 200,
			"keys.0.key", "b", "keys.0.active", blocks.String(), "keys.0.state", "dead",
			"keys.1.key", "c", "keys.1.active", dooms.String(), "keys.1.doomed", true, "keys.2", nil)
		get("/keys?limit=1").want("the first key", 200, "keys.0.key", "b", "keys.1", nil)
		task(doomed).want("a doomed task", 200, "doomed", true, "ordered", true)
		why(doomed).want("explanation of a doomed task", 200, "causes.0.code", "doomed")
		why(blocks).
			want("explanation of a dead task", 200, "next.0",
				"1 ordered task of the key b waits behind it until an operator retries, cancels or archives it")
		why(dooms).
			want("explanation of a task that dooms others", 200, "next.0",
				"later ordered tasks of the key c die without an attempt until an operator retries, cancels or archives it")
	})
}
