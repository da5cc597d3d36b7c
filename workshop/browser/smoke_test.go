package browser

import (
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/holdfastq/holdfast"
)

// A person finds a dead task from the overview, retries it, and sees its success without a reload.
func TestSmoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.enqueue(holdfast.NewTask{Type: "mail", Queue: "letters", Payload: json.RawMessage(`{"to": "ann@example.org"}`)})[0]
	w.await(holdfast.Dead, id)
	w.succeed()

	b := open(t, w.url)
	b.visit("/")
	b.wait(has(".needs", "1 dead: error in mail: 503 Service Unavailable"))
	b.wait(has("#live", "live"))
	b.follow(".needs .button")
	b.holds(has(".error", "503 Service Unavailable"))
	b.follow("#t" + id.String() + " a")
	b.holds(has("h1", "dead"))
	b.follow(`form[action$="/do/retryTask"] button`)
	b.holds(has(".notice", "Task "+id.String()+" is retried"))
	b.holds(`document.querySelector(".notice form button").innerText === "Undo"`)
	b.holds(`document.querySelector(".notice a").pathname === "/tasks/` + id.String() + `"`)
	b.eval(`window.same = true`)
	b.wait(has("h1", "done"))
	b.holds(`window.same`)
	b.follow(`nav a[href="/"]`)
	b.wait(has(".calm", "Nothing: no dead tasks"))
}

// The listeners must see what the policy forbids. Otherwise their silence means nothing.
func TestComplaintsAreSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := open(t, w.url)
	b.visit("/")
	b.eval(`(() => { const s = document.createElement("script"); s.textContent = "window.ran = true"; document.body.append(s); })()`)
	b.holds(`window.ran === undefined`)
	b.eval(`(() => { try { return eval("1") } catch (e) { return e.name } })()`)
	get(b, chromedp.Evaluate[bool](`console.error("wrong"), true`, strict))
	if seen := b.take(); len(seen) < 3 {
		t.Errorf("the browser has complained only of %q", seen)
	}
}
