package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// A retry of a group from its page stops by itself when the first tasks fail again. Its page shows that live.
func TestRampStopsByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tasks := make([]holdfast.NewTask, 40)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "mail"}
	}
	ids := w.enqueue(tasks...)
	w.await(holdfast.Dead, ids...)
	begin := make(chan struct{})
	w.handle(func(ctx context.Context, _ holdfast.Task) error {
		select {
		case <-begin:
		case <-ctx.Done():
		}
		return holdfast.Permanent(errors.New("503 Service Unavailable from api.acme.example"))
	})
	b := open(t, w.url)
	b.visit("/dead/" + w.group(ids[0]))
	b.follow(`a[href*="/operations/new?action=retry"]`)
	b.holds(has("main", "Retry 40 tasks."))
	b.eval(`document.querySelector("input[name=ramp]").value = "10, 100"`)
	b.eval(`document.querySelector("input[name=reason]").value = "the vendor is back"`)
	b.follow(`form[action$="/do/startOperation"] button:not([formaction])`)
	b.holds(has(".notice", "Operation 1 has started"))
	b.follow(".notice a")
	b.wait(has("h1", "running"))
	b.eval(`window.same = true`)
	close(begin)
	b.wait(has("h1", "stopped"))
	b.holds(has(".bad", "4 of 4 first attempts of the step failed"))
	b.holds(has("#f-failed", "4"))
	b.holds(has("main", "the vendor is back"))
	b.holds(`window.same`)
}

// A person takes back the archiving of a task.
func TestUndo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.enqueue(holdfast.NewTask{Type: "mail"})[0]
	w.await(holdfast.Dead, id)
	b := open(t, w.url)
	b.visit("/tasks/" + id.String())
	b.follow(`form[action$="/do/archiveTask"] button`)
	b.holds(has("h1", "archived"))
	b.follow(".notice button")
	b.holds(has("h1", "dead"))
	b.holds(has(".notice", "is as it was before"))
	b.visit("/tasks/" + id.String())
	b.holds(`document.querySelector(".notice") === null`)
}

// A viewer sees no button, and the console refuses a form that a viewer makes.
func TestViewer(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	b := open(t, d.url)
	b.visit("/dead")
	b.holds(`location.pathname === "/login"`)
	b.run(keys("#token", "holdfast_wrong"))
	b.leave(click(".signin button"))
	b.holds(`document.querySelector("[role=alert]") !== null`)
	b.expect("status of 401")
	b.run(keys("#token", d.token("guest", store.Viewer)))
	b.leave(keys("#token", kb.Enter))
	b.holds(`location.pathname === "/dead"`)
	b.holds(has(".who", "guest · viewer"))
	names := []string{"overview", "group", "tasks", "task", "edit", "operation", "plan", "worker", "gates", "schedules", "batch"}
	for _, name := range names {
		path := d.paths[name]
		b.visit(path)
		b.expect("status of 403") // the pages for other roles
		b.holds(`document.querySelector("main form[method=post], main a[href*='/operations/new'], main form[action*='/operations/new'], main a[href$='/edit']") === null`)
	}
	b.visit("/tasks/" + d.dead.String())
	b.leave(func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
		_, err = chromedp.Evaluate[bool](`(() => { const f = document.createElement("form"); f.method = "post"; f.action = "/do/archiveTask";
			const i = document.createElement("input"); i.name = "id"; i.value = "`+d.dead.String()+`"; f.append(i); document.body.append(f); f.submit(); return true })()`, strict)(ctx, t)
		return v, err
	})
	b.holds(has("h1", "Forbidden"))
	d.await(holdfast.Dead, d.dead)
	b.follow(`form[action$="/logout"] button`)
	b.holds(`location.pathname === "/login"`)
	b.visit("/tasks")
	b.holds(`location.pathname === "/login"`)
	b.expect("status of 403")
	b.expect("NavigationEntryMarkedSkippable") // no person has sent the form
}

