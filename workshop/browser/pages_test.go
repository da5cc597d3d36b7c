package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// finding is what axe reports.
type finding struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// severe returns the serious and the critical findings of axe on the page.
func (b *tab) severe() (found []string) {
	b.Helper()
	get(b, chromedp.Evaluate[bool](axe+"\n;true", strict))
	list := get(b, chromedp.Evaluate[[]finding](`axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations)`, strict))
	for _, f := range list {
		if f.Impact == "serious" || f.Impact == "critical" {
			for _, n := range f.Nodes {
				found = append(found, fmt.Sprintf("%s (%s): %s\n%s\n%s", f.ID, f.Impact, f.Help, n.HTML, n.FailureSummary))
			}
		}
	}
	return found
}

// every calls check with every page of the console, in both themes and widths; without the
// slow tests, wide and light, and narrow and dark.
func (d *demo) every(b *tab, check func(name, path string, width int64, theme string)) {
	b.Helper()
	covered := make(map[string]bool)
	b.visit("/")
	for path := range strings.FieldsSeq(b.eval(`[...document.querySelectorAll("nav a")].map((a) => a.pathname).join(" ")`)) {
		covered[path] = true
	}
	for _, path := range d.paths {
		delete(covered, path)
	}
	for path := range covered {
		b.Errorf("the test does not know the page %s of the navigation", path)
	}
	for _, name := range slices.Sorted(maps.Keys(d.paths)) {
		for _, width := range []int64{1440, 390} {
			for _, theme := range []string{"light", "dark"} {
				if !*update && !slow.All() && width == 1440 != (theme == "light") {
					continue
				}
				b.show(width, theme)
				b.visit(d.paths[name])
				b.expect("status of 404")
				check(name, d.paths[name], width, theme)
			}
		}
	}
}

// Each page is usable with a screen reader and with little contrast, does not scroll sideways, and has targets that a
// finger hits.
func TestPages(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	b := open(t, d.url)
	b.signIn(d.admin)
	d.every(b, func(name, path string, width int64, theme string) {
		where := fmt.Sprintf("%s at %d px, %s", path, width, theme)
		if name != "problem" {
			b.holds(`document.querySelector("h1") !== null`)
		}
		for _, f := range b.severe() {
			t.Errorf("%s: %s", where, f)
		}
		if wide := b.eval(`(() => { const s = document.scrollingElement; if (s.scrollWidth <= innerWidth && innerWidth === ` + fmt.Sprint(width) + `) return "";
			return s.scrollWidth + " of " + innerWidth + ": " + [...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > ` + fmt.Sprint(width) + ` + 1)
				.slice(0, 5).map((e) => e.outerHTML.slice(0, 200)).join("\n") })()`); wide != "" {
			t.Errorf("%s scrolls sideways: %s", where, wide)
		}
		if small := b.eval(`[...document.querySelectorAll("button, .button, nav a, .tabs a, input:not([type=hidden]), select, summary")].filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 24)
			.map((e) => e.outerHTML.slice(0, 120) + " " + e.getBoundingClientRect().height).slice(0, 5).join("\n")`); small != "" {
			t.Errorf("%s: targets lower than 24 px: %s", where, small)
		}
	})
}

// axe must find what is wrong. Otherwise its silence means nothing.
func TestSevereFindingsAreSeen(t *testing.T) {
	t.Parallel()
	b := open(t, newWorld(t).url)
	b.visit("/")
	b.eval(`(() => { const p = document.createElement("p"); p.textContent = "faint"; p.style.color = "#eee"; p.style.background = "#fff";
		const unnamed = document.createElement("input"); unnamed.name = "unnamed";
		document.body.append(p, unnamed) })()`)
	if found := strings.Join(b.severe(), "\n"); !strings.Contains(found, "color-contrast") || !strings.Contains(found, "label") {
		t.Errorf("axe has found only: %s", found)
	}
}

