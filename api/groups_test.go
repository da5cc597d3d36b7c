package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// group lets a task die and returns the path of its group.
func (w *world) group() (path, fingerprint string) {
	w.Helper()
	w.Dead(holdfast.NewTask{Type: "mail"})
	groups, err := w.Store.DeathGroups(w.Context(), store.DeathFilter{})
	if err != nil || len(groups) != 1 {
		w.Fatalf("%d groups: %v", len(groups), err)
	}
	return "/api/v1/dead-groups/" + groups[0].Fingerprint, groups[0].Fingerprint
}

func TestGroupsOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		path, fingerprint := w.group()
		operator, viewer := w.token("ada", store.Operator, 0), w.token("vera", store.Viewer, 0)
		get := func() response { return w.call("GET", path, "", viewer...) }
		patch := func(body string, headers ...string) response {
			return w.call("PATCH", path+"?reason=why", body, append(headers, operator...)...)
		}
		first := get()
		tag := first.header.Get("ETag")
		if first.status != 200 || first.at("group") != fingerprint || first.at("state") != "open" || tag != `"1"` || first.at("queues.0.queue") != "default" ||
			fmt.Sprint(first.at("hours.0")) != "1" || first.at("error") != "<b>no</b>" || !strings.Contains(first.text, `"history":[]`) {
			w.Fatalf("group: %d %v %s", first.status, first.header, first.text)
		}
		r := patch(`{"note":"<i>bank is down</i>"}`, "If-Match", tag)
		if r.status != 200 || r.at("note") != "<i>bank is down</i>" || r.at("state") != "open" || r.header.Get("ETag") != `"2"` {
			w.Fatalf("note: %d %v %s", r.status, r.header, r.text)
		}
		patch(`{"owner":"ben"}`, "If-Match", tag).
			want("an owner for an old version", http.StatusPreconditionFailed, "code", "changed", "hint", some{})
		patch(`{"owner":"ben"}`, "If-Match", `"7", "2"`).want("owner", 200, "owner", "ben")
		if r := patch(`{"owner":"ben"}`); r.status != 200 || r.header.Get("ETag") != `"3"` {
			w.Errorf("the same owner again: %d %v", r.status, r.header)
		}
		patch(`{"state":"resolved"}`).want("resolve", 200, "state", "resolved", "resolved_at", some{})
		if list := w.call("GET", "/api/v1/dead-groups", "", viewer...); !strings.Contains(list.text, `{"groups":[]}`) {
			w.Errorf("a resolved group is in the list: %s", list.text)
		}
		patch(`{"state":"open"}`, "If-Match", "*").want("reopen", 200, "state", "open")
		last := get()
		var history []string
		for i := range 4 {
			at := fmt.Sprintf("history.%d.", i)
			history = append(history, fmt.Sprint(last.at(at+"action"), " ", last.at(at+"actor"), " ", last.at(at+"surface"), " ", last.at(at+"reason")))
		}
		if got, want := strings.Join(history, ", "), "reopen ada api why, resolve ada api why, assign ada api why, note ada api why"; got != want || last.at("history.4") != nil {
			w.Errorf("the history is %s, want %s", got, want)
		}
		w.call("GET", "/api/v1/audit?action=note", "", viewer...).
			want("audit", 200, "entries.0.subject", store.GroupSubject(fingerprint), "entries.1", nil)
		for body, want := range map[string]int{
			`{}`: 422, `{"note":"a","owner":"b"}`: 422, `{"state":"returned"}`: 422, `{"note":null}`: 422, `{"nosuch":1}`: 400, `[`: 400, ``: 400,
			`{"owner":"` + strings.Repeat("x", store.MaxOwner+1) + `"}`: 422,
		} {
			patch(body).want(body, want, "detail", some{})
		}
		for path, want := range map[string]int{"/api/v1/dead-groups/0000000000000000": 404, "/api/v1/dead-groups/0000": 404, "/api/v1/dead-groups/x": 422} {
			for _, r := range []response{w.call("GET", path, "", viewer...), w.call("PATCH", path, `{"note":""}`, operator...)} {
				r.want(path, want)
			}
		}
		w.call("GET", "/api/v1/dead-groups/zzzz", "", viewer...).want("no digits", 422, "parameter", "fingerprint",
			"detail", `fingerprint: group "zzzz" is not a fingerprint of 16 hexadecimal digits, or its first 4 or more`)
		w.call("GET", "/api/v1/dead-groups/"+strings.ToUpper(fingerprint), "", viewer...).want("upper case", 200, "group", fingerprint)
		short := path[:len(path)-12]
		w.call("GET", short, "", viewer...).want("the first digits", 200, "group", fingerprint, "history.0.action", "reopen")
		w.call("PATCH", short, `{"note":"short"}`, operator...).want("a note by the first digits", 200, "group", fingerprint, "note", "short")
		for _, list := range []string{"tasks?q=", "dead-groups?q="} {
			if r := w.call("GET", "/api/v1/"+list+"group:"+fingerprint[:4], "", viewer...); r.status != 200 || !strings.Contains(r.text, ":1") && !strings.Contains(r.text, `"id":"1"`) {
				w.Errorf("%s by the first digits: %d %s", list, r.status, r.text)
			}
		}
		w.call("POST", "/api/v1/operations", `{"action":"retry","query":"state:dead group:`+fingerprint[:5]+` type:mail","plan":true}`, operator...).
			want("an operation on a group by its first digits", http.StatusAccepted, "total", some{}, "query", "state:dead group:"+fingerprint+" type:mail")
		for query, detail := range map[string]string{"group:0000": "there is no group that begins with 0000", "operation:99": "there is no operation 99"} {
			for _, list := range []string{"tasks", "dead-groups"} {
				w.call("GET", "/api/v1/"+list+"?q="+query, "", viewer...).want(list+" of "+query, 404, "detail", detail)
			}
			w.call("POST", "/api/v1/operations", `{"action":"retry","query":"state:dead `+query+`"}`, operator...).
				want("an operation on "+query, http.StatusNotFound, "code", "not_found", "detail", detail)
		}
		w.call("PATCH", path, `{"note":""}`, viewer...).want("a viewer changes a group", http.StatusForbidden)
	})
}

