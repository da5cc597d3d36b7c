package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// cells returns the texts of the cells with a label, such as "Blocked".
func (r answer) cells(label string) (cells []string) {
	for i, e := range r.elements {
		if e.name == "td" && e.attrs["data-l"] == label {
			text := strings.TrimSpace(e.text)
			for _, inner := range r.elements[i+1:] {
				if inner.name == "td" || inner.name == "tr" {
					break
				}
				text = strings.TrimSpace(text + " " + strings.TrimSpace(inner.text))
			}
			cells = append(cells, text)
		}
	}
	return cells
}

// links returns the targets of the links of a page.
func (r answer) links() (links []string) {
	for _, e := range r.find("a", "") {
		links = append(links, e.attrs["href"])
	}
	return links
}

// numberSpan is the start of a number of a page, and waitedText is a time that something has waited.
var (
	numberSpan = regexp.MustCompile(`<span class="n"[^>]*>`)
	waitedText = regexp.MustCompile(`(<dd id="n-(?:oldest|longest)">)[\d.]+ (?:ms|s|min)`)
)

// TestTasksThatWaitInAQueue blocks a task of a queue at a limit, and another one is dead. The lists of queues and the page
// of the queue show them, and how long the blocked task has waited. No due task waits there.
func TestTasksThatWaitInAQueue(t *testing.T) {
	everywhere(t, func(w *world) {
		ids := w.Enqueue(holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "slow", Queue: "slow"})
		w.change("PUT", "/limits", `{"type":"slow","concurrency":1}`)
		worker, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "ann", Concurrency: 1}, time.Hour)
		w.must(err)
		tickets := []message.Ticket{{Task: ids[1], Attempt: 1}}
		claims, err := w.Store.Claim(w.Context(), worker, store.AnyOf("slow"), tickets, store.IntoExecutors)
		if err != nil || claims[0].Verdict != store.Blocked {
			w.Fatalf("a claim of a limited task: %+v, %v", claims, err)
		}
		w.must(w.Store.Block(w.Context(), claims[0].Gate, tickets))
		w.Dead(holdfast.NewTask{Type: "mail", Queue: "slow"})
		b := w.browser()
		for path, rows := range map[string]int{"/": 2, "/queues": 2, "/queues/slow": 1, "/queues/default": 1} {
			page := b.get(path)
			for label, want := range map[string][]string{ // of the queues default and slow
				"Ready": {"1", "1"}, "Due": {"1", "0"}, "Blocked": {"0", "1"}, "Parked": {"0", "0"}, "Dead": {"0", "1"}, "Oldest": {"", "–"}, "Longest": {"–", ""},
			} {
				if path == "/queues/slow" {
					want = want[1:]
				}
				cells := page.cells(label)
				if len(cells) < rows {
					w.Fatalf("%s: %q in the column %s", path, cells, label)
				}
				for i, cell := range cells[:rows] { // more follow in the lists of limits and groups
					if waited := cell != "–" && cell != "0 s"; cell != want[i] && (want[i] != "" || !waited) {
						w.Errorf("%s: the column %s has %q, want %q", path, label, cell, want[i])
					}
				}
			}
		}
		for path, want := range map[string]string{
			"/": `<dd id="n-oldest">1|<dd id="n-blocked">1|<dd id="n-longest">1|<dd id="n-parked">0`, "/queues/slow": `<dd id="n-oldest">–|<dd id="n-blocked">1|<dd id="n-longest">1|<dd id="n-parked">0`,
			"/queues/default": `<dd id="n-oldest">1|<dd id="n-blocked">0|<dd id="n-longest">–`,
		} {
			text := numberSpan.ReplaceAllString(b.get(path).text, "")
			text = waitedText.ReplaceAllString(text, "${1}1") // the times are not known
			for figure := range strings.SplitSeq(want, "|") {
				if !strings.Contains(text, figure+"<") {
					w.Errorf("%s lacks %s", path, figure)
				}
			}
		}
	})
}