// A person corrects the payload of a dead task. When the review is done, another person has changed the task: the form
// says so and keeps what was typed. The person saves the edit after all, and retries the task, which succeeds. Its page
// has both edits, and every digit of a number that JavaScript cannot represent.
func TestEdit(t *testing.T) {
	t.Parallel()
	const before, after = `{"order":9007199254740993,"total":104.50,"to":"ann@example.org"}`, `{"order":9007199254740993,"total":104.50,"to":"bob@example.org"}`
	w := newWorld(t)
	w.handle(func(_ context.Context, task holdfast.Task) error {
		if string(task.Payload) != after {
			return holdfast.Permanent(fmt.Errorf("550 no such user, in %s", task.Payload))
		}
		return nil
	})
	id := w.enqueue(holdfast.NewTask{Type: "mail", Payload: json.RawMessage(before)})[0]
	w.await(holdfast.Dead, id)
	page := "/tasks/" + id.String()
	b, other := open(t, w.url), open(t, w.url)
	b.visit(page)
	b.follow(`a[href$="/edit"]`)
	b.overtype("payload", "ann@", "bob@")
	b.follow(`button[value="review"]`)
	b.holds(has(".diff", "/payload/to"))
	b.holds(`document.querySelector(".diff del").innerText.includes("ann@example.org") && document.querySelector(".diff ins").innerText.includes("bob@example.org")`)
	b.holds(`document.querySelectorAll(".diff li").length === 1`)

	other.visit(page + "/edit")
	other.overtype("queue", "default", "letters")
	other.follow(`button[value="review"]`)
	other.follow(`button[value="save"]`)
	other.holds(has(".notice", "Task "+id.String()+" is edited"))

	b.run(keys("input[name=reason]", "a typing error"))
	b.follow(`button[value="save"]`)
	b.expect("status of 412")
	b.holds(has("[role=alert]", "The task has changed since you opened the form"))
	b.holds(`[...document.querySelectorAll(".diff")].map((d) => d.querySelector("code").innerText).join() === "/queue,/payload/to"`) // of both persons
	b.holds(`document.querySelector("[name=payload]").value.includes("bob@example.org") && document.querySelector("[name=payload]").value.includes("9007199254740993,")`)
	b.holds(`document.querySelector("[name=queue]").value === "letters" && document.querySelector("[name=reason]").value === "a typing error"`)
	if task, err := w.Task(t.Context(), id); err != nil || string(task.Payload) != before {
		t.Fatalf("after the conflict the task is %+v, %v", task, err)
	}
	b.follow(`button[value="save"]`)
	b.holds(has(".notice", "Task "+id.String()+" is edited"))
	b.follow(`form[action$="/do/retryTask"] button`)
	b.wait(has("h1", "done"))
	b.holds(`document.getElementById("raw").textContent === ` + quote(after))
	b.holds(`document.querySelectorAll("details.revision").length === 2`)
	b.eval(`document.querySelectorAll("details.revision").forEach((d) => { d.open = true })`)
	b.holds(has("main", "a typing error"))
	b.holds(`[...document.querySelectorAll("details.revision code")].map((c) => c.innerText).sort().join() === "/payload/to,/queue"`)
	b.visit("/audit")
	b.holds(has("main", "a typing error"))
	if task, err := w.Task(t.Context(), id); err != nil || string(task.Payload) != after || task.Queue != "letters" {
		t.Errorf("the task is %+v, %v", task, err)
	}
}

// overtype selects a text in a field and types another one over it.
func (b *tab) overtype(field, old, text string) {
	b.Helper()
	b.holds(`(() => { const f = document.querySelector("[name=` + field + `]"), at = f.value.indexOf(` + quote(old) + `);
		f.focus(); f.setSelectionRange(at, at + ` + fmt.Sprint(len(old)) + `); return at >= 0 })()`)
	b.run(chromedp.KeyEvent(text))
}