// Digits with which several groups begin select none of them. The error lists the groups.
func TestAmbiguousGroups(t *testing.T) {
	everywhere(t, func(w *world) {
		_, first := w.group()
		attempts, err := w.Store.Attempts(w.Context(), 1)
		if err != nil {
			w.Fatal(err)
		}
		name, second := "", ""
		for i := 0; !strings.HasPrefix(second, first[:4]); i++ {
			name = fmt.Sprint("mail", i)
			second = holdfast.Fingerprint(name, attempts[0].Report())
		}
		w.Dead(holdfast.NewTask{Type: name})
		digits, groups := first[:4], []string{first, second}
		slices.Sort(groups)
		for _, path := range []string{"dead-groups/" + digits, "dead-groups?q=group:" + digits, "tasks?q=group:" + digits} {
			r := w.call("GET", "/api/v1/"+path, "")
			r.want(path, http.StatusUnprocessableEntity)
			if !strings.Contains(r.text, "several groups begin with "+digits+": "+strings.Join(groups, ", ")+"; add digits") {
				w.Errorf("%s: %s", path, r.text)
			}
		}
		w.call("PATCH", "/api/v1/dead-groups/"+digits, `{"note":"x"}`).want("a note", http.StatusUnprocessableEntity)
		w.call("POST", "/api/v1/operations", `{"action":"retry","query":"state:dead group:`+digits+`"}`).want("a retry", http.StatusUnprocessableEntity)
		w.get("/api/v1/operations").want("operations", 200, "operations.0", nil)
		w.get("/api/v1/tasks?q=group:"+second[:15]).want("enough digits", 200, "tasks.0.type", name, "tasks.1", nil)
	})
}

// If many people saw the same version of a group, only one of them changes it.
func TestOneOfManyChangesOfAGroupWins(t *testing.T) {
	everywhere(t, func(w *world) {
		path, _ := w.group()
		tag := w.get(path).header.Get("ETag")
		statuses := make([]int, 20)
		var people sync.WaitGroup
		for i := range statuses {
			people.Go(func() {
				statuses[i] = w.call("PATCH", path, fmt.Sprintf(`{"note":"note %d"}`, i), "If-Match", tag).status
			})
		}
		people.Wait()
		won := 0
		for i, status := range statuses {
			switch {
			case status == 200:
				won++
				if got := w.get(path).at("note"); got != fmt.Sprintf("note %d", i) {
					w.Errorf("the note is %v, want that of request %d", got, i)
				}
			case status != http.StatusPreconditionFailed:
				w.Errorf("status %d", status)
			}
		}
		if won != 1 {
			w.Errorf("%d requests won", won)
		}
	})
}