// Texts of tasks and people are shown as texts, wherever they are shown.
func TestTextsStayTexts(t *testing.T) {
	t.Parallel()
	const evil = `<img src=x onerror="window.ran=1"><script>window.ran=1</script>`
	w := newWorld(t, "HOLDFAST_WORKER_NAME="+evil)
	w.handle(func(context.Context, holdfast.Task) error { return holdfast.Permanent(errors.New(evil)) })
	payload, err := json.Marshal(map[string]any{evil: evil, "list": []string{evil}})
	if err != nil {
		t.Fatal(err)
	}
	const tag = `<svg/onload=window.ran=1>` // without characters that a tag may not have
	id := w.enqueue(holdfast.NewTask{Type: "mail", Payload: payload, Key: evil, Topic: evil, Unique: evil, Tags: []string{tag}})[0]
	w.await(holdfast.Dead, id)
	group := w.group(id)
	w.call("", "PATCH", "/dead-groups/"+group, `{"owner": `+quote(evil)+`}`)
	w.call("", "PATCH", "/dead-groups/"+group, `{"note": `+quote(evil)+`}`)
	w.call("", "POST", "/gates", `{"kind": "pause", "key": `+quote(evil)+`, "reason": `+quote(evil)+`}`)
	w.call("", "PUT", "/limits", `{"key": `+quote(evil)+`, "rate": "1/s", "reason": `+quote(evil)+`}`)
	w.call("", "POST", "/operations", `{"action": "archive", "query": "state:dead key:\"no\\\"`+`<img>\"", "reason": `+quote(evil)+`}`)
	w.call("", "POST", "/batches", `{"name": "letters", "note": `+quote(evil)+`, "stages": [{"tasks": [{"type": "mail"}]}]}`)
	w.call("", "POST", "/schedules", `{"name": "daily", "every": "24h", "note": `+quote(evil)+`, "task": {"type": "mail", "key": `+quote(evil)+`, "payload": {"x": `+quote(evil)+`}}}`)
	w.call("", "PUT", "/sources/shop", `{"type": "mail", "every": "1h", "note": `+quote(evil)+`}`)
	w.call("", "PUT", "/shard-jobs/scan", `{"type": "mail", "zones": {"0": "a"}, "every": "1h", "note": `+quote(evil)+`}`)
	workers, err := w.Store.Workers(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, w.url)
	for _, path := range []string{
		"/", "/dead", "/dead/" + group, "/tasks", "/tasks/" + id.String(), "/queues", "/workers", "/workers/" + workers[0].ID.String(), "/operations", "/operations/1",
		"/gates", "/keys", "/topics", "/schedules", "/schedules/daily", "/schedules/daily/edit", "/sources/shop", "/shards/scan", "/queues/default", "/batches", "/batches/1", "/audit", "/tokens", "/settings",
		"/settings/change?key=types.mail.retry.base&value=%3Cimg+src%3Dx+onerror%3D%22window.ran%3D1%22%3E", "/tasks?q=%3Cimg+src%3Dx+onerror%3D%22window.ran%3D1%22%3E", "/dead?q=%22%3E%3Cscript%3E",
	} {
		b.visit(path)
		if b.eval(`document.body.hasAttribute("data-live")`) == "true" {
			b.wait(has("#live", "live")) // the text has come by the stream, too
		}
		b.holds(`window.ran === undefined && document.querySelector("main img, main script, main svg[onload]") === null`)
	}
	b.visit("/tasks/" + id.String())
	b.holds(has("main", evil))
}

// Without scripts, each page of the navigation loads, and a form makes its change.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.enqueue(holdfast.NewTask{Type: "mail"})[0]
	w.await(holdfast.Dead, id)
	b := open(t, w.url)
	b.visit("/")
	links := strings.Fields(b.eval(`[...document.querySelectorAll("nav a")].map((a) => a.getAttribute("href")).join(" ")`))
	send(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.visit("/")
	for _, link := range links {
		b.follow(fmt.Sprintf(`nav a[href=%q]`, link))
		if title := get(b, chromedp.Title()); !strings.HasSuffix(title, "· Holdfast") || strings.HasPrefix(title, "Not Found") {
			t.Errorf("%s leads to %q", link, title)
		}
	}
	b.follow(`nav a[href="/tasks"]`)
	b.run(keys("#q", "state:dead"))
	b.leave(click(".search button"))
	b.follow("#t" + id.String() + " a")
	b.follow(`form[action$="/do/archiveTask"] button`)
	if text := get(b, chromedp.Text(chromedp.CSS(".notice"))); !strings.Contains(text, "is archived") {
		t.Errorf("the notice is %q", text)
	}
	b.follow(".notice button")
	w.await(holdfast.Dead, id)
}

// The button of a new token copies its secret.
func TestCopyOfASecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := open(t, w.url)
	b.visit("/tokens")
	b.run(keys(`form[action$="/tokens"] input[name="name"]`, "ann"))
	b.leave(click(`form[action$="/tokens"] button`))
	b.holds(`document.getElementById("secret").textContent.startsWith("holdfast_") && !location.search`)
	b.run(click("[data-copy]"))
	b.wait(has("[data-copy]", "Copied"))
	b.holds(`getSelection().toString().trim() === document.getElementById("secret").textContent`)
}

// TestScreenshots writes the pictures of all pages into bin/screenshots with -update, and replaces those in docs/images.
func TestScreenshots(t *testing.T) {
	if !*update {
		t.Skip("to write the screenshots: go test -run Screenshots -update")
	}
	d := newDemo(t)
	b := open(t, d.url)
	b.signIn(d.admin)
	root := filepath.Join("..", "..")
	folder := filepath.Join(root, "bin", "screenshots")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	d.every(b, func(name, path string, width int64, theme string) {
		if b.eval(`document.body.hasAttribute("data-live")`) == "true" {
			b.wait(has("#live", "live"))
		}
		shot := send(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
		picture, err := small(shot.Data)
		if err != nil {
			t.Fatal(err)
		}
		file := fmt.Sprintf("console-%s-%d-%s.png", name, width, theme)
		paths := []string{filepath.Join(folder, file)}
		if shown := filepath.Join(root, "docs", "images", file); exists(shown) {
			paths = append(paths, shown)
		}
		for _, path := range paths {
			if err := os.WriteFile(path, picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