// TestPauseOfATarget pauses a target with the form of the page of gates, and resumes it.
func TestPauseOfATarget(t *testing.T) {
	everywhere(t, func(w *world) {
		operator := w.as(store.Operator)
		form, found := operator.get("/gates").formFor("closeGate")
		if !found || !form.fields.Has("target") {
			w.Fatal("the form of a pause takes no target")
		}
		form.fields.Set("target", "https://API.example.com/hook")
		form.fields.Set("for", "2h")
		if r := operator.post(form.action, form.fields); r.status != http.StatusSeeOther {
			w.Fatalf("pause: %d %s", r.status, r.summary())
		}
		gates, err := w.Store.Gates(w.Context())
		if err != nil || len(gates) != 1 || gates[0].Subject != (store.Subject{Target: "https://api.example.com:443"}) || gates[0].Until.IsZero() {
			w.Fatalf("gates %+v, %v", gates, err)
		}
		if r := operator.get("/gates"); !strings.Contains(r.text, "target https://api.example.com:443") {
			w.Error("the page does not show the pause")
		}
		if r := operator.post(form.action, url.Values{"target": {"ftp://example.com"}}); r.status != http.StatusUnprocessableEntity {
			w.Errorf("a pause of an odd target: %d %s", r.status, r.summary())
		}
	})
}

// TestKeysAndTopics checks the lists of the keys with ordered tasks and of the topics. The page of gates links to them.
func TestKeysAndTopics(t *testing.T) {
	everywhere(t, func(w *world) {
		ordered := func(key string) holdfast.NewTask { return holdfast.NewTask{Type: "mail", Key: key, Ordered: true} }
		dead := w.Enqueue(ordered(`tenant "7"`), ordered(`tenant "7"`), ordered("waits"), ordered("waits"), ordered("waits"), ordered("alone"))[0]
		w.Settle(dead, holdfast.Returned(holdfast.Permanent(http.ErrBodyNotAllowed)), holdfast.DefaultPolicy())
		w.Enqueue(holdfast.NewTask{Type: "mail", Topic: "site 7"}, holdfast.NewTask{Type: "mail", Topic: "site 7"}, holdfast.NewTask{Type: "mail", Topic: "b", Queue: "slow"})
		b := w.browser()
		for _, link := range []string{"/keys", "/topics"} {
			if !slices.Contains(b.get("/gates").links(), link) {
				w.Errorf("the page of gates has no link to %s", link)
			}
		}
		keys := b.get("/keys")
		if waiting := keys.cells("Waiting"); !slices.Equal(waiting, []string{"1", "2"}) {
			w.Errorf("waiting are %v", waiting)
		}
		if links := keys.links(); !slices.Contains(links, "/tasks?q=key%3a%22tenant%20%5c%227%5c%22%22") || !slices.Contains(links, "/tasks?q=key%3awaits") || !slices.Contains(links, "/tasks/"+dead.String()) {
			w.Errorf("the links of the keys: %q", links)
		}
		if waiting := b.get("/keys?dead=1").cells("Waiting"); !slices.Equal(waiting, []string{"1"}) {
			w.Errorf("of keys with dead tasks, waiting are %v", waiting)
		}
		topics := b.get("/topics")
		if waiting := topics.cells("Waiting"); !slices.Equal(waiting, []string{"2", "1"}) {
			w.Errorf("of topics, waiting are %v", waiting)
		}
		if links := topics.links(); !slices.Contains(links, "/tasks?q=topic%3a%22site%207%22") || !slices.Contains(links, "/topics?queue=slow") {
			w.Errorf("the links of the topics: %q", links)
		}
		if waiting := b.get("/topics?queue=slow").cells("Waiting"); !slices.Equal(waiting, []string{"1"}) {
			w.Errorf("of topics of the queue slow, waiting are %v", waiting)
		}
		for _, odd := range []string{"default/site 7", "odd"} {
			if r := b.get("/topics?after=" + url.QueryEscape(odd)); r.status != map[bool]int{true: 200, false: 422}[odd != "odd"] {
				w.Errorf("after %s: %d %s", odd, r.status, r.summary())
			}
		}
	})
}