// While a page is live, what a person does with it stays: the focus, a selection, open details and typed text. Values
// change in place, and new rows wait.
func TestLivePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.enqueue(holdfast.NewTask{Type: "mail"}, holdfast.NewTask{Type: "mail"})
	w.await(holdfast.Dead, ids...)
	b := open(t, w.url)
	send(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `addEventListener("DOMContentLoaded", () => { window.heading = document.querySelector("h1") })`})
	b.visit("/tasks")
	b.wait(has("#live", "live"))
	row := "#t" + ids[0].String()
	b.eval(fmt.Sprintf(`(() => { window.row = document.querySelector(%q); row.querySelector("a").focus();
		document.getElementById("q").value = "typed";
		const cell = row.cells[2].firstChild; getSelection().setBaseAndExtent(cell, 0, cell, 4) })()`, row))
	w.succeed()
	w.call("", "POST", "/tasks/"+ids[0].String()+"/retry", `{}`)
	b.wait(has(row, "done"))
	b.holds(fmt.Sprintf(`document.querySelector(%q) === row && document.activeElement === row.querySelector("a")`, row))
	b.holds(`getSelection().toString() === "mail" && document.getElementById("q").value === "typed"`)

	more := w.enqueue(holdfast.NewTask{Type: "mail"})[0]
	b.wait(has("#pill", "1 new"))
	b.holds(`document.getElementById("t` + more.String() + `") === null`)
	b.follow("#pill a")
	b.holds(`document.getElementById("t` + more.String() + `") !== null`)

	b.visit("/tasks/" + ids[1].String())
	b.wait(has("#live", "live"))
	b.eval(`document.getElementById("raw").closest("details").open = true`)
	w.call("", "POST", "/tasks/"+ids[1].String()+"/retry", `{}`)
	b.wait(has("h1", "done"))
	b.holds(`document.getElementById("raw").closest("details").open`)
	b.holds(`document.querySelector("h1") === window.heading`) // also from before the first update

	paused := w.enqueue(holdfast.NewTask{Type: "mail", Delay: time.Hour})[0]
	b.visit("/tasks/" + paused.String())
	b.wait(has("#live", "live"))
	b.run(click("#live button"))
	b.wait(has("#live", "paused at"))
	w.call("", "POST", "/tasks/"+paused.String()+"/cancel", `{}`)
	b.holds(has("h1", "scheduled"))
	b.run(click("#live button"))
	b.wait(has("h1", "cancelled"))
}

// When the server goes away, the page says so and keeps what it shows. When the server is back, the page is live again.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.enqueue(holdfast.NewTask{Type: "mail", Delay: time.Hour})[0]
	b := open(t, w.url)
	b.visit("/tasks/" + id.String())
	b.wait(has("#live", "live"))
	w.stop()
	b.wait(has("#live", "server away since"))
	b.holds(has("h1", "scheduled"))
	w.start()
	w.call("", "POST", "/tasks/"+id.String()+"/cancel", `{}`)
	b.wait(has("h1", "cancelled"))
	b.wait(`document.querySelector("#live span").textContent === "live"`)
	b.expect("net::ERR_") // of the tries meanwhile
}

// A person without a mouse skips the navigation, finds a group of dead tasks, opens a task of it, and retries the task.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.enqueue(holdfast.NewTask{Type: "mail"})[0]
	w.await(holdfast.Dead, id)
	w.succeed()
	b := open(t, w.url)
	b.visit("/dead")
	b.run(chromedp.KeyEvent(kb.Tab))
	b.holds(`document.activeElement.className === "skip" && document.activeElement.getBoundingClientRect().left >= 0`)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.holds(`document.activeElement.id === "main"`)
	b.tabTo(`document.activeElement.pathname === "/dead/` + w.group(id) + `"`)
	b.leave(chromedp.KeyEvent(kb.Enter))
	b.holds(has(".error", "503 Service Unavailable"))
	b.tabTo(`document.activeElement.pathname === "/tasks/` + id.String() + `"`)
	b.leave(chromedp.KeyEvent(kb.Enter))
	b.holds(has("h1", "dead"))
	b.tabTo(`document.activeElement.closest("form")?.action.endsWith("/do/retryTask") === true`)
	b.holds(`getComputedStyle(document.activeElement).outlineStyle !== "none"`)
	b.leave(chromedp.KeyEvent(kb.Enter))
	b.wait(has("h1", "done"))
	b.run(chromedp.KeyEvent("/"))
	b.holds(`document.activeElement.closest(".find") !== null`)
}

