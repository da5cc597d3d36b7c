package console_test

import (
	"fmt"
	"html"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// planOf returns the path of the plan of an operation.
func planOf(action, query string, more ...string) string {
	q := url.Values{"action": {action}, "query": {query}}
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return "/operations/new?" + q.Encode()
}

// newest returns the newest operation, and fails the test if there are not n of them.
func (w *editWorld) newest(n int) store.Operation {
	w.Helper()
	list, err := w.Store.ListOperations(w.Context(), store.OperationFilter{Limit: 10})
	if err != nil || len(list) != n {
		w.Fatalf("operations: %d, %v; want %d", len(list), err, n)
	}
	if n == 0 {
		return store.Operation{}
	}
	return list[0]
}

func TestOperationPlanAndStart(t *testing.T) {
	w := newEditWorld(t)
	for i := range 4 {
		w.deadTask(holdfast.NewTask{Type: "mail", Payload: fmt.Appendf(nil, `%d`, i)})
	}
	query := `state:dead error:"<b>no</b>" type:mail`
	page := w.show(planOf("retry", query, "ramp", "25, 100", "stop_above", "20 %", "rate", "7", "limit", "3", "reason", "it's back")).want(t, "the plan", 200,
		query, "retry 3 tasks", "at most 7 tasks a second", "end at 25, 100 %", "more than 20.0 %", `/ops/tasks/4"`, `/ops/tasks/2"`, `!/ops/tasks/1"`,
		`holdfast operation start retry --query 'state:dead error:"<b>no</b>" type:mail' --ramp 25,100 --stop-above 20 --rate 7 --limit 3 --reason 'it'\''s back'`)
	w.newest(0)
	form := page.form(t)
	if got := fmt.Sprint(form["ramp"], form["stop_above"], form["rate"], form["limit"], form["reason"], form["action"]); got != "[25, 100] [20 %] [7] [3] [it's back] [retry]" {
		t.Errorf("the form has %s", got)
	}
	form.Set("limit", "")
	w.send("POST", "/do/startOperation", "", form).want(t, "another limit than planned", 400, "the limit has changed since the plan")
	form.Set("limit", "3")
	w.taken(w.send("POST", "/do/startOperation", "", form)).want(t, "the operations", 200, "Operation 1 has started", "/ops/operations/1")
	o := w.newest(1)
	if o.Query != query || o.Rate != 7 || fmt.Sprint(o.Ramp) != "[25 100]" || o.StopAbove != 0.2 || o.Limit != 3 || o.Total != 3 || o.Surface != store.Console || o.Reason != "it's back" {
		t.Errorf("the operation is %+v", o)
	}
}

func TestOperationPlanWithDefaults(t *testing.T) {
	w := newEditWorld(t)
	for range 3 {
		w.deadTask(holdfast.NewTask{Type: "mail"})
	}
	page := w.show(planOf("retry", "state:dead")).want(t, "the plan", 200, "retry 3 tasks", "1,000 tasks a second", "50.0 %",
		"holdfast operation start retry --query state:dead</pre>")
	w.taken(w.send("POST", "/do/startOperation", "", page.form(t)))
	if o := w.newest(1); o.StopAbove != 0.5 || len(o.Ramp) < 2 {
		t.Errorf("the operation is %+v", o)
	}
	w.show(planOf("retry", "state:dead", "stop_above", "0.5")).want(t, "a share that the command line lacks", 200, "0.5 % of the first", "takes whole percents only")
	w.show(planOf("retry", "state:dead", "stop_above", "29%")).want(t, "a share", 200, "--stop-above 29<")
	w.show(planOf("archive", "state:dead")).want(t, "an archive", 200, "archive 3 tasks", "!Ends of the steps")
}

func TestOperationPlanOfAPurge(t *testing.T) {
	w := newEditWorld(t)
	w.deadTask(holdfast.NewTask{Type: "mail"})
	w.deadTask(holdfast.NewTask{Type: "mail"})
	form := w.show(planOf("purge", "state:dead")).want(t, "the plan", 200, "type 2", "cannot be restored").form(t)
	for _, typed := range []string{"", "1", "two"} {
		form.Set("typed", typed)
		w.send("POST", "/do/startOperation", "", form).want(t, "typed "+typed, 400, "type how many the plan shows: 2")
	}
	w.newest(0)
	form.Set("typed", "2")
	w.taken(w.send("POST", "/do/startOperation", "", form))
	if o := w.newest(1); o.Action != store.ActionPurge || o.Total != 2 {
		t.Errorf("the operation is %+v", o)
	}
	w.send("POST", "/do/startOperation", "", url.Values{"action": {"purge"}, "query": {"state:dead"}}).want(t, "a form without a count", 400)
}

func TestOperationPlanThatCannotStart(t *testing.T) {
	w := newEditWorld(t)
	for path, text := range map[string]string{
		planOf("retry", "type:mail"):                   "must name the states",
		planOf("retry", "state:done"):                  "cannot retry tasks that are done",
		planOf("retry", "state:dead stat:<b>no</b>"):   "<mark>stat:<b>no</b></mark>",
		planOf("retry", "state:dead"):                  "No task matches now",
		planOf("retry", "state:dead", "ramp", "all"):   `ramp: "all" is not a number`,
		planOf("retry", "state:dead", "ramp", "50,20"): "a ramp has ascending percentages",
		planOf("edit", "state:dead"):                   "is not an action",
		"/operations/new":                              "is not an action",
	} {
		page := w.send("GET", path, "", nil).want(t, path, 200, text, "!holdfast operation start")
		if strings.Contains(page.text, "<button>") {
			t.Errorf("%s: the operation can be started:\n%s", path, page.text)
		}
	}
}

var editBulk = regexp.MustCompile(`<button name="action" value="(\w+)">`)

// bulk returns the actions that the page of the tasks offers for all of a search. It shows the plan of each.
func (w *editWorld) bulk(q, secret string) string {
	w.Helper()
	page := w.send("GET", "/tasks?"+url.Values{"q": {q}}.Encode(), secret, nil).want(w.T, q, 200)
	var found []string
	for _, button := range editBulk.FindAllStringSubmatch(page.text, -1) {
		page.want(w.T, q, 200, `<form id="bulk" class="bulk" action="/ops/operations/new">`, `name="query" value="`+q+`"`, `form="bulk" name="task" value="1"`)
		w.send("GET", planOf(button[1], q), secret, nil).want(w.T, button[1], 200, q, "holdfast operation start "+button[1])
		found = append(found, button[1])
	}
	if found == nil {
		page.want(w.T, q, 200, "!id=\"bulk\"", "!type=\"checkbox\"")
	}
	return strings.Join(found, " ")
}

func TestOperationBarFitsTheSearchAndTheRole(t *testing.T) {
	w := newEditWorld(t)
	id := w.deadTask(holdfast.NewTask{Type: "mail", Tags: []string{"a+b&c"}})
	operator, viewer := w.tokenOf("ann", store.Operator), w.tokenOf("eve", store.Viewer)
	for q, want := range map[string]string{
		"state:dead tag:a+b&c": "retry archive cancel purge", "state:dead,ready": "cancel", "state:dead,archived": "purge", "state:done": "", "type:mail": "",
	} {
		if got := w.bulk(q, operator); got != want {
			t.Errorf("%s offers %q; want %q", q, got, want)
		}
		if got := w.bulk(q, viewer); got != "" {
			t.Errorf("%s offers a viewer %q", q, got)
		}
	}
	w.send("GET", "/tasks?q=state:dead", operator, nil).want(t, "the count", 200, "all 1 that match, except the rows that I uncheck")
	w.send("GET", planOf("retry", "state:dead"), viewer, nil).want(t, "the plan for a viewer", 403)

	attempts, err := w.Store.Attempts(w.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	group := "/dead/" + holdfast.Fingerprint("mail", attempts[len(attempts)-1].Report())
	w.send("GET", group, viewer, nil).want(t, "the group for a viewer", 200, "!Retry all", "!Archive all")
	page := w.send("GET", group, operator, nil).want(t, "the group", 200, ">Retry all<", ">Archive all<")
	w.send("GET", group[:len(group)-12], viewer, nil).want(t, "the group by its first digits", 200, group[len("/dead/"):])
	for _, q := range []string{"/tasks?q=group:", "/dead?q=group:", planOf("retry", "state:dead group:")} {
		w.send("GET", q+group[len("/dead/"):len(group)-12], operator, nil).want(t, q, 200, "mail")
	}
	for _, link := range regexp.MustCompile(`href="/ops(/operations/new\?[^"]*)"`).FindAllStringSubmatch(page.text, -1) {
		w.send("GET", html.UnescapeString(link[1]), operator, nil).want(t, link[1], 200, "1 task", "state:dead group:")
	}
}

func TestOperationOnASelection(t *testing.T) {
	w := newEditWorld(t)
	ids := make([]string, 6)
	for i := range ids {
		ids[i] = w.deadTask(holdfast.NewTask{Type: "mail"}).String()
	}
	selection := func(query, name string, ids ...string) string {
		return planOf("archive", query) + "&" + url.Values{name: ids}.Encode()
	}
	w.show(selection("state:dead", "task", ids[1], ids[4])).want(t, "some", 200, "archive 2 tasks", "!left out",
		`<code>state:dead id:`+ids[1]+","+ids[4]+`</code>`, `value="state:dead id:`+ids[1]+","+ids[4]+`"`)
	w.show(selection("id:<=6 state:dead -id:"+ids[0], "task", ids[1])).want(t, "some of a range", 200, "archive 1 task", `<code>state:dead id:`+ids[1]+`</code>`)
	w.show(selection("state:dead", "not", "x")).want(t, "what is not an id", 200, "is not an id or a list of ids", "!<button> archive")
	w.show(planOf("archive", "state:dead -id:"+ids[0]+",999")).want(t, "an exception that matches, and one that does not", 200, "6 match, minus 1.", ">999</a>")
	w.show(planOf("archive", "state:dead id:1,2 -id:2,3")).want(t, "exceptions of a list of ids", 200, "archive 1 task", "2 match, minus 1.")
	w.show(planOf("archive", "state:dead -id:"+ids[0], "limit", "2")).want(t, "a limit", 200, "archive 2 tasks", "1 that would match is left out.")
	w.show(planOf("archive", "state:dead -id:"+strings.Join(ids, ","))).want(t, "nothing is left", 200, "No task matches now", "!match, minus")

	page := w.show(selection(`state:dead type:mail`, "not", ids[0], ids[5])).want(t, "all but some", 200, "archive 4 tasks", "6 match, minus 2.",
		"<code>state:dead type:mail</code>", `href="/ops/tasks/`+ids[5]+`"`, "--query 'state:dead type:mail -id:"+ids[0]+","+ids[5]+"'")
	w.taken(w.send("POST", "/do/startOperation", "", page.form(t)))
	o := w.newest(1)
	if o.Total != 4 || fmt.Sprint(o.Filter.NotIDs) != "["+ids[0]+" "+ids[5]+"]" || o.Query != "state:dead type:mail -id:"+ids[0]+","+ids[5] {
		t.Errorf("the operation is %+v", o)
	}
	w.show("/operations/"+o.ID.String()).want(t, "the operation", 200, "<code>state:dead type:mail</code>", "minus 2 tasks", `href="/ops/tasks/`+ids[5]+`"`)
	w.show("/operations").want(t, "the operations", 200, "<code>state:dead type:mail</code>", "minus 2")
	for _, page := range []string{"/dead?q=", "/tasks?q="} {
		w.show(page+"group:0000").want(t, page+" of an unknown group", 200, "there is no group that begins with 0000", "!not found:")
		w.show(page+"operation:99").want(t, page+" of an unknown operation", 200, "there is no operation 99")
	}
	w.show("/dead?q=type:mail+-id:1").want(t, "groups with an exception", 200, "groups can be selected by", "!in 1 group")
}

func TestOperationCommandIsOneWordForEachFlag(t *testing.T) {
	w := newEditWorld(t)
	w.deadTask(holdfast.NewTask{Type: "mail"})
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	reason := `$(date) "a" 'b' \ ; *`
	page := w.show(planOf("retry", "state:dead", "reason", reason))
	command := html.UnescapeString(regexp.MustCompile(`(?s)<pre id="command">(.*?)</pre>`).FindStringSubmatch(page.text)[1])
	printed, err := exec.CommandContext(t.Context(), shell, "-c", `holdfast() { for word; do echo "<$word>"; done; }; `+command).Output()
	if want := "<operation>\n<start>\n<retry>\n<--query>\n<state:dead>\n<--reason>\n<" + reason + ">\n"; err != nil || string(printed) != want {
		t.Errorf("%s has the words %s, %v; want %s", command, printed, err, want)
	}
}

var editOptions = regexp.MustCompile(`<option value="([^"]*)"></option>`)

func TestSearchFieldSuggestsTermsAndShowsErrors(t *testing.T) {
	w := newEditWorld(t)
	w.deadTask(holdfast.NewTask{Type: "mail", Queue: "slow"})
	suggested := func(q string) string {
		var list []string
		for _, option := range editOptions.FindAllStringSubmatch(w.show("/tasks?"+url.Values{"q": {q}}.Encode()).text, -1) {
			list = append(list, html.UnescapeString(option[1]))
		}
		return "\n" + strings.Join(list, "\n") + "\n"
	}
	first, next := suggested(""), suggested("state:dead")
	for _, want := range []string{"state:dead", "type:mail", "queue:slow", "error:", "payload.", "since:1h"} {
		if !strings.Contains(first, "\n"+want+"\n") {
			t.Errorf("%s is not suggested in %s", want, first)
		}
		if want != "state:dead" && !strings.Contains(next, "\nstate:dead "+want+"\n") {
			t.Errorf("%s is not suggested in %s", want, next)
		}
	}
	if strings.Contains(next, "state:dead state:") {
		t.Errorf("a field is suggested twice: %s", next)
	}
	for _, page := range []string{"/tasks", "/dead"} {
		for q, mark := range map[string]string{
			"state:dead nosuch:<script> type:x": "<mark>nosuch:&lt;script&gt;</mark> type:x", "type:": "<mark>…</mark>", `type:ä "x`: "type:ä <mark>&#34;x</mark>",
		} {
			if text := w.show(page + "?" + url.Values{"q": {q}}.Encode()).text; !strings.Contains(text, mark) || !strings.Contains(text, "character ") {
				t.Errorf("%s with %s has no %s:\n%s", page, q, mark, text)
			}
		}
	}
}

// An operation that has ended has no present step, and links to the tasks that are dead again.
func TestEndedOperation(t *testing.T) {
	w := newEditWorld(t)
	operator := w.tokenOf("ann", store.Operator)
	o, err := w.Store.CreateOperation(t.Context(), store.Actor{Name: "ada"}, store.Operation{
		Action: store.ActionRetry, Query: "state:dead", Filter: store.Filter{States: []holdfast.State{holdfast.Dead}},
		State: store.OperationRunning, Ramp: []int{1, 100}, StopAbove: 1, StepTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	page := "/operations/" + o.ID.String()
	w.send("GET", page, operator, nil).want(t, "the running operation", 200, "● 1 %", "!failed again", "!✓")
	w.send("GET", "/audit", operator, nil).want(t, "the audit log", 200, "<td>retry <small><a href=", ">operation "+o.ID.String()+"</a></small></td>")
	step := store.OperationStep{From: o, To: o, By: &store.Actor{Name: "holdfast", Surface: store.Janitor}}
	step.To.State, step.To.Step, step.To.Failed, step.To.Judged = store.OperationDone, 1, 2, 2
	if _, err := w.Store.StepOperation(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	w.send("GET", page, operator, nil).want(t, "the operation that has ended", 200, "✓ 1 % · ✓ 100 %", "!●",
		`/tasks?q=state:dead+operation:`+o.ID.String(), "leaves the tasks that failed again")
}

// The overview counts a draining worker apart from the live ones, as the API does.
func TestLiveAndDrainingWorkers(t *testing.T) {
	w := newEditWorld(t)
	for _, drains := range []bool{false, true} {
		id, err := w.Store.RegisterWorker(t.Context(), store.WorkerInfo{Name: "w", Concurrency: 1}, time.Hour)
		if err == nil && drains {
			err = w.Store.Drain(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.send("GET", "/", w.tokenOf("ann", store.Viewer), nil).want(t, "the overview", 200,
		`<dt>live workers</dt><dd id="n-workers">1 <small>1 draining</small></dd>`)
}