// tabTo presses Tab until a condition of the page is true.
func (b *tab) tabTo(condition string) {
	b.Helper()
	var seen []string
	for range 40 {
		b.run(chromedp.KeyEvent(kb.Tab))
		if b.eval(condition) == "true" {
			return
		}
		seen = append(seen, b.eval(`document.activeElement.outerHTML.slice(0, 80)`))
	}
	b.Fatalf("no Tab leads to %s, only to:\n%s", condition, strings.Join(seen, "\n"))
}

// A person archives all tasks that match a search, except those that the person unchecks. While rows are checked, the
// live page drops neither them nor their boxes.
func TestSelectAllButSome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.enqueue(slices.Repeat([]holdfast.NewTask{{Type: "mail"}}, 8)...)
	w.await(holdfast.Dead, ids...)
	b := open(t, w.url)
	b.visit("/tasks?q=state:dead")
	b.wait(has("#live", "live"))
	says := func(text string) string {
		return `document.querySelector("#bulk button[value=archive]").textContent === ` + quote(text)
	}
	box := func(i int) string { return fmt.Sprintf("#t%s input", ids[i]) }
	b.wait(says("archive all"))
	b.run(click(box(1)))
	b.holds(says("archive 1"))
	b.eval(fmt.Sprintf(`document.querySelector(%q).dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true, shiftKey: true}))`, box(4)))
	b.holds(says("archive 4"))
	b.holds(`[...document.querySelectorAll("#tasks input")].map((box) => Number(box.checked)).join("") === "00011110"`)
	for _, width := range []int64{390, 1440} {
		b.show(width, "light")
		for _, f := range b.severe() {
			t.Errorf("at %d px: %s", width, f)
		}
	}

	more := w.enqueue(holdfast.NewTask{Type: "mail"})[0]
	w.await(holdfast.Dead, more)
	w.call("", "POST", "/tasks/"+ids[7].String()+"/archive", `{}`)
	b.wait(`document.querySelector("#t` + ids[7].String() + `").classList.contains("gone")`)
	b.holds(says("archive 4") + ` && document.getElementById("pill").hidden`)
	b.holds(`document.querySelectorAll("#tasks tbody tr").length === 8 && document.getElementById("t` + more.String() + `") === null`)

	b.run(click("#all"))
	b.holds(says("archive all"))
	b.run(click(box(2)), click(box(5)))
	b.holds(says("archive all but 2"))
	w.call("", "POST", "/tasks/"+ids[6].String()+"/archive", `{}`)
	b.wait(`document.querySelector("#t` + ids[6].String() + `").classList.contains("gone")`)
	b.holds(says("archive all but 2") + ` && document.getElementById("all").checked && document.getElementById("pill").hidden`)
	b.follow("#bulk button[value=archive]")
	b.holds(has("main", "Archive 5 tasks."))
	b.holds(has(".except summary", "7 match, minus 2."))
	b.holds(`!document.querySelector(".except").open`)
	b.run(click(".except summary"))
	b.holds(has(".except p", ids[2].String()+", "+ids[5].String()))
	b.follow(`form[action$="/do/startOperation"] button:not([formaction])`)
	b.follow(".notice a")
	b.holds(has(".except summary", "minus 2 tasks"))
	b.wait(has("h1", "done"))
	w.await(holdfast.Archived, ids[0], ids[1], ids[3], ids[4], more)
	w.await(holdfast.Dead, ids[2], ids[5])
}
